//! The report for a terminal: one screen, at most 100 columns.

use std::{cmp::Reverse, collections::BTreeSet, io};

use anstyle::Style;
use offwake_recording::units::Nanos;

use super::{
    ContainerEntry, LedgerEntry, Report, cost, first_screen,
    loss_line::{describe_loss, loss_line},
    marker_lines,
    styled_lines::{SummaryStyles, percent, write_line, write_styled},
    wait_groups,
};
use crate::text;

/// The most processes and threads shown; the rest is counted.
const ROWS: usize = 16;
/// The most threads shown of one process.
const THREADS: usize = 4;
/// The most containers shown.
const CONTAINERS: usize = 8;
/// The most processes shown of one container.
const CONTAINER_PROCESSES: usize = 3;

/// Writes the summary.
///
/// # Errors
///
/// Those of `out`.
pub fn write(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    first_screen::write(report, SummaryStyles::default(), out)
}

/// Writes the summary with a terminal's colours, whatever `out` is.
///
/// # Errors
///
/// Those of `out`.
pub fn write_in_colors(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    first_screen::write(report, SummaryStyles::terminal(), out)
}

/// Writes everything that the first screen leaves out: the ledgers, the parts of the blocked time,
/// the waits of each thread and what the recording cost.
///
/// # Errors
///
/// Those of `out`.
pub fn write_details(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    write_details_with(report, SummaryStyles::default(), out)
}

/// Writes the same with a terminal's colours.
///
/// # Errors
///
/// Those of `out`.
pub fn write_details_in_colors(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    write_details_with(report, SummaryStyles::terminal(), out)
}

fn write_details_with(
    report: &Report,
    palette: SummaryStyles,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    write_header(report, palette, out)?;
    write_ledgers(report, palette, out)?;
    write_containers(report, palette, out)?;
    write_parts(report, out)?;
    marker_lines::write(report, palette, out)?;
    wait_groups::write(report, palette, out)?;
    cost::write(report, out)
}

fn write_header(
    report: &Report,
    palette: SummaryStyles,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let meta = &report.meta;
    let scope = if meta.scope == "target" { "; only the target's waits were recorded" } else { "" };
    write_styled(
        out,
        palette.strong,
        &format!(
            "offwake {}: {}, {} on {} (Linux {}){scope}",
            text::terminal(&meta.offwake),
            text::terminal(&meta.target),
            report.window.duration_ns,
            text::terminal(&meta.host),
            text::terminal(&meta.kernel),
        ),
    )?;
    let style = if describe_loss(report).is_some() { palette.warning } else { Style::new() };
    write_styled(out, style, &loss_line(report))?;
    for warning in report.warnings() {
        write_styled(out, palette.warning, &warning)?;
    }
    if let Some(note) = report.limit_note() {
        write_line(out, &note)?;
    }
    let filter = &report.filter;
    if filter.left_out_count > 0 {
        let (count, time) = (filter.left_out_count, filter.left_out_ns);
        write_line(out, &format!("the filter left {count} waits, {time}, out of the list below"))?;
    }
    Ok(())
}

fn write_ledgers(
    report: &Report,
    palette: SummaryStyles,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    writeln!(out)?;
    let columns = format!(
        "{:<36} {:>9} {:>7} {:>9} {:>11} {:>9} {:>12}",
        "process, thread", "wall", "on-CPU", "runnable", "attributed", "external", "unattributed"
    );
    write_styled(out, palette.strong, &columns)?;
    let mut processes: Vec<_> = report.processes.iter().collect();
    processes.sort_by_key(|process| Reverse(busy_time(&process.ledger)));
    let (mut rows, mut shown_threads, mut shown_processes) = (0, 0, 0);
    for process in processes {
        if rows >= ROWS {
            break;
        }
        rows += 1;
        shown_processes += 1;
        let threads = match process.threads {
            1 => String::new(),
            many => format!(" ({many} threads)"),
        };
        let name = text::terminal(&process.comm);
        write_row(out, &format!("{name} {}{threads}", process.tgid), &process.ledger)?;
        if process.threads == 1 {
            shown_threads += 1;
            continue;
        }
        let mut threads: Vec<_> =
            report.threads.iter().filter(|thread| thread.tgid == process.tgid).collect();
        threads.sort_by_key(|thread| Reverse(busy_time(&thread.ledger)));
        for thread in threads.into_iter().take(THREADS.min(ROWS.saturating_sub(rows))) {
            rows += 1;
            shown_threads += 1;
            let name = text::terminal(&thread.comm);
            write_row(out, &format!("  {name} {}", thread.tid), &thread.ledger)?;
        }
    }
    let more_threads = report.threads.len().saturating_sub(shown_threads);
    let more_processes = report.processes.len().saturating_sub(shown_processes);
    if more_threads > 0 {
        writeln!(
            out,
            "  and {more_threads} more threads, {more_processes} more processes: -o wait.html"
        )?;
    }
    Ok(())
}

