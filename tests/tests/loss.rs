//! Loss that is forced: it is counted, dated and said, and what is left is still true.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use offwake_tests::{
    case::{WINDOW, seconds},
    offwake::{Offwake, Outcome},
    report::Report,
    workload::Workload,
};

/// Makes each of the kernel half's rings this small. A wait's record has 248 bytes, so a page holds
/// sixteen.
const TINY_RINGS: (&str, &str) = ("OFFWAKE_TEST_RING_BYTES", "4096");

/// Has no task storage: every thread goes by the map that stands in for it.
const STAND_IN: (&str, &str) = ("OFFWAKE_TEST_STAND_IN", "1");

fn profile(workload: &Workload, knob: (&str, &str)) -> Result<Outcome> {
    Offwake::profile()?
        .env(knob.0, knob.1)
        .args(["-d", &seconds(WINDOW), "-p", &workload.pids(), "-o", "x.json"])
        .run()
}

/// Demands that each of the two only ever was woken by the other, and nobody else is accused.
fn only_each_other(report: &Report, one: u32, other: u32) -> Result<()> {
    for (wakee, waker) in [(one, other), (other, one)] {
        for wakes in report.wakes_of(wakee) {
            let by_task = wakes.waker.tid.filter(|_| wakes.cause == "pipe");
            ensure!(by_task.is_none_or(|tid| tid == waker), "a wrong waker: {wakes:?}");
        }
    }
    let pair = BTreeSet::from([one, other]);
    for waits in report.waits.iter().filter(|waits| waits.cause == "pipe") {
        for blame in &waits.blame {
            let right = blame.accused().is_none_or(|tid| pair.contains(&tid));
            ensure!(right, "a wrong culprit: {blame:?}");
        }
    }
    Ok(())
}

/// Two processes that switch as fast as they can fill sixteen records in less than a millisecond.
#[test]
fn a_ring_that_is_full_is_counted_and_dated() -> Result<()> {
    let workload = Workload::start("ping-pong")?;
    let outcome = profile(&workload, TINY_RINGS)?;
    // Its ledgers close: `report` sees to it.
    let report = outcome.report("x.json")?;
    let loss = &report.loss;
    ensure!(loss.records > 0, "nothing was lost, this proves nothing: {loss:?}");
    ensure!(loss.gaps > 0 && loss.gap_ns > 0, "lost, and no gap: {loss:?}");
    let said = outcome.terminal().to_lowercase();
    ensure!(said.contains("lost"), "the summary does not say that records were lost: {said}");
    let (ping, pong) = (workload.role("ping")?.tid, workload.role("pong")?.tid);
    for tid in [ping, pong] {
        let ledger = report.thread(tid)?;
        ensure!(ledger.wall_ns == report.window.duration_ns, "{ledger:?}");
    }
    only_each_other(&report, ping, pong)
}

/// The same load with rings as they are made: whatever is lost is said, and the rest is true.
#[test]
fn a_flood_is_survived() -> Result<()> {
    let workload = Workload::start("ping-pong")?;
    let outcome =
        Offwake::profile()?.args(["-d", "1s", "-p", &workload.pids(), "-o", "x.json"]).run()?;
    let report = outcome.report("x.json")?;
    let (ping, pong) = (workload.role("ping")?.tid, workload.role("pong")?.tid);
    only_each_other(&report, ping, pong)?;
    let said = outcome.terminal().to_lowercase();
    let lost = report.loss.records > 0;
    ensure!(!lost || said.contains("lost"), "{:?} goes unsaid: {said}", report.loss);
    Ok(())
}

#[test]
fn without_task_storage_the_map_stands_in() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let outcome = profile(&workload, STAND_IN)?;
    let case = offwake_tests::case::Case::judge(workload, outcome, "x.json")?;
    ensure!(case.report.loss.records == 0, "{:?}", case.report.loss);
    for (waiter, waker) in [("client", "server"), ("server", "client")] {
        case.blocked_on(waiter, "pipe")?;
        case.woken_by(waiter, "pipe", &BTreeSet::from([case.tid(waker)]))?;
    }
    Ok(())
}
