//! The findings as Markdown: the first screen, and a table of the causes.
//!
//! Names come from other programs. They are inside of code, which no chat or forge interprets, and
//! can't end it.

use std::io;

use super::{Report, first_screen, printed_lines};
use crate::findings::time_of_threads;

/// Writes the findings as Markdown.
///
/// # Errors
///
/// Those of `out`.
pub fn write(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    writeln!(out, "### offwake: what holds it up\n")?;
    writeln!(out, "{}\n", code(&first_screen::headline(report)))?;
    if let Some(loss) = first_screen::relevant_loss(report) {
        writeln!(out, "**Incomplete:** {}\n", code(&loss))?;
    }
    if let Some(idle) = first_screen::mostly_idle(report) {
        writeln!(out, "{}\n", code(&idle))?;
    }
    let (shown, sleeps) = first_screen::split_findings(report);
    if shown.is_empty() {
        return writeln!(out, "Nothing holds it up.");
    }
    writeln!(out, "```text")?;
    for (n, finding) in shown.iter().enumerate() {
        for line in printed_lines::lines(n + 1, finding, first_screen::NARROW_LINES) {
            writeln!(out, "{}", line.text.replace('`', "\u{2019}"))?;
        }
    }
    writeln!(out, "```\n")?;
    writeln!(out, "| # | share | thread time | cause |\n|--:|--:|--:|---|")?;
    for (n, finding) in shown.iter().enumerate() {
        let share = printed_lines::percent(finding.cause.share);
        let same = match finding.same_cause_as {
            Some(number) => Some(format!("the same as of {number}")),
            None => printed_lines::describe_sum(finding),
        };
        let same = same.map(|same| format!(", {same}")).unwrap_or_default();
        let cause = code(&finding.cause.text) + &same;
        let window = report.window.duration_ns;
        let time = time_of_threads(finding.cause.ns, finding.threads, window);
        writeln!(out, "| {} | {share} | {time} | {cause} |", n + 1)?;
    }
    let rest = first_screen::describe_rest(report, &shown, &sleeps);
    if !rest.is_empty() {
        writeln!(out, "\n{}", code(&rest.join(" · ")))?;
    }
    Ok(())
}

/// Puts a text into code. A table's column ends at a bar, even there.
fn code(text: &str) -> String {
    format!("`{}`", text.replace('`', "\u{2019}").replace('|', "\u{2502}"))
}
