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
    printed_lines::{DetailPlace, LineLayout, PrintedLine, fit, lines, percent},
    styled_lines::{SummaryStyles, write_line, write_styled},
};
use crate::{
    blame::Reason,
    findings::{Finding, FindingKind, HopBox},
    text,
};

/// The most findings shown; the rest is counted.
pub(super) const SHOWN: usize = 6;
/// The most lines of the first finding, and of each one after it.
const FIRST_LINES: usize = 7;
const LATER_LINES: usize = 4;
/// The most lines of one that has the cause of a finding above.
const RETOLD_LINES: usize = 3;
/// The most columns.
const WIDTH: usize = 100;

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
        let most = most_lines(n, finding);
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

/// Returns how many lines there are of a finding at most: the first one, `n` is 0, has more.
pub(crate) fn most_lines(n: usize, finding: &Finding) -> usize {
    match finding.same_cause_as {
        _ if n == 0 => FIRST_LINES,
        Some(_) => RETOLD_LINES,
        None => LATER_LINES,
    }
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
        let otherwise = match activity.coroutines {
            // They may all wait for each other.
            Some(kind) => format!("no {} could go on: why is not seen", kind.name()),
            None => "its threads waited for something to do".to_owned(),
        };
        format!("mostly idle: active for {} of {window}, else {otherwise}", activity.active_ns)
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
pub(crate) fn split_findings(report: &Report) -> (Vec<&Finding>, Vec<&Finding>) {
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

/// `pid 21749 python3 · 4.00 s · on-CPU 0.3% of one CPU`
pub(crate) fn headline(report: &Report) -> String {
    let window = report.window.duration_ns;
    let on_cpu = match window {
        Nanos(0) => 0.0,
        Nanos(window) => report.findings.activity.on_cpu_ns.0 as f64 / window as f64,
    };
    let program = match report.processes.as_slice() {
        [_] => format!(" {}", target_program(report).unwrap_or_default()),
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

/// Names what the target runs, if it is one process: `python3 web2.py`.
pub(crate) fn target_program(report: &Report) -> Option<String> {
    let [process] = report.processes.as_slice() else { return None };
    let known = report.findings.target_program.clone();
    Some(known.unwrap_or_else(|| text::terminal(&process.comm)))
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
