//! What a screen shows first: what holds the target up, in at most 100 columns.
//!
//! ```text
//! pid 21749 python3 · 4.00 s · on-CPU 0.3% of one CPU
//! 1  70%  python3 21749 web2.py waits for postgres in checkout (web2.py:5)   169×, max 394 ms
//!         └ postgres 21753 "UPDATE waiting" waits for a lock of another postgres in ProcSleep
//!           └ python3 21745 cron_tx.py sleeps in call_payment_api (cron_tx.py:9)  ← cause, 58%
//! ```

use std::io;

use offwake_recording::units::Nanos;

use super::{
    Report, ThreadEntry,
    loss_line::describe_loss,
    styled_lines::{SummaryStyles, write_line, write_styled},
};
use crate::{
    blame::Reason,
    findings::{Finding, FindingKind, FindingLine, HopBox, SameCauseSum},
    text,
};

/// The most findings shown; the rest is counted.
const SHOWN: usize = 6;
/// The most lines of the first finding, and of each one after it.
const FIRST_LINES: usize = 7;
const LATER_LINES: usize = 4;
/// The most lines of one that has the cause of a finding above.
const RETOLD_LINES: usize = 3;
/// The most columns.
const WIDTH: usize = 100;

/// How the lines of findings are laid out.
#[derive(Clone, Copy)]
pub(crate) struct LineLayout {
    /// The most columns.
    pub(crate) width: usize,
    pub(crate) detail: DetailPlace,
}

/// Where a first line says how often and how long.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DetailPlace {
    /// At the end of the columns, below those of other findings.
    RightEdge,
    /// Behind the text: the eye loses its way where lines are long.
    BehindText,
}

/// A terminal's lines, and those of texts to be pasted.
pub(crate) const NARROW_LINES: LineLayout =
    LineLayout { width: WIDTH, detail: DetailPlace::RightEdge };
/// A target that was active for at most this part of the window had next to nothing to do.
const MOSTLY_IDLE: f64 = 0.05;
/// A loss that took at least this part of the target's time could change the answer.
const RELEVANT_LOSS: f64 = 0.01;

/// Writes the first screen.
pub(super) fn write(
    report: &Report,
    palette: SummaryStyles,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    write_styled(out, palette.strong, &headline(report))?;
    let loss = relevant_loss(report);
    if let Some(loss) = &loss {
        write_styled(out, palette.warning, &format!("INCOMPLETE: {loss}"))?;
    }
    if let Some(idle) = mostly_idle(report) {
        write_styled(out, palette.strong, &idle)?;
    }
    let (shown, sleeps) = split_findings(report);
    for (n, finding) in shown.iter().enumerate() {
        let most = match finding.same_cause_as {
            _ if n == 0 => FIRST_LINES,
            Some(_) => RETOLD_LINES,
            None => LATER_LINES,
        };
        for PrintedLine { line, text } in fit(lines(n + 1, finding, NARROW_LINES), most) {
            let style = match (line.is_cause, line.depth) {
                (true, _) => palette.waker,
                (false, 0) => palette.strong,
                _ => anstyle::Style::new(),
            };
            write_styled(out, style, &text)?;
        }
    }
    if shown.is_empty() {
        write_line(out, "nothing holds it up")?;
    }
    for warning in report.warnings() {
        write_styled(out, palette.warning, &format!("note: {warning}"))?;
    }
    let mut rest = describe_rest(report, &shown, &sleeps);
    rest.push("more: -v, -o wait.html".to_owned());
    for line in join_to_lines(&rest) {
        write_line(out, &line)?;
    }
    Ok(())
}

/// Says that the target had next to nothing to do, so that the shares of its findings are parts of
/// next to nothing: `mostly idle: active for 103 ms of 3.02 s`.
pub(crate) fn mostly_idle(report: &Report) -> Option<String> {
    let activity = &report.findings.activity;
    let window = report.window.duration_ns;
    let is_little = activity.active_ns.0 as f64 <= window.0 as f64 * MOSTLY_IDLE;
    // A stuck thread is not idle, however short it has been so.
    let is_stuck = report.findings.list.iter().any(|finding| {
        matches!(
            finding.kind,
            FindingKind::Deadlock | FindingKind::StillWaiting | FindingKind::Throttled
        )
    });
    (is_little && activity.idle_ns > activity.active_ns && !is_stuck).then(|| {
        format!(
            "mostly idle: active for {} of {window}, else its threads waited for something to do",
            activity.active_ns
        )
    })
}

