//! The end of a run comes in bounded time, whoever else takes however long.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use offwake_tests::{
    cgroup::Cgroup, machine_lock::MachineLock, offwake::Offwake, process::descendants,
    workload::Workload,
};

/// What the run is told (`--end-within`).
const END_WITHIN: Duration = Duration::from_secs(10);
/// What everything takes that comes before and after, on a busy machine. One question may take 300 s.
const REST: Duration = Duration::from_secs(60);
/// The CPUs that the helper processes have: none of them is idle, and they get nowhere.
const CPUS: f64 = 0.001;
const HELPERS: [&str; 3] = ["offwake-unwind", "offwake-parser", "offwake-reader"];

/// Moves the helper processes that look things up to where they get no CPU.
fn starve(recorder: u32, cgroup: &Cgroup, moved: &mut BTreeSet<u32>) -> Result<()> {
    for (pid, name) in descendants(recorder)? {
        // It may have ended by now.
        if HELPERS.contains(&&*name) && !moved.contains(&pid) && cgroup.adopt(pid).is_ok() {
            moved.insert(pid);
        }
    }
    Ok(())
}

/// Who computes is waited for: it has not stopped to answer. All answers together are not.
#[test]
fn helpers_that_compute_without_end_cost_what_they_look_up_and_the_run_ends_in_time() -> Result<()>
{
    let _shared = MachineLock::acquire_shared()?;
    let starved = Cgroup::with_cpu("late-end", CPUS)?;
    let workload = Workload::start("futex-handoff")?;
    let seconds = format!("{}s", END_WITHIN.as_secs());
    let mut recorder = Offwake::record()?
        .args(["-p", &workload.pids(), "-o", "x.offwake", "--end-within", &seconds])
        .args(["--stacks", "exact", "--budget", "none"])
        .start_recording()?;
    let mut moved = BTreeSet::new();
    starve(recorder.pid(), &starved, &mut moved)?;
    ensure!(!moved.is_empty(), "nobody unwinds: this proves nothing");
    recorder.wait_for_slices("x.offwake", 3)?;
    recorder.signal(libc::SIGINT)?;
    let began = Instant::now();
    // Each that is started takes the place of one that was given up.
    while recorder.signal(0).is_ok() && began.elapsed() < END_WITHIN + REST {
        starve(recorder.pid(), &starved, &mut moved)?;
        thread::sleep(Duration::from_millis(5));
    }
    let took = began.elapsed();
    ensure!(took < END_WITHIN + REST, "it has not ended after {took:?}; starved were {moved:?}");
    ensure!(took >= END_WITHIN, "nobody had to wait: this proves nothing");
    let outcome = recorder.outcome()?;
    eprintln!("{took:?}: {}", outcome.stderr);
    ensure!(outcome.status.success(), "{outcome}");
    let words = "(10s after the end, --end-within): not looked up: ";
    ensure!(outcome.stderr.contains(words), "{outcome}");
    let (shown, report) = outcome.report_on("x.offwake")?;
    ensure!(report.recording.is_whole(), "{:?}", report.recording);
    ensure!(report.loss_count("parser_out_of_time") > 0, "{:?}", report.loss);
    let said = shown.terminal();
    ensure!(said.contains("the time for the end was over"), "{said}");
    let blocked: u64 = report.threads.iter().map(|thread| thread.blocked_ns).sum();
    ensure!(blocked > 0, "the waits are gone: {said}");
    Ok(())
}
