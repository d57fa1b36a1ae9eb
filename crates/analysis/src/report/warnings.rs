//! What can make a report wrong or less than whole, in a sentence each.

use offwake_recording::{
    ClosedBy,
    loss::{DISK_USES_UNREAD, OWN_THREADS_FAILED, PART_THREADS},
    units::Nanos,
};

use super::{ClockStep, Report, Suspension, UnansweredNote, overhead::describe_given_up};
use crate::text;

/// The most events of one kind that have a line each; of more, one line has the number.
const LISTED: usize = 3;
/// The most places and processes that did not answer which are named.
const LISTED_UNANSWERED: usize = 6;

impl Report {
    /// Returns what a reader must know before believing the rest, one line each; none if all is
    /// well.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        warnings(self)
    }

    /// Returns what is summed up where waits and all frames are listed, for want of room. Findings have
    /// everything, so that it is no warning.
    pub(crate) fn limit_note(&self) -> Option<String> {
        let (count, time) = (self.filter.limited_count, self.filter.limited_ns);
        (count > 0).then(|| {
            format!(
                "{count} small parts of the blame, {time}, are summed up as `report_limit` in waits and in graphs of all frames"
            )
        })
    }
}

fn warnings(report: &Report) -> Vec<String> {
    let integrity = &report.recording;
    let mut lines = Vec::new();
    let mut say = |line: String| lines.push(line);
    let closed_by = |reason: ClosedBy| report.meta.closed_by == reason.name();
    if closed_by(ClosedBy::Memory) {
        say("the window closed early: the memory for records was used up (--max-memory)".into());
    }
    if closed_by(ClosedBy::DiskFull) {
        let unwritten = report.loss.counters.get("records_unwritten").copied().unwrap_or(0);
        say(format!(
            "the window closed early: the recording found no more room on its disk, {unwritten} records were not written"
        ));
    }
    if closed_by(ClosedBy::Failed) {
        say("the window closed early: something failed in offwake itself; what came before is whole"
            .into());
    }
    let stacks = report.meta.stack_counts;
    if stacks.over_budget > 0 {
        say(format!(
            "{} stacks were not taken: the time that walking them may take was used up (--budget)",
            stacks.over_budget
        ));
    }
    if stacks.thinned_out > 0 {
        say(format!(
            "{} user stacks were not taken, of all threads alike: there was no time to unwind more",
            stacks.thinned_out
        ));
    }
    let overhead = report.meta.overhead.as_ref();
    if let Some(line) = overhead.and_then(|o| describe_given_up(o, report.window.start_ns)) {
        say(line);
    }
    let left_out = report.loss.counters.get("threads_full").copied().unwrap_or(0);
    if left_out > 0 {
        say(format!(
            "some threads are left out, since there are too many to keep track of (--max-threads): they were met {left_out} times"
        ));
    }
    let not_followed = report.loss.counters.get("targets_full").copied().unwrap_or(0);
    if not_followed > 0 {
        say(format!(
            "{not_followed} processes that the target forked are left out, since it has too many at once (--max-targets)"
        ));
    }
    if report.loss.counters.contains_key(DISK_USES_UNREAD) {
        say("who read from disks and wrote to them is not known: the kernel did not hand its counts out"
            .into());
    }
    if let Some(line) = parser_failures(report) {
        say(line);
    }
    if let Some(line) = unanswered_questions(report) {
        say(line);
    }
    dead_threads(report).into_iter().for_each(&mut say);
    if integrity.cut_off {
        say("CUT OFF: the recording was not ended, only broken off; what came before is whole"
            .into());
    }
    if integrity.meta_missing {
        say("DAMAGED: what was recorded, and how, is missing from the recording".into());
    }
    let parts = [
        (integrity.slices_damaged, "slices"),
        (integrity.slices_missing, "missing slices"),
        (integrity.tables_damaged, "tables of slices"),
        (integrity.rows_unreadable, "rows"),
        (integrity.bytes_skipped, "bytes"),
    ];
    let damaged: Vec<String> = (parts.into_iter())
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if !damaged.is_empty() {
        let damaged = damaged.join(", ");
        say(format!("DAMAGED: parts of the recording could not be read: {damaged}"));
    }
    if !integrity.tables_missing.is_empty() {
        let tables = integrity.tables_missing.join(", ");
        say(format!("DAMAGED: the recording has no {}", text::terminal(&tables)));
    }
    lines.extend(clock_step_lines(&integrity.clock_steps));
    lines.extend(suspension_lines(&integrity.suspensions));
    lines
}

/// Describes how the wall's clock was set: each step, or how many there were if they are many.
fn clock_step_lines(steps: &[ClockStep]) -> Vec<String> {
    if steps.len() > LISTED {
        let count = steps.len();
        return vec![format!(
            "the wall's clock was set {count} times meanwhile; no time here depends on it (each: -o wait.json)"
        )];
    }
    let describe = |step: &ClockStep| {
        let by = Nanos(step.step_ns.unsigned_abs());
        let which = if step.step_ns < 0 { "back" } else { "forward" };
        format!("the wall's clock was set {which} by {by} meanwhile; no time here depends on it")
    };
    steps.iter().map(describe).collect()
}

/// Describes when the machine was suspended: each time, or all as one if they are many.
fn suspension_lines(suspensions: &[Suspension]) -> Vec<String> {
    if suspensions.len() > LISTED {
        let time: Nanos = suspensions.iter().map(|suspension| suspension.suspended_ns).sum();
        let count = suspensions.len();
        return vec![format!(
            "the machine was suspended {count} times, {time}: that time counts nowhere (each: -o wait.json)"
        )];
    }
    let describe = |Suspension { suspended_ns, .. }: &Suspension| {
        format!("the machine was suspended for {suspended_ns} meanwhile: that time counts nowhere")
    };
    suspensions.iter().map(describe).collect()
}

