//! The integrity of the recording itself: what is wrong with its file, and what the clocks did
//! meanwhile.

use offwake_recording::{
    ClosedBy, Recording,
    units::{Nanos, Timestamp},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Report, text};

/// What is wrong with the file, and what the machine's clocks went through.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Soundness")]
pub struct RecordingIntegrity {
    /// The file has no end.
    pub cut_off: bool,
    /// What was recorded and how is not in it.
    pub meta_missing: bool,
    /// Its schema was broken, and made up for.
    pub schema_missing: bool,
    /// Bytes in which nothing was found.
    pub bytes_skipped: u64,
    /// Slices that could not be read.
    pub slices_damaged: u64,
    /// Slices that are not there.
    pub slices_missing: u64,
    /// Tables of single slices that could not be read.
    pub tables_damaged: u64,
    /// Tables that are not there at all.
    pub tables_missing: Vec<&'static str>,
    /// Rows that could not be read.
    pub rows_unreadable: u64,
    /// Times at which the wall's clock was set.
    pub clock_steps: Vec<ClockStep>,
    /// Times at which the machine was suspended.
    pub suspensions: Vec<Suspension>,
}

/// The wall's clock was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ClockStep {
    /// Not before this moment.
    pub after_ns: Timestamp,
    /// Not after this one.
    pub before_ns: Timestamp,
    /// By how much it was set forward; negative if backward.
    pub step_ns: i64,
}

/// The machine was suspended. `CLOCK_MONOTONIC` stands still meanwhile: the time is in no ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Suspension {
    /// Not before this moment.
    pub after_ns: Timestamp,
    /// Not after this one.
    pub before_ns: Timestamp,
    /// For how long.
    pub suspended_ns: Nanos,
}

impl RecordingIntegrity {
    pub(super) fn from_recording(recording: &Recording) -> Self {
        let damage = &recording.damage;
        let mut soundness = Self {
            cut_off: damage.cut_off,
            meta_missing: damage.meta_missing,
            schema_missing: damage.schema_missing,
            bytes_skipped: damage.bytes_skipped,
            slices_damaged: damage.slices_damaged,
            slices_missing: damage.slices_missing,
            tables_damaged: damage.tables_damaged,
            tables_missing: damage.tables_missing.iter().copied().collect(),
            rows_unreadable: damage.rows_unreadable,
            ..Self::default()
        };
        for (earlier, later) in recording.clocks.iter().zip(recording.clocks.iter().skip(1)) {
            let (after_ns, before_ns) = (earlier.monotonic, later.monotonic);
            let step_ns = later.stepped_since(earlier);
            if step_ns != 0 {
                soundness.clock_steps.push(ClockStep { after_ns, before_ns, step_ns });
            }
            let suspended_ns = later.suspended_since(earlier);
            if suspended_ns != Nanos(0) {
                soundness.suspensions.push(Suspension { after_ns, before_ns, suspended_ns });
            }
        }
        soundness
    }
}

impl Report {
    /// Returns what a reader must know before believing the rest, one line each; none if all is
    /// well.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        warnings(self)
    }
}

fn warnings(report: &Report) -> Vec<String> {
    let soundness = &report.recording;
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
    let limited = report.filter.limited_count;
    if limited > 0 {
        let time = report.filter.limited_ns;
        say(format!(
            "blame has more parts than can be shown one by one: {limited} small ones, {time}, are `report_limit` in waits and pictures (it is less of one process, of one cgroup)"
        ));
    }
    if let Some(line) = parser_failures(report) {
        say(line);
    }
    if soundness.cut_off {
        say("CUT OFF: the recording was not ended, only broken off; what came before is whole"
            .into());
    }
    if soundness.meta_missing {
        say("DAMAGED: what was recorded, and how, is missing from the recording".into());
    }
    let parts = [
        (soundness.slices_damaged, "slices"),
        (soundness.slices_missing, "missing slices"),
        (soundness.tables_damaged, "tables of slices"),
        (soundness.rows_unreadable, "rows"),
        (soundness.bytes_skipped, "bytes"),
    ];
    let damaged: Vec<String> = (parts.into_iter())
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if !damaged.is_empty() {
        let damaged = damaged.join(", ");
        say(format!("DAMAGED: parts of the recording could not be read: {damaged}"));
    }
    if !soundness.tables_missing.is_empty() {
        let tables = soundness.tables_missing.join(", ");
        say(format!("DAMAGED: the recording has no {}", text::terminal(&tables)));
    }
    for ClockStep { step_ns, .. } in &soundness.clock_steps {
        let by = Nanos(step_ns.unsigned_abs());
        let which = if *step_ns < 0 { "back" } else { "forward" };
        say(format!(
            "the wall's clock was set {which} by {by} meanwhile; no time here depends on it"
        ));
    }
    for Suspension { suspended_ns, .. } in &soundness.suspensions {
        say(format!(
            "the machine was suspended for {suspended_ns} meanwhile: that time counts nowhere"
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
    ]);
    (!costs.is_empty())
        .then(|| format!("missing are {costs}: offwake's own process that reads programs {why}"))
}
