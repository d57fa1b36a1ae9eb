//! What befalls offwake itself.

use std::{thread, time::Duration};

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    intervals::all_meet,
    kernel_objects::KernelObjects,
    offwake::{Offwake, Running, count_attached_links},
    process::wait_for_state,
    wait_until::wait_until,
    workload::Workload,
};

/// How long offwake is stopped: every ring is full long before.
const STOPPED: Duration = Duration::from_secs(5);

/// Demands that nothing of what it held is left once it is gone. The kernel frees when it comes to it.
fn nothing_is_left(mut recorder: Running) -> Result<()> {
    let held = KernelObjects::held_by(recorder.pid())?;
    ensure!(!held.programs.is_empty() && !held.maps.is_empty(), "it held nothing: {held:?}");
    recorder.signal(libc::SIGKILL)?;
    let outcome = recorder.outcome()?;
    ensure!(!outcome.status.success(), "{outcome}");
    wait_until("the kernel to free everything", || Ok(held.still_loaded().is_empty().then_some(())))
        .with_context(|| format!("left of {held:?}: {:?}", held.still_loaded()))
}

#[test]
fn killed_while_it_records_it_leaves_nothing_in_the_kernel() -> Result<()> {
    let workload = Workload::start("ping-pong")?;
    let recorder =
        Offwake::record()?.args(["-p", &workload.pids(), "-o", "x.offwake"]).start_recording()?;
    let held = KernelObjects::held_by(recorder.pid())?;
    ensure!(!held.links.is_empty(), "nothing is attached: {held:?}");
    nothing_is_left(recorder)
}

#[test]
fn killed_while_it_attaches_it_leaves_nothing_in_the_kernel() -> Result<()> {
    let recorder = Offwake::record()?.args(["--all", "-o", "x.offwake"]).start()?;
    wait_until("the first program", || {
        Ok((count_attached_links(recorder.pid())? > 0).then_some(()))
    })?;
    nothing_is_left(recorder)
}

/// With a flood to record, so that its rings are full in less than a second.
#[test]
fn stopped_for_seconds_it_counts_what_it_missed_and_the_rest_is_true() -> Result<()> {
    let workload = Workload::start("ping-pong")?;
    let (ping, pong) = (workload.role("ping")?.tid, workload.role("pong")?.tid);
    let mut recorder =
        Offwake::record()?.args(["-p", &workload.pids(), "-o", "x.offwake"]).start_recording()?;
    recorder.wait_for_slices("x.offwake", 1)?;
    recorder.signal(libc::SIGSTOP)?;
    wait_for_state(recorder.pid(), 'T')?;
    thread::sleep(STOPPED);
    recorder.signal(libc::SIGCONT)?;
    // What was in the rings, and what came after it.
    recorder.wait_for_slices("x.offwake", 2)?;
    let (outcome, report) = recorder.interrupt()?.report_on("x.offwake")?;
    let loss = &report.loss;
    ensure!(loss.records > 0, "nothing was lost, this proves nothing: {loss:?}");
    ensure!(loss.gaps > 0 && loss.counters.contains_key("ring_full_wait"), "{loss:?}");
    let said = outcome.terminal();
    ensure!(said.contains(&format!("{} records", loss.records)), "{loss:?}: {said}");
    for tid in [ping, pong] {
        let ledger = report.thread(tid)?;
        ensure!(ledger.wall_ns == report.window.duration_ns, "{ledger:?}");
        // More than half of the time: the rings took the first moment.
        let lost = ledger.lost_ns();
        ensure!(lost > 2_500_000_000, "stopped for {STOPPED:?}, lost are {lost} ns: {ledger:?}");
    }
    report.check_only_each_other(ping, pong, "pipe")
}

/// Each of them sees the other nine at work, and none is told of anybody else for that.
#[test]
fn ten_at_once_say_the_same() -> Result<()> {
    const MANY: usize = 10;
    let workload = Workload::start("futex-handoff")?;
    let (waiter, worker) = (workload.role("waiter")?.tid, workload.role("worker")?.tid);
    let recorders: Result<Vec<Running>> = (0..MANY)
        .map(|_| Offwake::record()?.args(["-p", &workload.pids(), "-o", "x.offwake"]).start())
        .collect();
    let mut recorders = recorders?;
    recorders.iter_mut().try_for_each(Running::wait_until_recording)?;
    let last = recorders.last().context("there is none")?;
    last.wait_for_slices("x.offwake", 1)?;
    for recorder in &mut recorders {
        recorder.signal(libc::SIGINT)?;
    }
    let mut windows = Vec::new();
    for recorder in recorders {
        let (_, report) = recorder.outcome()?.report_on("x.offwake")?;
        ensure!(report.blocked_ns(waiter, "futex") > 0, "{:?}", report.waits);
        for wakes in report.wakes_of(waiter).filter(|wakes| wakes.cause == "futex") {
            ensure!(wakes.waker.tid == Some(worker), "a wrong waker: {wakes:?}");
        }
        windows.push(report.interval());
    }
    ensure!(all_meet(&windows), "the windows do not meet, this proves nothing: {windows:?}");
    Ok(())
}
