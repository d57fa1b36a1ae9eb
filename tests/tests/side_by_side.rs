//! Any number of profilers may run at once.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use offwake_tests::{
    case::Case,
    intervals::all_meet,
    offwake::{Offwake, Running},
    workload::Workload,
};

/// Long enough for all three to record at the same time.
const DURATION: &str = "3s";

fn start(pids: &str) -> Result<Running> {
    Offwake::profile()?.args(["-d", DURATION, "-p", pids, "-o", "x.json"]).start()
}

/// Waits until all of them record at once.
fn all_record(profilers: &mut [Running]) -> Result<()> {
    profilers.iter_mut().try_for_each(Running::wait_until_recording)
}

#[test]
fn three_profilers_of_three_processes() -> Result<()> {
    let workloads = [
        (Workload::start("futex-handoff")?, "waiter", "worker", "futex"),
        (Workload::start("pipe")?, "client", "server", "pipe"),
        (Workload::start("condvar")?, "consumer", "producer", "futex"),
    ];
    let profilers: Result<Vec<_>> =
        workloads.iter().map(|(workload, ..)| start(&workload.pids())).collect();
    let mut profilers = profilers?;
    all_record(&mut profilers)?;
    let mut windows = Vec::new();
    for ((workload, waiter, waker, cause), profiler) in workloads.into_iter().zip(profilers) {
        let own: BTreeSet<u32> = workload.players().values().map(|player| player.pid).collect();
        let case = Case::from_outcome(workload, profiler.outcome()?, "x.json")?;
        let threads = &case.report.threads;
        ensure!(threads.iter().all(|thread| own.contains(&thread.tgid)), "{threads:?}");
        let waker = BTreeSet::from([case.tid(waker)]);
        case.check_blocked_on(waiter, cause)?;
        case.check_woken_by(waiter, cause, &waker)?;
        windows.push(case.window());
    }
    ensure!(all_meet(&windows), "the windows do not meet, this proves nothing: {windows:?}");
    Ok(())
}

#[test]
fn three_profilers_of_one_process_agree() -> Result<()> {
    let workload = Workload::start("futex-handoff")?;
    let profilers: Result<Vec<_>> = (0..3).map(|_| start(&workload.pids())).collect();
    let mut profilers = profilers?;
    all_record(&mut profilers)?;
    let (waiter, worker) = (workload.role("waiter")?.tid, workload.role("worker")?.tid);
    for profiler in profilers {
        let report = profiler.outcome()?.report("x.json")?;
        ensure!(report.blocked_ns(waiter, "futex") > 0, "{:?}", report.waits);
        for wakes in report.wakes_of(waiter).filter(|wakes| wakes.cause == "futex") {
            ensure!(wakes.waker.tid == Some(worker), "a wrong waker: {wakes:?}");
        }
    }
    Ok(())
}
