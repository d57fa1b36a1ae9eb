//! What the recording took, and how far stacks that were not walked can be believed, in a few lines.

use std::io;

use super::{MistakenThread, ProgramsEntry, Report, StackCountsEntry, summary::percent, text};

/// Writes them.
///
/// # Errors
///
/// Those of `out`.
pub(super) fn write(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    let own = report.meta.own_cpu_ns;
    let share = percent(own, report.window.duration_ns);
    writeln!(out, "\noffwake itself: {own} of CPU time, {share} of one CPU")?;
    if let Some(programs) = report.meta.programs {
        writeln!(out, "{}", in_kernel(programs))?;
    }
    if let Some(line) = recognised(report.meta.stack_counts, &report.meta.mistaken) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn in_kernel(programs: ProgramsEntry) -> String {
    let ProgramsEntry { measured_ns, scheduler_ns, interrupts_ns } = programs;
    format!(
        "in the kernel: {} of one CPU at switches and wakes, {} in interrupts, by the kernel's statistics in {measured_ns} of the time",
        percent(scheduler_ns, measured_ns),
        percent(interrupts_ns, measured_ns),
    )
}

/// None if no stack was recognised.
fn recognised(counts: StackCountsEntry, mistaken: &[MistakenThread]) -> Option<String> {
    let StackCountsEntry { recognised, walked, checked, disagreed, distrusted, .. } = counts;
    if recognised == 0 {
        return None;
    }
    let share = recognised as f64 / (recognised + walked) as f64 * 100.0;
    let agreed = checked.saturating_sub(disagreed);
    let checks = match agreed as f64 / checked as f64 {
        _ if checked == 0 => "none of them was walked to compare".to_owned(),
        _ if disagreed == 0 => format!("all {checked} that were walked to compare agreed"),
        share => {
            format!("{:.3}% of the {checked} that were walked to compare agreed", share * 100.0)
        }
    };
    let fallen_back = match distrusted {
        0 => String::new(),
        1 => {
            "; one kind of one thread's stacks was walked every time, as too few agreed".to_owned()
        }
        many => format!(
            "; {many} kinds of single threads' stacks were walked every time, as too few agreed"
        ),
    };
    Some(format!(
        "stacks: {share:.1}% of {} recognised without a walk; {checks}{fallen_back}{}",
        recognised + walked,
        whose(mistaken)
    ))
}

/// The first few of these threads by name.
fn whose(mistaken: &[MistakenThread]) -> String {
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