/// Writes the containers of the target and of the threads that it waited for, each with its
/// processes, by their ids inside and outside.
fn write_containers(
    report: &Report,
    palette: SummaryStyles,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let blamed = report.waits.iter().flat_map(|wait| &wait.blame).flat_map(|part| &part.chain);
    let met: BTreeSet<&str> = (report.processes.iter())
        .filter_map(|process| process.container.as_deref())
        .chain(blamed.filter_map(|hop| hop.thread.container.as_deref()))
        .collect();
    let met: Vec<_> =
        report.containers.iter().filter(|one| met.contains(one.label.as_str())).collect();
    if met.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    write_styled(out, palette.strong, "containers")?;
    for container in met.iter().take(CONTAINERS) {
        write_line(out, &describe_container(container))?;
    }
    if met.len() > CONTAINERS {
        writeln!(out, "  and {} more: -o wait.json", met.len() - CONTAINERS)?;
    }
    Ok(())
}

/// `  web (nginx:1.27, 4f1c0b5a9d3e): nginx 812 (1 inside), nginx 830 (17 inside), 2 more`
fn describe_container(container: &ContainerEntry) -> String {
    let id = container.id.get(..12).unwrap_or(&container.id).to_owned();
    let about = match &container.image {
        Some(image) => format!("{}, {id}", text::terminal(image)),
        None => id,
    };
    let mut processes: Vec<_> = (container.processes.iter().take(CONTAINER_PROCESSES))
        .map(|process| {
            let name = format!("{} {}", text::terminal(&process.comm), process.tgid);
            match process.pid_in_container {
                Some(inside) => format!("{name} ({inside} inside)"),
                None => name,
            }
        })
        .collect();
    if container.processes.len() > CONTAINER_PROCESSES {
        processes.push(format!("{} more", container.processes.len() - CONTAINER_PROCESSES));
    }
    format!("  {} ({about}): {}", text::terminal(&container.label), processes.join(", "))
}

/// Returns the time to sort by: a thread that only sleeps comes last.
fn busy_time(ledger: &LedgerEntry) -> Nanos {
    ledger.on_cpu_ns + ledger.runnable_ns + ledger.attributed_ns
}

fn write_row(out: &mut dyn io::Write, name: &str, ledger: &LedgerEntry) -> io::Result<()> {
    let share = |part| percent(part, ledger.wall_ns);
    writeln!(
        out,
        "{:<36} {:>9} {:>7} {:>9} {:>11} {:>9} {:>12}",
        text::cut_chars(name, 36),
        ledger.wall_ns,
        share(ledger.on_cpu_ns),
        share(ledger.runnable_ns),
        share(ledger.attributed_ns),
        share(ledger.external_ns),
        share(ledger.unattributed_ns),
    )
}

/// Writes what the blocked time of the whole target was spent on, by kind and reason.
fn write_parts(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    let blocked = report.processes.iter().map(|process| process.ledger.blocked_ns).sum();
    type Parts = fn(&LedgerEntry) -> &std::collections::BTreeMap<&'static str, Nanos>;
    let groups: [(&str, Parts); 3] = [
        ("attributed", |ledger| &ledger.attributed),
        ("external", |ledger| &ledger.external),
        ("unattributed", |ledger| &ledger.unattributed),
    ];
    writeln!(out, "\nblocked: {blocked}")?;
    for (group, parts) in groups {
        let mut sums = std::collections::BTreeMap::<&str, Nanos>::new();
        for (name, &time) in report.processes.iter().flat_map(|process| parts(&process.ledger)) {
            *sums.entry(name).or_default() += time;
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|&(_, time)| Reverse(time));
        let words: Vec<_> = (sums.iter())
            .map(|&(name, time)| format!("{name} {}", percent(time, blocked)))
            .collect();
        if !words.is_empty() {
            write_line(out, &format!("  {group:<13} {}", words.join(", ")))?;
        }
    }
    Ok(())
}