/// Describes what is missing because a process or a file system did not answer, or nobody could ask.
fn unanswered_questions(report: &Report) -> Option<String> {
    let count = |name: &str| report.loss.counters.get(name).copied().unwrap_or(0);
    let counted =
        |name, what| Some(count(name)).filter(|n| *n > 0).map(|n| format!("{what} ({n})"));
    let rows = &report.loss.unanswered;
    let mut parts: Vec<String> =
        rows.iter().take(LISTED_UNANSWERED).map(describe_unanswered).collect();
    let more: u64 = rows.iter().skip(LISTED_UNANSWERED).map(|row| row.count).sum();
    if more > 0 {
        parts.push(format!("{more} more (each: -o wait.json)"));
    }
    if rows.is_empty() {
        // Recordings of earlier builds only count.
        parts.extend(counted("reader_files_unanswered", "files"));
        parts.extend(counted("reader_processes_unanswered", "processes"));
    }
    parts.extend(counted("reader_failed", "questions that nobody could ask"));
    parts.extend(counted(
        "reader_out_of_time",
        "questions that were not asked any more, since the time for the end was over",
    ));
    (!parts.is_empty()).then(|| {
        format!("not answered: {}: names or stacks of theirs are missing", parts.join(", "))
    })
}

fn describe_unanswered(row: &UnansweredNote) -> String {
    let UnansweredNote { kind, place, tgid, count } = row;
    let place = text::terminal(place);
    let process = tgid.map_or_else(|| "a process".to_owned(), |tgid| format!("process {tgid}"));
    match *kind {
        "file" if *count == 1 => format!("1 file on {place}"),
        "file" => format!("{count} files on {place}"),
        "directory" => format!("files in {place}"),
        "memory" => format!("the memory of {process}"),
        "mappings" => format!("what {process} has mapped"),
        "arguments" => format!("the arguments of {process}"),
        "root" => format!("files below the root directory of {process}"),
        "descriptor" => format!("an open file of {process}"),
        _ => format!("{count} more"),
    }
}

/// Describes which of offwake's own threads died, and what is missing for want of each.
fn dead_threads(report: &Report) -> Vec<String> {
    let count = |name: &str| report.loss.counters.get(name).copied().unwrap_or(0);
    let mut lines: Vec<String> = (PART_THREADS.iter())
        .filter(|part| count(part.counter) > 0)
        .map(|part| format!("offwake's thread {} died: {}", part.name, part.cost))
        .collect();
    // Recordings of earlier builds only count. What ends the run is told by how the window closed.
    let unnamed = count(OWN_THREADS_FAILED).saturating_sub(lines.len() as u64);
    if unnamed > 0 && report.meta.closed_by != ClosedBy::Failed.name() {
        lines.push(format!(
            "threads of offwake's own died: {unnamed}, and what they alone bring is missing"
        ));
    }
    lines
}

/// Describes what is missing because a parser process failed.
fn parser_failures(report: &Report) -> Option<String> {
    let counted = |words: &[(&str, &str)]| {
        let count = |name: &str| report.loss.counters.get(name).copied().filter(|count| *count > 0);
        let words = words.iter().filter_map(|(name, what)| Some((what, count(name)?)));
        words.map(|(what, count)| format!("{what} ({count})")).collect::<Vec<_>>().join(", ")
    };
    let costs = counted(&[
        ("parser_files_unread", "names of functions of files"),
        ("parser_stacks_lost", "frames of stacks"),
    ]);
    let why = counted(&[
        ("parser_died", "died"),
        ("parser_silent", "was silent for too long"),
        ("parser_nonsense", "said what can't be"),
        ("parser_not_started", "could not be started"),
        ("parser_out_of_time", "was not asked any more, since the time for the end was over"),
    ]);
    (!costs.is_empty())
        .then(|| format!("missing are {costs}: offwake's own process that reads programs {why}"))
}

#[cfg(test)]
mod tests {
    use offwake_recording::units::Timestamp;

    use super::*;

    fn suspension(milliseconds: u64) -> Suspension {
        let (after_ns, before_ns) = (Timestamp(0), Timestamp(1));
        Suspension { after_ns, before_ns, suspended_ns: Nanos(milliseconds * 1_000_000) }
    }

    fn clock_step(step_ns: i64) -> ClockStep {
        ClockStep { after_ns: Timestamp(0), before_ns: Timestamp(1), step_ns }
    }

    #[test]
    fn few_suspensions_have_a_line_each_and_many_have_one_with_their_sum() {
        assert_eq!(suspension_lines(&[suspension(1); LISTED]).len(), LISTED);
        let many = suspension_lines(&[suspension(2); 1_000]);
        assert_eq!(many.len(), 1);
        assert!(many[0].contains("1000 times, 2.00 s"), "{many:?}");
        assert!(suspension_lines(&[]).is_empty());
    }

    #[test]
    fn few_steps_of_the_clock_have_a_line_each_and_many_have_one() {
        let few = clock_step_lines(&[clock_step(-1_000_000), clock_step(1_000_000)]);
        assert_eq!(few.len(), 2);
        assert!(few[0].contains("back") && few[1].contains("forward"), "{few:?}");
        let many = clock_step_lines(&[clock_step(5); 1_000]);
        assert_eq!(many.len(), 1);
        assert!(many[0].contains("1000 times"), "{many:?}");
        assert!(clock_step_lines(&[]).is_empty());
    }
}