/// Joins parts with dots, in as many lines as they need.
fn join_to_lines(parts: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 3 + part.chars().count() <= WIDTH => {
                line.push_str(" · ");
                line.push_str(part);
            }
            _ => lines.push(part.clone()),
        }
    }
    lines
}

/// Describes what has no row of its own: smaller findings, sleeps, idle threads, losses.
pub(super) fn describe_rest(
    report: &Report,
    shown: &[&Finding],
    sleeps: &[&Finding],
) -> Vec<String> {
    let activity = &report.findings.activity;
    let listed = report.findings.list.len().saturating_sub(shown.len() + sleeps.len()) as u64;
    let mut rest = Vec::new();
    if relevant_loss(report).is_none() {
        rest.push("no relevant loss".to_owned());
    }
    if activity.active_ns > Nanos(0) {
        let threads = match activity.active_threads {
            0 | 1 => String::new(),
            many => format!(" over {many} threads"),
        };
        rest.push(format!("% of {} of active thread time{threads}", activity.active_ns));
    }
    match activity.idle_threads {
        0 => {}
        1 => rest.push("1 thread idle".to_owned()),
        many => rest.push(format!("{many} threads idle")),
    }
    if report.filter.left_out_count > 0 {
        rest.push(format!("{} waits left out by the filter", report.filter.left_out_count));
    }
    match listed + activity.findings_left_out {
        0 => {}
        1 => rest.push("1 smaller finding".to_owned()),
        more => rest.push(format!("{more} smaller findings")),
    }
    if let Some(first) = sleeps.first() {
        let share: f64 = sleeps.iter().map(|finding| finding.share).sum();
        let cause_of = (first.same_cause_as).map(|number| format!(", the cause of {number}"));
        let cause_of = cause_of.unwrap_or_default();
        rest.push(format!("sleeps: {} ({}{cause_of})", percent(share), first.cause.text));
    }
    rest
}

/// Returns the findings that have rows of their own, and the deliberate sleeps that share the last
/// line.
pub(super) fn split_findings(report: &Report) -> (Vec<&Finding>, Vec<&Finding>) {
    let list = &report.findings.list;
    let (sleeps, others): (Vec<_>, Vec<_>) =
        list.iter().partition(|finding| finding.kind == FindingKind::Sleep);
    let mut shown: Vec<_> = others.into_iter().take(SHOWN).collect();
    // A program that does little else than to sleep is held up by that.
    let told: f64 = shown.iter().map(|finding| finding.share).sum();
    let mut rest = sleeps;
    let is_one_program = report.processes.len() == 1;
    if is_one_program
        && shown.len() < SHOWN
        && rest.first().is_some_and(|sleep| sleep.share > told / 4.0)
    {
        shown.push(rest.remove(0));
    }
    (shown, rest)
}

/// Returns the number that a box of a picture has as one of the `listed` findings with rows of their own. A number
/// that is in no list would say nothing.
pub(super) fn number_of_box(hop: &HopBox, listed: usize) -> String {
    let number = hop.finding.filter(|&number| number <= listed);
    number.map(|number| format!("{number}: ")).unwrap_or_default()
}

/// Returns the findings in one line each: `70%  python3 21749 web2.py … ← python3 21745 cron_tx.py …`.
pub(crate) fn finding_lines(report: &Report) -> Vec<String> {
    let (shown, _) = split_findings(report);
    let idle = mostly_idle(report).into_iter();
    let findings = (shown.iter()).filter_map(|finding| {
        let first = finding.lines.first()?;
        let cause = match finding.lines.len() {
            1 if is_of_several(finding) => mark(first, finding),
            1 => String::new(),
            // Its cause is all of it.
            _ if finding.kind == FindingKind::Deadlock => String::new(),
            _ => match finding.same_cause_as {
                Some(number) => format!("  ← same cause as {number}: {}", finding.cause.text),
                None => format!("  ← {}{}", finding.cause.text, sum_in_parentheses(finding)),
            },
        };
        let still = open_word(finding).map_or(String::new(), |word| format!("{word}  "));
        let text = first.whole_text();
        Some(format!("{:>5}  {still}{text}{cause}", percent(finding.share)))
    });
    idle.chain(findings).collect()
}

