//! `--max-overhead`: detail is given up under a flood, and nothing else is; what, and when, is said.

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    offwake::{Offwake, Outcome},
    report::{Overhead, Report},
    workload::Workload,
};

/// The steps, in the order in which detail is given up.
const STEPS: [&str; 6] = [
    "full",
    "fewer_checks",
    "longer_trust",
    "short_waits_summed",
    "fewer_waker_stacks",
    "no_stacks",
];

/// Long enough for a warm-up and all steps one by one.
const LENGTH: &str = "4s";

fn profile(workload: &Workload, limit: &str) -> Result<(Outcome, Report, Overhead)> {
    let outcome = Offwake::profile()?
        .args(["-v", "-d", LENGTH, "-p", &workload.pids(), "--max-overhead", limit])
        .args(["-o", "x.json"])
        .run()?;
    // Its ledgers close: `report` sees to it.
    let report = outcome.report("x.json")?;
    let overhead = report.meta.overhead.clone().context("the cost was not measured")?;
    check_stretches(&report, &overhead)?;
    Ok((outcome, report, overhead))
}

/// Demands that the stretches lie one behind the other, and cover the window but for its edges.
fn check_stretches(report: &Report, overhead: &Overhead) -> Result<()> {
    let stretches = &overhead.stretches;
    ensure!(stretches.iter().all(|stretch| stretch.from_ns < stretch.until_ns), "{overhead:?}");
    let follows = stretches.windows(2).all(|pair| pair[0].until_ns == pair[1].from_ns);
    ensure!(follows, "{overhead:?}");
    ensure!(stretches.iter().all(|stretch| STEPS.contains(&&*stretch.step)), "{overhead:?}");
    let covered: u64 = stretches.iter().map(|stretch| stretch.until_ns - stretch.from_ns).sum();
    // The last of them ends as the drain is told to stop, a little later than the window.
    ensure!(covered > report.window.duration_ns / 10 * 9, "{covered} of {:?}", report.window);
    ensure!(overhead.kernel_ns > 0 && overhead.own_ns > 0, "{overhead:?}");
    ensure!(overhead.kernel_ns + overhead.own_ns < overhead.cpu_time_ns, "{overhead:?}");
    Ok(())
}

/// Two processes that switch as fast as they can take more than a thousandth of the machine's time, whatever
/// is given up. As long as their waits are recorded one by one it is known whom they are for; when they are
/// summed up, nobody is blamed, and their times are known all the same, to the nanosecond.
#[test]
fn detail_is_given_up_under_a_flood_and_said() -> Result<()> {
    let workload = Workload::start("ping-pong")?;
    let (outcome, report, overhead) = profile(&workload, "0.1%")?;
    let (ping, pong) = (workload.role("ping")?.tid, workload.role("pong")?.tid);
    let last = overhead.stretches.last().context("there is no stretch")?;
    ensure!(last.step == "no_stacks", "{overhead:?}");
    ensure!(overhead.limit_ns.is_some_and(|limit| limit > 0), "{overhead:?}");
    let said = outcome.terminal();
    for words in ["detail was given up", "(--max-overhead 0.1%", "but it took"] {
        ensure!(said.contains(words), "no {words:?}: {said}");
    }
    report.check_only_each_other(ping, pong, "pipe")?;
    for tid in [ping, pong] {
        let ledger = report.thread(tid)?;
        ensure!(ledger.wall_ns == report.window.duration_ns, "{ledger:?}");
        let parts = ledger.on_cpu_ns + ledger.runnable_ns + ledger.blocked_ns;
        ensure!(parts == ledger.wall_ns, "{ledger:?}");
        // Most of its time all its waits were summed up.
        let summed = ledger.unattributed.get("short_waits").copied().unwrap_or(0);
        ensure!(summed > ledger.blocked_ns / 2, "{ledger:?}");
        ensure!(!ledger.unattributed.contains_key("lost"), "{ledger:?}");
    }
    Ok(())
}

#[test]
fn without_a_limit_nothing_is_given_up_under_a_flood() -> Result<()> {
    let workload = Workload::start("ping-pong")?;
    let (outcome, _, overhead) = profile(&workload, "none")?;
    ensure!(overhead.limit_ns.is_none(), "{overhead:?}");
    ensure!(overhead.stretches.iter().all(|stretch| stretch.step == "full"), "{overhead:?}");
    let said = outcome.terminal();
    ensure!(!said.contains("given up") && said.contains("recording took"), "{said}");
    Ok(())
}

/// The limit is far above what a workload that waits most of the time can cost, whatever else runs.
#[test]
fn nothing_is_given_up_far_below_the_limit() -> Result<()> {
    let workload = Workload::start("sleeper")?;
    let (outcome, _, overhead) = profile(&workload, "90%")?;
    ensure!(overhead.stretches.iter().all(|stretch| stretch.step == "full"), "{overhead:?}");
    ensure!(!outcome.terminal().contains("given up"), "{}", outcome.terminal());
    Ok(())
}
