//! How many CPUs there are, how many there may be, and which of them offwake gets: what it promises of its
//! memory holds, and nothing is lost.

use std::{
    collections::BTreeSet,
    env, fs,
    io::{self, Write as _},
    mem,
};

use anyhow::{Context as _, Result, ensure};
use aya::maps::loaded_maps;
use offwake_tests::{
    case::Case,
    cgroup::Cgroup,
    kernel_objects::KernelObjects,
    offwake::{Offwake, Outcome, Running},
    workload::Workload,
};

/// The ring of a CPU that is offline.
const OFFLINE_RING_BYTES: u32 = 64 << 10;

/// A machine with two CPUs may have room for 240: each that it has gets a ring of full size, and each that
/// may come one of the smallest size.
#[test]
fn rings_are_as_large_as_promised_and_nothing_is_lost() -> Result<()> {
    let (online, possible) = (cpus("online")?, cpus("possible")?);
    // Where the test is run for the sake of the number of CPUs, that has to be it.
    if let Ok(expected) = env::var("OFFWAKE_EXPECTED_CPUS") {
        ensure!(expected == format!("{}/{}", online.len(), possible.len()), "{possible:?}");
    }
    let workload = Workload::start("futex-handoff")?;
    let recorder = recorder(&workload)?.start_recording()?;
    recorder.wait_for_slices("x.offwake", 2)?;
    let rings = ring_sizes(&recorder)?;
    check_truth(workload, recorder.interrupt()?)?;

    // 128 MiB are shared out, 1 to 8 MiB each.
    let due = ((128 << 20) / u32::try_from(online.len())?).clamp(1 << 20, 8 << 20);
    let mut expected = vec![due.next_power_of_two(); online.len()];
    expected.extend(possible.difference(&online).map(|_offline| OFFLINE_RING_BYTES));
    expected.sort_unstable();
    eprintln!("{} of {} CPUs are online", online.len(), possible.len());
    ensure!(rings == expected, "{online:?} of {possible:?} are online, rings: {rings:?}");
    Ok(())
}

/// Whoever starts offwake on one CPU alone (`taskset -c 0`) sees what happens on the others all the same.
#[test]
fn a_recorder_that_may_use_one_cpu_misses_nothing_on_another() -> Result<()> {
    let online = cpus("online")?;
    let (Some(first), Some(last)) = (online.first(), online.last()) else {
        anyhow::bail!("no CPU is online");
    };
    if first == last {
        // Not to be mistaken for a success: past what captures the output of tests that pass.
        writeln!(io::stderr(), "NOT RUN: this machine has one CPU")?;
        return Ok(());
    }
    let workload = Workload::start("futex-handoff")?;
    for player in workload.players().values() {
        bind(player.tid, [*last])?;
    }
    // Whom this thread starts gets what this thread has.
    let own = 0;
    bind(own, [*first])?;
    let started = recorder(&workload)?.start();
    bind(own, online.iter().copied())?;
    let mut recorder = started?;
    recorder.wait_until_recording()?;
    recorder.wait_for_slices("x.offwake", 2)?;
    let rings = ring_sizes(&recorder)?;
    check_truth(workload, recorder.interrupt()?)?;
    let large = rings.iter().filter(|bytes| **bytes > OFFLINE_RING_BYTES).count();
    ensure!(large == online.len(), "{online:?} are online, rings: {rings:?}");
    Ok(())
}

/// Whoever gives offwake a fifth of a CPU (`cpu.max`) waits longer for its end, and loses nothing.
#[test]
fn a_recorder_under_a_cpu_quota_is_slow_and_misses_nothing() -> Result<()> {
    let group = Cgroup::with_cpu("recorder", 0.2)?;
    let workload = Workload::start("futex-handoff")?;
    let mut recorder = recorder(&workload)?.start()?;
    // The processes that it starts later are born into it.
    group.adopt(recorder.pid())?;
    recorder.wait_until_recording()?;
    recorder.wait_for_slices("x.offwake", 2)?;
    let outcome = recorder.interrupt()?;
    let throttled = group.cpu_count()?.throttled_periods;
    ensure!(throttled > 0, "it was never throttled, this proves nothing");
    eprintln!("throttled in {throttled} periods");
    check_truth(workload, outcome)
}

fn recorder(workload: &Workload) -> Result<Offwake> {
    let arguments = ["--budget", "none", "-p", &workload.pids(), "-o", "x.offwake"];
    Ok(Offwake::record()?.args(arguments))
}

/// Demands that nothing was lost, and that the waiter waited for the worker.
fn check_truth(workload: Workload, outcome: Outcome) -> Result<()> {
    let (reported, report) = outcome.report_on("x.offwake")?;
    ensure!(report.loss.records == 0, "{:?}", report.loss);
    let case = Case::from_outcome(workload, reported, "x.json")?;
    let worker = BTreeSet::from([case.tid("worker")]);
    case.check_cause("waiter", "futex")?;
    case.check_woken_by("waiter", "futex", &worker)?;
    case.check_blamed_on("waiter", "futex", &worker)
}

/// The sizes of the rings that it has, in bytes, the smallest first.
fn ring_sizes(recorder: &Running) -> Result<Vec<u32>> {
    let held = KernelObjects::held_by(recorder.pid())?.maps;
    let rings = loaded_maps().flatten().filter(|map| held.contains(&map.id()));
    let rings = rings.filter(|map| map.name() == b"offwake_ring");
    let mut sizes: Vec<u32> = rings.map(|map| map.max_entries()).collect();
    sizes.sort_unstable();
    Ok(sizes)
}

/// The CPUs that are `online`, or that are `possible`.
fn cpus(which: &str) -> Result<BTreeSet<u32>> {
    let path = format!("/sys/devices/system/cpu/{which}");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let mut cpus = BTreeSet::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse::<u32>()?..=last.parse()?);
    }
    Ok(cpus)
}

/// Lets a thread, or the calling one if `tid` is 0, run on these CPUs alone.
fn bind(tid: u32, cpus: impl IntoIterator<Item = u32>) -> Result<()> {
    // SAFETY: all zeros are an empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    for cpu in cpus {
        ensure!(cpu < libc::CPU_SETSIZE.cast_unsigned(), "there is no CPU {cpu}");
        // SAFETY: `cpu` is below CPU_SETSIZE.
        unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    }
    // SAFETY: the set is as large as is said.
    let status =
        unsafe { libc::sched_setaffinity(tid.cast_signed(), size_of_val(&set), &raw const set) };
    ensure!(status == 0, "cannot bind thread {tid}: {}", io::Error::last_os_error());
    Ok(())
}
