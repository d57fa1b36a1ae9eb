//! The ranges that programs marked, on a terminal.

use std::io;

use super::{
    MarkerEntry, MarkersEntry, Report,
    styled_lines::{SummaryStyles, percent, write_line, write_styled},
};
use crate::text;

/// The most ranges shown; the rest is counted.
const ROWS: usize = 8;

/// Writes the ranges with the most time, and what is wrong with them. Nothing if nothing was
/// marked.
pub(super) fn write(
    report: &Report,
    palette: SummaryStyles,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let Some(markers) = &report.markers else { return Ok(()) };
    let ranges: Vec<_> = markers.totals.iter().filter(|one| one.ranges > 0).collect();
    if !ranges.is_empty() {
        writeln!(out)?;
        let columns = format!(
            "{:<28} {:<18} {:>7} {:>9} {:>9} {:>7} {:>8} {:>7}",
            "marked range", "process", "count", "time", "longest", "on-CPU", "runnable", "blocked"
        );
        write_styled(out, palette.strong, &columns)?;
        ranges.iter().take(ROWS).try_for_each(|range| write_line(out, &row(range)))?;
    }
    let rest = ranges.len().saturating_sub(ROWS) as u64 + markers.left_out;
    if rest > 0 {
        write_line(out, &format!("{rest} more: -o wait.json"))?;
    }
    describe_faults(markers).map_or(Ok(()), |line| write_styled(out, palette.warning, &line))
}

fn row(range: &MarkerEntry) -> String {
    let MarkerEntry { track, name, tgid, comm, ranges, ns, longest_ns, .. } = range;
    let share = |part| percent(part, *ns);
    format!(
        "{:<28} {:<18} {ranges:>7} {:>9} {:>9} {:>7} {:>8} {:>7}",
        text::cut_bytes(&text::terminal(&format!("{track}:{name}")), 25),
        text::cut_bytes(&format!("{} {tgid}", text::terminal(comm)), 15),
        ns.to_string(),
        longest_ns.to_string(),
        share(range.on_cpu_ns),
        share(range.runnable_ns),
        share(range.blocked_ns),
    )
}

/// Describes what makes ranges wrong, if anything does.
fn describe_faults(markers: &MarkersEntry) -> Option<String> {
    let faults = [
        (markers.lost, "markers were lost: ranges may be longer than the program's, or missing"),
        (markers.ends_without_begin, "ends of nothing were left out"),
        (markers.too_many_open, "ranges inside 64 others were left out"),
    ];
    let said: Vec<_> = (faults.into_iter())
        .filter(|&(count, _)| count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    (!said.is_empty()).then(|| said.join("; "))
}
