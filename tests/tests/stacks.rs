//! Stacks that are recognised without a walk are the right ones, or it is found out; and what walking
//! them may cost is kept to.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use aya::sys::{Stats, enable_stats};
use offwake_tests::{
    case::{LONGER_WINDOWS, WINDOW, duration_argument},
    offwake::{Offwake, Outcome},
    report::{Report, StackCounts, Waits},
    workload::Workload,
};

fn profile(workload: &Workload, arguments: &[&str]) -> Result<(Outcome, Report)> {
    profile_window(WINDOW, workload, arguments)
}

fn profile_window(
    window: Duration,
    workload: &Workload,
    arguments: &[&str],
) -> Result<(Outcome, Report)> {
    let outcome = Offwake::profile()?
        .args(["-d", &duration_argument(window), "-p", &workload.pids(), "-o", "x.json"])
        // No stack is to be given up for what all of it costs.
        .args(["--max-overhead", "none"])
        .args(arguments)
        .run()?;
    ensure!(outcome.status.success(), "{outcome}");
    let report = outcome.report("x.json")?;
    Ok((outcome, report))
}

/// Waits and the time in them, below a function of the workload's.
fn below(report: &Report, tid: u32, function: &str) -> (u64, u64) {
    let calls = |waits: &&Waits| waits.has_frame(function);
    let own = report.waits.iter().filter(|waits| waits.tid == tid && waits.cause == "timer");
    own.filter(calls)
        .fold((0, 0), |(count, ns), waits| (count + waits.count, ns + waits.blocked_ns))
}

/// How long a caller's waits are on average, in ms. One that was taken for the other's moves it.
fn average(report: &Report, tid: u32, caller: &str) -> Result<f64> {
    let (count, ns) = below(report, tid, caller);
    ensure!(count >= 50, "only {count} waits below {caller}");
    Ok(ns as f64 / count as f64 / 1e6)
}

/// A thread's first stacks are checked in any case, but that may have been before the window opened.
const CACHED_AND_CHECKED: [&str; 6] =
    ["--stacks", "cached", "--scope", "target", "--check-stacks", "8"];

#[test]
fn two_callers_near_one_wait_are_told_apart_without_a_walk() -> Result<()> {
    let workload = Workload::start("near-callers")?;
    let (_, report) = profile(&workload, &CACHED_AND_CHECKED)?;
    let tid = workload.role("sleeper")?.tid;
    let counts = report.meta.stack_counts;
    ensure!(report.meta.stacks == "cached", "{}", report.meta.stacks);
    let (user, kernel) = (counts.user, counts.kernel);
    ensure!(kernel.recognised >= 100 && kernel.recognised > 4 * kernel.taken, "{counts:?}");
    // A place is copied each time until it is known, which takes longer on a busy machine.
    ensure!(user.recognised >= 100 && user.recognised > user.taken, "{counts:?}");
    ensure!(counts.user.checked > 0 && counts.distrusted == 0, "{counts:?}");
    let (short, long) =
        (average(&report, tid, "short_caller")?, average(&report, tid, "long_caller")?);
    // A shared machine makes any of them longer, by turns.
    ensure!(short < 2.5 && long >= 2.9, "1 ms took {short}, 3 ms took {long}");
    Ok(())
}

/// The callers are 24 equal frames up: a word that far away is looked at once both were seen.
#[test]
fn two_callers_far_from_one_wait_are_told_apart_too() -> Result<()> {
    let workload = Workload::start("far-callers")?;
    let (_, report) = profile(&workload, &CACHED_AND_CHECKED)?;
    let tid = workload.role("sleeper")?.tid;
    let counts = report.meta.stack_counts;
    let (user, kernel) = (counts.user, counts.kernel);
    ensure!(kernel.recognised >= 100 && kernel.recognised > 4 * kernel.taken, "{counts:?}");
    // A place is copied each time until it is known, which takes longer on a busy machine.
    ensure!(user.recognised >= 100 && user.recognised > user.taken, "{counts:?}");
    ensure!(counts.user.checked > 0 && counts.distrusted == 0, "{counts:?}");
    let (short, long) =
        (average(&report, tid, "short_caller")?, average(&report, tid, "long_caller")?);
    ensure!(short < 2.5 && long >= 2.9, "1 ms took {short}, 3 ms took {long}");
    Ok(())
}

/// Where they differ lies further up than offwake looks, a KiB: after a few that were mistaken, they are walked.
#[test]
fn kernel_stacks_that_can_not_be_told_apart_are_walked_and_said() -> Result<()> {
    let workload = Workload::start("faults-in-one-syscall")?;
    let arguments = ["-v", "--stacks", "cached", "--scope", "target"];
    let (outcome, report) = profile(&workload, &arguments)?;
    let tid = workload.role("faulter")?.tid;
    let counts = report.meta.stack_counts;
    // What gave them away may have come before the window opened.
    ensure!(counts.distrusted > 0, "{counts:?}");
    let mistaken = &report.meta.mistaken;
    ensure!(mistaken.iter().any(|thread| thread.tid == tid), "{mistaken:?}");
    ensure!(outcome.terminal().contains("taken every time"), "{outcome}");
    Ok(())
}