/// `pid 21749 python3 · 4.00 s · on-CPU 0.3% of one CPU`
pub(crate) fn headline(report: &Report) -> String {
    let window = report.window.duration_ns;
    let on_cpu = match window {
        Nanos(0) => 0.0,
        Nanos(window) => report.findings.activity.on_cpu_ns.0 as f64 / window as f64,
    };
    let program = match report.processes.as_slice() {
        [one] => format!(" {}", text::terminal(&one.comm)),
        many => {
            let passing = match passing_processes(report) {
                0 => String::new(),
                some => format!(", {some} not throughout"),
            };
            format!(" ({} processes{passing}, {} threads)", many.len(), report.threads.len())
        }
    };
    let target = text::terminal(&report.meta.target);
    let mut line =
        format!("{target}{program} · {window} · on-CPU {:.1}% of one CPU", on_cpu * 100.0);
    let (offwake, host) = (&report.meta.offwake, &report.meta.host);
    let made = format!(" · offwake {} on {}", text::terminal(offwake), text::terminal(host));
    // Half of it would say nothing, and it is with the details as well.
    if line.chars().count() + made.chars().count() <= WIDTH {
        line.push_str(&made);
    }
    line
}

/// Returns how many processes were forked or ended inside of the window, where the target in words
/// counts those that were there when it opened: `pid 7 and 2 children`. Otherwise 0.
pub(crate) fn passing_processes(report: &Report) -> u64 {
    if !report.meta.target.contains(" child") {
        return 0;
    }
    let window = report.window.duration_ns;
    let is_passing =
        |thread: &&ThreadEntry| thread.tid.0 == thread.tgid.0 && thread.ledger.wall_ns < window;
    report.threads.iter().filter(is_passing).count() as u64
}

/// The words in front of waits that had not ended.
fn open_word(finding: &Finding) -> Option<&'static str> {
    match finding.kind {
        FindingKind::Deadlock => Some("DEADLOCK"),
        _ if finding.still_waiting => Some("STILL WAITING"),
        _ => None,
    }
}

/// A line of a finding as it is printed, and the one that it is of.
pub(crate) struct PrintedLine<'f> {
    pub(crate) line: &'f FindingLine,
    pub(crate) text: String,
}

/// The lines of a finding, the `number`th of its list, as they are printed: a function for which
/// there is no room has a line of its own, and so have the last words of a text that is too long.
pub(crate) fn lines(number: usize, finding: &Finding, layout: LineLayout) -> Vec<PrintedLine<'_>> {
    let mut lines = Vec::new();
    for line in &finding.lines {
        let before = match (line.depth, open_word(finding)) {
            (0, None) => format!("{number:<2}{:>5}  ", percent(line.share)),
            (0, Some(word)) => {
                format!("{number:<2}{:>5}  {word} {}  ", percent(line.share), line.detail)
            }
            (depth, _) => format!("{:indent$}└ ", "", indent = 7 + 2 * usize::from(depth)),
        };
        let mut behind = mark(line, finding);
        let indent = before.chars().count();
        let room = layout.width.saturating_sub(indent);
        let with_detail =
            |text: &str, room| with_detail(text, line, finding, (room, layout.detail));
        let mut push = |text: String| lines.push(PrintedLine { line, text });
        let whole = line.whole_text();
        let [taken, marked, detail] =
            [&whole, &behind, &line.detail].map(|text| text.chars().count());
        // How often and how long says more of a first line than the mark, unless that is about others.
        if line.depth == 0 && taken + marked + 3 + detail > room && !is_of_several(finding) {
            behind = String::new();
        }
        if whole.chars().count() + behind.chars().count() <= room {
            push(format!("{before}{}", with_detail(&(whole + &behind), room)));
            continue;
        }
        let (first, second) = match &line.function {
            Some(function) => (text::cut_chars(&line.text, room), format!("in {function}")),
            None => text::split_at_space(&whole, room),
        };
        let has_room = first.chars().count() + 3 + detail <= room;
        push(format!("{before}{}", with_detail(&first, room)));
        let indent = indent.min(11 + 2 * usize::from(line.depth));
        let room = layout.width.saturating_sub(indent);
        let left = room.saturating_sub(behind.chars().count());
        let mut second = format!("{}{behind}", text::cut_chars(&second, left));
        second.drain(..second.len() - second.trim_start().len());
        if !has_room {
            second = with_detail(&second, room);
        }
        push(format!("{:indent$}{second}", ""));
    }
    lines
}

