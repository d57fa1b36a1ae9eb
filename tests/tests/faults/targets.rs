//! What befalls the target. That it ends, becomes another program or is stopped by a signal is in
//! `recordings.rs`.

use anyhow::{Result, ensure};
use offwake_tests::{
    cgroup::{Cgroup, Motion},
    clock::now_ns,
    offwake::Offwake,
    process::wait_for_state,
    workload::Workload,
};

/// The freezer is no signal: a frozen thread's state is that of any sleeper.
#[test]
fn a_target_that_is_frozen_is_stopped_and_nobody_is_to_blame() -> Result<()> {
    // Before whoever is in it, so that it goes after them.
    let cgroup = Cgroup::new("frozen")?;
    let workload = Workload::start("sleeper")?;
    let sleeper = workload.role("sleeper")?.tid;
    cgroup.adopt(workload.pid())?;
    let recorder =
        Offwake::record()?.args(["-p", &workload.pids(), "-o", "x.offwake"]).start_recording()?;
    cgroup.set(Motion::Frozen)?;
    let from = now_ns();
    recorder.wait_for_slices("x.offwake", 1)?;
    let until = now_ns();
    cgroup.set(Motion::Free)?;
    recorder.wait_for_slices("x.offwake", 1)?;
    let (_, report) = recorder.interrupt()?.report_on("x.offwake")?;
    let stopped = report.blocked_ns(sleeper, "stopped");
    ensure!(stopped >= until - from, "frozen for {} ns, stopped for {stopped}", until - from);
    // What this test's own looks take.
    ensure!(stopped < until - from + 500_000_000, "{} ns, {stopped}", until - from);
    for ((kind, accused), ns) in report.blame_of(sleeper, Some("timer")) {
        ensure!(accused.is_none(), "{accused:?} is blamed ({kind}) for {ns} ns of sleeping");
    }
    Ok(())
}

#[test]
fn a_target_that_runs_out_of_memory_is_recorded_to_its_end() -> Result<()> {
    const LIMIT: u64 = 32 << 20;
    let cgroup = Cgroup::with_memory("starved", LIMIT)?;
    let workload = Workload::start("hungry")?;
    let eater = workload.role("eater")?;
    let recorder =
        Offwake::record()?.args(["-p", &workload.pids(), "-o", "x.offwake"]).start_recording()?;
    cgroup.adopt(eater.pid)?;
    // Dead, and not collected: it is the workload's child.
    wait_for_state(eater.pid, 'Z')?;
    let died_at = now_ns();
    recorder.wait_for_slices("x.offwake", 1)?;
    let (_, report) = recorder.interrupt()?.report_on("x.offwake")?;
    let ledger = report.thread(eater.tid)?;
    ensure!(ledger.wall_ns <= died_at.saturating_sub(report.window.start_ns), "{ledger:?}");
    ensure!(ledger.wall_ns < report.window.duration_ns, "it lived on: {ledger:?}");
    ensure!(report.blocked_ns(eater.tid, "timer") > 0, "{:?}", report.waits);
    for ((kind, accused), ns) in report.blame_of(eater.tid, Some("timer")) {
        ensure!(accused.is_none(), "{accused:?} is blamed ({kind}) for {ns} ns of sleeping");
    }
    Ok(())
}