/// In a filesystem, callers differ behind its own frames and those of the disk.
#[test]
fn what_waits_in_a_filesystem_is_not_mistaken() -> Result<()> {
    let workload = Workload::start("fsync-of-many-files")?;
    let arguments = ["--check-stacks", "1", "--budget", "none", "--scope", "target"];
    let (_, report) = profile(&workload, &arguments)?;
    let counts = report.meta.stack_counts;
    ensure!(counts.kernel.checked >= 100, "{counts:?}");
    ensure!(counts.distrusted == 0, "{counts:?}");
    Ok(())
}

/// While the kernel measures programs it runs them from elsewhere, and a stack that is walked in one
/// begins with where that is.
#[test]
fn what_the_tracing_does_is_no_part_of_a_stack() -> Result<()> {
    // An emulated CPU that others want too sees fewer than a hundred stacks in a second.
    let mut seen = StackCounts::default();
    for window in LONGER_WINDOWS {
        seen = count_stacks_while_it_is_measured(window)?;
        ensure!(seen.distrusted == 0, "{seen:?}");
        if seen.user.checked + seen.kernel.checked >= 200 {
            return Ok(());
        }
    }
    bail!("too few were checked, this proves nothing: {seen:?}")
}

fn count_stacks_while_it_is_measured(window: Duration) -> Result<StackCounts> {
    let workload = Workload::start("loopback-tcp")?;
    let is_over = AtomicBool::new(false);
    let (_, report) = thread::scope(|scope| {
        let measures = scope.spawn(|| -> Result<()> {
            while !is_over.load(Ordering::Relaxed) {
                let measurement = enable_stats(Stats::RunTime)?;
                thread::sleep(Duration::from_millis(20));
                drop(measurement);
                thread::sleep(Duration::from_millis(20));
            }
            Ok(())
        });
        let arguments = ["--check-stacks", "1", "--scope", "target"];
        let profiled = profile_window(window, &workload, &arguments);
        is_over.store(true, Ordering::Relaxed);
        measures.join().map_err(|_| anyhow!("the measuring thread panicked"))??;
        profiled
    })?;
    Ok(report.meta.stack_counts)
}

#[test]
fn exact_stacks_are_walked_every_time() -> Result<()> {
    let workload = Workload::start("far-callers")?;
    let (_, report) = profile(&workload, &["--stacks", "exact", "--scope", "target"])?;
    let tid = workload.role("sleeper")?.tid;
    let counts = report.meta.stack_counts;
    for half in [counts.user, counts.kernel] {
        ensure!(half.recognised == 0 && half.checked == 0, "{counts:?}");
    }
    let (short, long) =
        (average(&report, tid, "short_caller")?, average(&report, tid, "long_caller")?);
    ensure!(short < 2.5 && long >= 2.9, "1 ms took {short}, 3 ms took {long}");
    Ok(())
}

#[test]
fn what_may_not_be_walked_for_want_of_time_is_counted_and_said() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let (outcome, report) = profile(&workload, &["--stacks", "exact", "--budget", "0.001%"])?;
    let counts = report.meta.stack_counts;
    ensure!(counts.over_budget > 0, "{counts:?}");
    let said = outcome.terminal();
    let line = format!("{} stacks were not taken", counts.over_budget);
    ensure!(said.contains(&line), "{line:?} is not in {said}");
    // The waits are all there, with what ended them.
    let (client, server) = (workload.role("client")?.tid, workload.role("server")?.tid);
    let wakes: Vec<_> = report.wakes_of(client).collect();
    ensure!(wakes.iter().any(|wakes| wakes.waker.tid == Some(server)), "{wakes:?}");
    ensure!(report.loss.records == 0, "{:?}", report.loss);
    Ok(())
}

#[test]
fn the_kernel_says_what_the_programs_take() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let (_, report) = profile(&workload, &[])?;
    let programs = report.meta.programs.context("it was not measured")?;
    // In moments, and on all CPUs no more than there is.
    let cpus = std::thread::available_parallelism()?.get() as u64;
    let taken = programs.scheduler_ns + programs.interrupts_ns;
    ensure!(programs.scheduler_ns > 0 && taken < programs.measured_ns * cpus, "{programs:?}");
    ensure!(programs.measured_ns < report.window.duration_ns / 2, "{programs:?}");
    Ok(())
}

/// The map remembers one stack; each is sent again and again, and all are there.
#[test]
fn stacks_that_the_kernel_half_forgets_are_sent_again() -> Result<()> {
    let workload = Workload::start("near-callers")?;
    let arguments = ["--stacks", "exact", "--scope", "target", "--max-stacks", "1"];
    let (_, report) = profile(&workload, &arguments)?;
    let tid = workload.role("sleeper")?.tid;
    let (short, long) =
        (average(&report, tid, "short_caller")?, average(&report, tid, "long_caller")?);
    ensure!(short < 2.5 && long >= 2.9, "1 ms took {short}, 3 ms took {long}");
    Ok(())
}