/// Keeps `most` lines of a finding. The cause stays: hops before it are left out instead, and
/// counted. A first line and a cause of two lines each need one line more.
fn fit(mut lines: Vec<PrintedLine<'_>>, most: usize) -> Vec<PrintedLine<'_>> {
    let is_cause = |printed: &PrintedLine<'_>| printed.line.is_cause && printed.line.depth > 0;
    let cause = lines.iter().position(is_cause).unwrap_or(0);
    let end = cause + lines.iter().filter(|&printed| is_cause(printed)).count();
    if end <= most {
        lines.truncate(most);
        return lines;
    }
    lines.truncate(end);
    let first_hop = lines.iter().position(|printed| printed.line.depth > 0).unwrap_or(cause);
    // A line says how many hops are left out.
    let room = most.saturating_sub(end - cause + 1);
    let is_second_of_its_hop = |lines: &[PrintedLine<'_>], at: usize| {
        at > 0 && lines.get(at - 1).is_some_and(|one| std::ptr::eq(one.line, lines[at].line))
    };
    let mut from = room.clamp(first_hop, cause);
    while from > first_hop && from < cause && is_second_of_its_hop(&lines, from) {
        from -= 1;
    }
    let hops = (from..cause).filter(|&at| !is_second_of_its_hop(&lines, at)).count();
    if cause - from > 1 {
        let line = lines[from].line;
        let indent = 7 + 2 * usize::from(line.depth);
        let text = match hops {
            1 => format!("{:indent$}└ … 1 more hop", ""),
            _ => format!("{:indent$}└ … {hops} more hops", ""),
        };
        lines.splice(from..cause, [PrintedLine { line, text }]);
    }
    lines
}

/// Puts how often and how long behind a first line, if there is room for it.
fn with_detail(
    text: &str,
    line: &FindingLine,
    finding: &Finding,
    (room, place): (usize, DetailPlace),
) -> String {
    let (taken, detail) = (text.chars().count(), line.detail.chars().count());
    if line.depth > 0 || finding.still_waiting || taken + 3 + detail > room {
        return text.to_owned();
    }
    let gap = match place {
        _ if detail == 0 => 0,
        DetailPlace::RightEdge => room - taken - detail,
        DetailPlace::BehindText => 3,
    };
    format!("{text}{:gap$}{}", "", line.detail)
}

/// The share of a line that is a part of its finding alone, and the mark of the cause.
pub(crate) fn mark(line: &FindingLine, finding: &Finding) -> String {
    let is_all = (line.share - finding.share).abs() < 0.01;
    let sum = sum_in_parentheses(finding);
    match (line.is_cause, line.depth) {
        (true, 0) => match finding.same_cause_as {
            Some(number) => format!("  ← the cause of {number}"),
            None if !sum.is_empty() => format!("  ← cause{sum}"),
            // Who waits for a disk, say, is the end of its chain.
            None if finding.kind == FindingKind::Wait && finding.is_cause_known() => {
                "  ← cause".to_owned()
            }
            None => String::new(),
        },
        (false, 0) => String::new(),
        (true, _) if finding.still_waiting => match finding.same_cause_as {
            Some(number) => format!("  ← same cause as {number}"),
            None => format!("  ← cause{sum}"),
        },
        (true, _) if !finding.is_cause_known() => "  ← the cause is not known".to_owned(),
        (true, _) => match finding.same_cause_as {
            Some(number) => format!("  ← same cause as {number}, {}", percent(line.share)),
            None => format!("  ← cause, {}{sum}", percent(line.share)),
        },
        (false, _) if is_all || line.share == 0.0 => String::new(),
        (false, _) => format!("  {}", percent(line.share)),
    }
}

/// Returns whether a finding has its cause together with others.
fn is_of_several(finding: &Finding) -> bool {
    finding.same_cause_as.is_some() || finding.with_same_cause.is_some()
}

/// What a finding and others with its cause add up to: `74% with 2 and 4`. Others that no screen shows are
/// counted: `74% with 2 and 3 smaller`. None where they add less than is shown: `98% with 2` is no news of a
/// cause with 98%.
pub(super) fn describe_sum(finding: &Finding) -> Option<String> {
    let sum = finding.with_same_cause.as_ref()?;
    let share = percent(sum.share);
    (share != percent(finding.cause.share)).then(|| format!("{share} with {}", list_others(sum)))
}

/// Puts [`describe_sum`] behind a cause: ` (74% with 2 and 4)`.
fn sum_in_parentheses(finding: &Finding) -> String {
    describe_sum(finding).map(|sum| format!(" ({sum})")).unwrap_or_default()
}

/// `2`, `2 and 4`, `2, 4 and 3 smaller`
fn list_others(sum: &SameCauseSum) -> String {
    let mut names: Vec<String> =
        sum.findings.iter().filter(|&&number| number <= SHOWN).map(usize::to_string).collect();
    match sum.findings.len() - names.len() {
        0 => {}
        smaller => names.push(format!("{smaller} smaller")),
    }
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

/// `70%`, and `0.5%` below one per cent.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 0.95 { format!("{percent:.1}%") } else { format!("{percent:.0}%") }
}

/// Describes what was lost, if it could change the answer.
pub(crate) fn relevant_loss(report: &Report) -> Option<String> {
    let wall: Nanos = report.processes.iter().map(|process| process.ledger.wall_ns).sum();
    let lost: Nanos = (report.processes.iter())
        .filter_map(|process| process.ledger.unattributed.get(Reason::Lost.name()).copied())
        .sum();
    let is_relevant = lost.0 as f64 >= wall.0 as f64 * RELEVANT_LOSS && lost > Nanos(0);
    let loss = describe_loss(report).filter(|_| is_relevant)?;
    let share = percent(lost.0 as f64 / wall.0.max(1) as f64);
    Some(format!("{share} of the target's time is not known: lost {loss}"))
}

#[cfg(test)]
mod tests {
    use super::{FindingLine, PrintedLine, fit};

    /// Prints hops of as many lines as given, the last of which is the cause, and what is kept.
    fn kept(lines_of_hops: &[usize], most: usize) -> Vec<String> {
        let last = lines_of_hops.len() - 1;
        let hops: Vec<_> = (0_u16..)
            .zip(lines_of_hops)
            .map(|(depth, _)| FindingLine {
                depth,
                text: String::new(),
                function: None,
                detail: String::new(),
                share: 0.5,
                is_cause: usize::from(depth) == last,
            })
            .collect();
        let printed = (hops.iter().zip(lines_of_hops))
            .flat_map(|(line, &count)| {
                (0..count).map(move |n| PrintedLine { line, text: format!("{}.{n}", line.depth) })
            })
            .collect();
        fit(printed, most).into_iter().map(|printed| printed.text.trim().to_owned()).collect()
    }

    #[test]
    fn the_cause_is_always_printed() {
        assert_eq!(kept(&[1, 1, 1], 4), ["0.0", "1.0", "2.0"]);
        assert_eq!(kept(&[1, 1, 1, 1, 1], 4), ["0.0", "1.0", "└ … 2 more hops", "4.0"]);
        assert_eq!(kept(&[2, 2, 1], 4), ["0.0", "0.1", "└ … 1 more hop", "2.0"]);
        assert_eq!(kept(&[1, 2, 2], 4), ["0.0", "└ … 1 more hop", "2.0", "2.1"]);
        assert_eq!(kept(&[2, 1, 2], 4), ["0.0", "0.1", "1.0", "2.0", "2.1"]);
        assert_eq!(kept(&[2, 2, 2, 2], 4), ["0.0", "0.1", "└ … 2 more hops", "3.0", "3.1"]);
        assert_eq!(kept(&[1, 1, 2, 1, 1, 1], 6).last().map(String::as_str), Some("5.0"));
    }
}
