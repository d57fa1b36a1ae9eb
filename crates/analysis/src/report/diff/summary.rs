//! What became longer and shorter, for a terminal.

use std::io;

use super::{Change, Diff, RatePer, Rates, changes};
use crate::{report::loss_line::loss_line, text};

/// Lines shown of those that became longer, and of those that became shorter.
const SHOWN: usize = 10;
const WIDTH: usize = 100;

/// Writes the summary.
///
/// # Errors
///
/// Those of `out`.
pub fn write(diff: &Diff<'_>, out: &mut dyn io::Write) -> io::Result<()> {
    for (side, report) in diff.sides() {
        let meta = &report.meta;
        let (target, host) = (text::terminal(&meta.target), text::terminal(&meta.host));
        let window = report.window.duration_ns;
        write_line(out, &format!("{side:<7} {target}, {window} on {host}"))?;
        write_line(out, &format!("{:<7} {}", "", loss_line(report)))?;
        for warning in report.warnings() {
            write_line(out, &format!("{:<7} {warning}", ""))?;
        }
    }
    let all = diff.total_rates();
    let Rates { before, after } = all;
    match diff.per {
        RatePer::Second => writeln!(
            out,
            "\nwaiting in each second of the window: {before} before, {after} after ({})",
            all.change()
        )?,
        RatePer::Request { before: fast, after: slow } => writeln!(
            out,
            "\nwaiting for each request: {before} ({fast} requests), {after} ({slow} requests), {}",
            all.change()
        )?,
    }
    let changes = changes(diff);
    let longer: Vec<_> = changes.iter().filter(|change| change.difference() > 0).collect();
    let shorter: Vec<_> = changes.iter().rev().filter(|change| change.difference() < 0).collect();
    let width = match diff.per {
        RatePer::Second => "+99.9 ms/s".len() + 2,
        RatePer::Request { .. } => "+99.9 ms/request".len(),
    };
    write_table(out, "longer", &longer, width)?;
    write_table(out, "shorter", &shorter, width)
}

fn write_table(
    out: &mut dyn io::Write,
    title: &str,
    changes: &[&Change<'_>],
    width: usize,
) -> io::Result<()> {
    if changes.is_empty() {
        return writeln!(out, "\nnothing is {title}");
    }
    writeln!(out, "\n{:>width$} {:>width$} {:>width$}  {title}", "before", "after", "change")?;
    for change in changes.iter().take(SHOWN) {
        let Rates { before, after } = change.rates;
        let difference = change.rates.change();
        write_line(
            out,
            &format!(
                "{before:>width$} {after:>width$} {difference:>width$}  {}",
                change.describe()
            ),
        )?;
    }
    match changes.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more: -o diff.folded"),
    }
}

fn write_line(out: &mut dyn io::Write, words: &str) -> io::Result<()> {
    writeln!(out, "{}", text::cut_chars(words, WIDTH))
}
