//! How much of what a report says is missing because records were lost.

use anyhow::{Result, ensure};

use crate::report::{Report, Thread};

/// The part of some threads' time, and of each one's, that may be in gaps. A kernel may hide a process of the machine's
/// own from BPF, and with it the switch to whoever comes after it on the CPU; when that one came is then known from
/// the scheduler itself, as soon as it is seen again. In some 40 cases of a second each, beside compilers on all CPUs,
/// nobody had any.
pub const GAPS_SHARE: f64 = 0.005;

/// Demands that next to none of some threads' time, and of any of them, is in gaps, and prints what is.
///
/// # Errors
///
/// When more of it is.
pub fn check_gaps_of<'r>(
    report: &Report,
    threads: impl Iterator<Item = &'r Thread> + Clone,
) -> Result<()> {
    let lost: u64 = threads.clone().map(Thread::lost_ns).sum();
    let most = threads.clone().map(Thread::lost_ns).max().unwrap_or(0);
    let all: u64 = threads.map(|thread| thread.wall_ns).sum();
    let window = report.window.duration_ns;
    let about = || {
        let loss = &report.loss;
        format!(
            "{lost} of {all} ns of all threads are in gaps, {most} of {window} of one: {loss:?}"
        )
    };
    if lost > 0 {
        println!("{}", about());
    }
    ensure!(lost as f64 <= GAPS_SHARE * all as f64, "{}", about());
    ensure!(most as f64 <= GAPS_SHARE * window as f64, "{}", about());
    Ok(())
}

/// Demands the same of all threads of a report, and that next to nothing of what they waited for is unknown because
/// records of others were lost: of those that they wait for, a report of them has no times.
///
/// # Errors
///
/// When more of either is.
pub fn check_gaps(report: &Report) -> Result<()> {
    check_gaps_of(report, report.threads.iter())?;
    let blame = || report.waits.iter().flat_map(|waits| &waits.blame);
    let all: u64 = blame().map(|part| part.ns).sum();
    let is_lost = |part: &&crate::report::Blame| part.reason.as_deref() == Some("lost");
    let lost: u64 = blame().filter(is_lost).map(|part| part.ns).sum();
    let about =
        || format!("{lost} of {all} ns of all waits lead to lost records: {:?}", report.loss);
    if lost > 0 {
        println!("{}", about());
    }
    ensure!(lost as f64 <= GAPS_SHARE * all as f64, "{}", about());
    Ok(())
}
