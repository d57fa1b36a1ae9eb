//! The summary's lines about what recording cost, and how far recognised stacks can be trusted.

use std::io;

use super::{
    HalfCountsEntry, MistakenThread, ProgramsEntry, Report, StackCountsEntry,
    overhead::describe_cost, styled_lines::percent,
};
use crate::text;

/// Writes these lines of the summary.
///
/// # Errors
///
/// Those of `out`.
pub(super) fn write(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    let own = report.meta.own_cpu_ns;
    let share = percent(own, report.window.duration_ns);
    writeln!(out, "\noffwake itself: {own} of CPU time, {share} of one CPU")?;
    if let Some(programs) = report.meta.programs {
        writeln!(out, "{}", kernel_cost_line(programs))?;
    }
    if let Some(overhead) = &report.meta.overhead {
        writeln!(out, "{}", describe_cost(overhead))?;
    }
    for line in stack_cache_lines(report.meta.stack_counts, &report.meta.mistaken) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn kernel_cost_line(programs: ProgramsEntry) -> String {
    let ProgramsEntry { measured_ns, scheduler_ns, interrupts_ns } = programs;
    format!(
        "in the kernel: {} of one CPU at switches and wakes, {} in interrupts, by the kernel's statistics in {measured_ns} of the time",
        percent(scheduler_ns, measured_ns),
        percent(interrupts_ns, measured_ns),
    )
}

/// Returns a line for each half of which any stack was recognised.
fn stack_cache_lines(counts: StackCountsEntry, mistaken: &[MistakenThread]) -> Vec<String> {
    let StackCountsEntry { user, kernel, distrusted, .. } = counts;
    let halves = [half_line("user", user, "copied"), half_line("kernel", kernel, "walked")];
    let fallen_back = match distrusted {
        0 => None,
        1 => Some("one kind of one thread's stacks was".to_owned()),
        many => Some(format!("{many} kinds of single threads' stacks were")),
    };
    let fallen_back = fallen_back.map(|whichever| {
        format!("{whichever} taken every time, as too few agreed{}", list_threads(mistaken))
    });
    halves.into_iter().chain([fallen_back]).flatten().collect()
}

/// Describes how many stacks of one half were recognised; none if no stack was.
fn half_line(half: &str, counts: HalfCountsEntry, taken_by: &str) -> Option<String> {
    let HalfCountsEntry { recognised, taken, checked, disagreed, .. } = counts;
    if recognised == 0 {
        return None;
    }
    let all = recognised.saturating_add(taken);
    let share = recognised as f64 / all as f64 * 100.0;
    let checks = describe_checks(checked, disagreed, taken_by);
    let HalfCountsEntry { by_registers, by_registers_checked, by_registers_disagreed, .. } = counts;
    let by_registers = match by_registers {
        0 => String::new(),
        _ => format!(
            "; {:.1}% by registers alone: {}",
            by_registers as f64 / all as f64 * 100.0,
            describe_checks(by_registers_checked, by_registers_disagreed, taken_by)
        ),
    };
    Some(format!(
        "{half} stacks: {share:.1}% of {all} recognised without being {taken_by}: {checks}{by_registers}"
    ))
}

/// Describes how checks of stacks came out that were recognised.
fn describe_checks(checked: u64, disagreed: u64, taken_by: &str) -> String {
    let agreed = checked.saturating_sub(disagreed);
    match agreed as f64 / checked as f64 {
        _ if checked == 0 => format!("none of them was {taken_by} to compare"),
        _ if disagreed == 0 => format!("all {checked} that were {taken_by} to compare agreed"),
        share => {
            format!("{:.3}% of the {checked} that were {taken_by} to compare agreed", share * 100.0)
        }
    }
}

/// Lists the first few of these threads by name.
fn list_threads(mistaken: &[MistakenThread]) -> String {
    const NAMED: usize = 3;
    let named = mistaken.iter().take(NAMED);
    let names: Vec<_> =
        named.map(|thread| format!("{} ({})", text::terminal(&thread.comm), thread.tid)).collect();
    let names = names.join(", ");
    match mistaken.len().saturating_sub(NAMED) {
        _ if mistaken.is_empty() => String::new(),
        0 => format!(": {names}"),
        more => format!(": {names} and {more} more"),
    }
}
