//! The harness and its workloads on their own, without offwake and without root: a truth that is
//! wrong would prove nothing.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    case::at_least,
    clock::{now_ns, ns},
    ground_truth::{Activity, GroundTruth},
    intervals::{Interval, overlap_ns},
    wait_until::wait_until,
    workload::Workload,
    workloads::WORKLOADS,
};

/// Starts a workload, lets it play for a while, and returns its truth with the time that it had.
fn play(name: &str) -> Result<(GroundTruth, Interval)> {
    const LENGTH: Duration = Duration::from_millis(300);
    let workload = Workload::start(name)?;
    let begin = now_ns();
    let window = Interval::new(begin, begin + ns(LENGTH));
    wait_until("the window to pass", || Ok((now_ns() > window.end_ns).then_some(())))?;
    Ok((workload.stop().with_context(|| format!("{name}, when told to stop"))?, window))
}

#[test]
fn every_workload_starts_and_stops_when_told() -> Result<()> {
    // The first ends by itself; the others want disks and a cgroup that their tests make.
    let special = [
        "first-wait",
        "throttled-writer",
        "mapped-file-in-a-cgroup",
        "three-writers",
        "two-disks-synced",
        "beside-writers",
        "beside-a-reader",
        "beside-many-readers",
    ];
    let talks = WORKLOADS.iter().filter(|(name, _)| !special.contains(name));
    for (name, _) in talks {
        let (truth, _) = play(name)?;
        ensure!(!truth.roles.is_empty(), "{name} has no roles");
    }
    Ok(())
}

#[test]
fn a_waiter_waits_while_its_waker_works() -> Result<()> {
    let pairs = [
        ("futex-handoff", "waiter", "worker"),
        ("mutex", "contender", "holder"),
        ("condvar", "consumer", "producer"),
        ("pipe", "client", "server"),
        ("unix-socket", "client", "server"),
        ("loopback-tcp", "client", "server"),
        ("epoll", "waiter", "writer"),
        ("poll", "waiter", "writer"),
        ("eventfd", "waiter", "writer"),
        ("sigwait", "waiter", "sender"),
        ("sigsuspend", "waiter", "sender"),
    ];
    for (name, waiter, waker) in pairs {
        let (truth, window) = play(name)?;
        let waits = truth.roles[waiter].intervals(Activity::Wait);
        let works = truth.roles[waker].intervals(Activity::Work);
        let within: Vec<_> = waits.iter().filter_map(|wait| wait.clipped(window)).collect();
        let waited = within.iter().map(|wait| wait.length_ns()).sum();
        // Eight tenths if nobody else wants a CPU. While the workspace is being built beside, a
        // fifth has been seen.
        ensure!(at_least(waited, 0.1, window.length_ns()), "{waiter} in {name}: {waited} ns");
        let worked = overlap_ns(&within, &works);
        // Ninety per cent if nobody else wants a CPU.
        ensure!(at_least(worked, 0.5, waited), "{waker} in {name}: {worked} of {waited} ns");
    }
    Ok(())
}

#[test]
fn spinners_on_one_cpu_see_each_other() -> Result<()> {
    let (truth, window) = play("two-spinners")?;
    for role in ["first", "second"] {
        let off = truth.roles[role].total_ns(Activity::OffCpu, window);
        ensure!(at_least(off, 0.25, window.length_ns()), "{role} was off the CPU for {off} ns");
    }
    Ok(())
}

#[test]
fn a_wait_that_never_ends_is_told_as_such() -> Result<()> {
    let (truth, window) = play("stuck-all-along")?;
    let waits = truth.roles["stuck"].intervals(Activity::Wait);
    ensure!(waits.len() == 1 && waits[0].start_ns < window.start_ns, "{waits:?}");
    ensure!(waits[0].end_ns > window.end_ns, "{waits:?}");
    Ok(())
}

#[test]
fn an_unknown_workload_is_an_error() {
    assert!(Workload::start("no-such-workload").is_err());
}
