//! What befalls the machine.

use std::{
    io::{self, Write as _},
    path::Path,
    thread,
    time::Duration,
};

use anyhow::{Result, ensure};
use aya::maps::{Map, MapData, PerCpuArray};
use offwake_tests::{
    case::{Case, WINDOW, duration_argument},
    cpu_hotplug::{HotplugCpu, Power},
    kernel_objects::KernelObjects,
    offwake::Offwake,
    paths,
    wait_until::wait_until,
    workload::Workload,
};

/// How long a CPU is away.
const AWAY: Duration = Duration::from_secs(1);
/// How often the sampling clock strikes then: a second or so.
const STRIKES: u64 = 200;

/// A CPU goes and comes back while it is recorded; what runs on it afterwards is seen as well as before.
#[test]
fn a_cpu_that_goes_and_comes_back_is_seen_again() -> Result<()> {
    let Some(cpu) = HotplugCpu::last() else {
        // Not to be mistaken for a success: past what captures the output of tests that pass.
        writeln!(io::stderr(), "NOT RUN: this machine lets no CPU go")?;
        return Ok(());
    };
    let workload = Workload::start("ping-pong")?;
    let (ping, pong) = (workload.role("ping")?.tid, workload.role("pong")?.tid);
    let recorder = Offwake::record()?.args(["--all", "-o", "x.offwake"]).start_recording()?;
    recorder.wait_for_slices("x.offwake", 1)?;
    cpu.set(Power::Off)?;
    thread::sleep(AWAY);
    cpu.set(Power::On)?;
    let strikes = KernelObjects::held_by(recorder.pid())?.open_map("CLOCK_TICKS")?;
    let strikes: PerCpuArray<MapData, u64> = PerCpuArray::try_from(Map::PerCpuArray(strikes))?;
    let struck = || Ok::<_, anyhow::Error>(strikes.get(&0, 0)?.get(cpu.number()).copied());
    // Before it was away, and for a moment after that.
    let before = struck()?;
    wait_until("the sampling clock of the CPU", || Ok((struck()? > before).then_some(())))?;
    // They are bound to the last CPU.
    let spinners = Workload::start("two-spinners")?;
    let [first, second] = ["first", "second"].map(|role| spinners.role(role).map(|role| role.tid));
    let enough = struck()?.map(|strikes| strikes + STRIKES);
    wait_until("enough samples", || Ok((struck()? >= enough).then_some(())))?;
    let (outcome, report) = recorder.interrupt()?.report_on("x.offwake")?;
    for (wakee, waker) in [(ping, pong), (pong, ping)] {
        let ledger = report.thread(wakee)?;
        ensure!(ledger.wall_ns == report.window.duration_ns, "{ledger:?}");
        report.check_wakers_among(wakee, "pipe", &[waker].into())?;
    }
    for tid in [first?, second?] {
        let ledger = report.thread(tid)?;
        // Half of what the sampling clock would have struck.
        let due = ledger.on_cpu_ns * report.meta.sample_hz / 1_000_000_000 / 2;
        ensure!(
            due > 5 && ledger.samples >= due,
            "CPU {} is sampled no more: {due} samples were due of {ledger:?}; {outcome}",
            cpu.number()
        );
    }
    Ok(())
}

/// With `hidepid`, `/proc` shows a process to nobody but its owner and who may trace it. Under sudo
/// most of offwake's threads may not.
#[test]
fn a_proc_that_hides_processes_costs_nothing() -> Result<()> {
    const SCRIPT: &str = "mount -t proc -o hidepid=2 proc /proc && exec \"$@\"";
    enum Caller {
        Root,
        Sudo,
    }
    for caller in [Caller::Root, Caller::Sudo] {
        let offwake = Offwake::profile()?
            .binary(Path::new("/usr/bin/unshare"))
            .args(["--mount", "--", "sh", "-c", SCRIPT, "sh"])
            .arg(paths::offwake_binary()?)
            .args(["profile", "-d", &duration_argument(WINDOW), "-o", "x.json"]);
        let offwake = match caller {
            Caller::Root => offwake,
            Caller::Sudo => offwake.called_by_nobody()?,
        };
        let workload = Workload::start("pipe")?;
        let outcome = offwake.args(["-p", &workload.pids()]).run()?;
        let case = Case::from_outcome(workload, outcome, "x.json")?;
        case.check_blocked_on("client", "pipe")?;
        case.check_woken_by("client", "pipe", &[case.tid("server")].into())?;
        let client = case.tid("client");
        let mut waits = case.report.waits_of(client, Some("pipe"));
        let named = waits.any(|waits| waits.has_frame("offwake_tests"));
        ensure!(named, "its own frames have no names: {}", case.describe("client"));
    }
    Ok(())
}
