//! `record --keep`: the last stretch, written out while recording goes on, says what is true of it.

use std::{fs, path::Path, thread, time::Duration};

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    case::{ABSOLUTE_NS, RELATIVE, WINDOW, duration_argument},
    full_disk::make_full_device,
    ground_truth::{Activity, Log},
    ledger,
    offwake::{Offwake, Outcome, Running},
    report::Report,
    wait_until::wait_until,
    workload::Workload,
};

/// What is kept, and what is recorded before somebody asks for it: more than that.
const KEEP: Duration = Duration::from_secs(2);
const BEFORE: Duration = Duration::from_secs(4);
/// A slice is no longer than this: so much more can be kept.
const SLICE: Duration = Duration::from_millis(1500);

fn recorder(workload: &Workload, arguments: &[&str]) -> Result<Running> {
    recorder_of(&workload.pids(), arguments)
}

fn recorder_of(pids: &str, arguments: &[&str]) -> Result<Running> {
    Offwake::record()?
        .args(["--keep", &duration_argument(KEEP), "-p", pids, "-o", "x.offwake"])
        .args(arguments)
        .start_recording()
}

fn wait_for(path: &Path) -> Result<()> {
    wait_until("the snapshot", || Ok(path.exists().then_some(())))
}

/// The report of one of a run's recordings, its ledgers checked.
fn report(outcome: &Outcome, name: &str) -> Result<Report> {
    let json = format!("{name}.json");
    let report = outcome.report_of(name, &["-o", &json])?.report(&json)?;
    ledger::check_unfiltered(&report)?;
    ensure!(report.recording.is_whole(), "{:?}", report.recording);
    Ok(report)
}

/// Demands that a report says of the sleeper what it measured itself in that window.
fn is_true_of(report: &Report, tid: u32, log: &Log) -> Result<()> {
    let thread = report.thread(tid)?;
    ensure!(thread.comm == "ow-sleeper", "{thread:?}");
    ensure!(thread.wall_ns == report.window.duration_ns, "{thread:?}, {:?}", report.window);
    ensure!(thread.lost_ns() <= report.window.duration_ns / 20, "gaps: {thread:?}");
    let said = (thread.blocked_ns + thread.runnable_ns) as f64;
    let measured = log.total_ns(Activity::Wait, report.interval()) as f64;
    let bearable = RELATIVE * measured + ABSOLUTE_NS;
    ensure!((said - measured).abs() <= bearable, "said {said}, measured {measured}: {thread:?}");
    Ok(())
}

#[test]
fn a_snapshot_says_what_was_and_recording_goes_on() -> Result<()> {
    let workload = Workload::start("sleeper")?;
    let tid = workload.role("sleeper")?.tid;
    let mut recorder = recorder(&workload, &[])?;
    thread::sleep(BEFORE);
    for name in ["x.1.offwake", "x.2.offwake", "x.3.offwake"] {
        recorder.signal(libc::SIGUSR1)?;
        wait_for(&recorder.path(name))?;
    }
    thread::sleep(BEFORE);
    let outcome = recorder.interrupt()?;
    ensure!(outcome.stdout.matches("(SIGUSR1)").count() == 3, "{outcome}");
    let truth = workload.stop()?;
    let mut newest = 0;
    for name in ["x.1.offwake", "x.2.offwake", "x.3.offwake", "x.offwake"] {
        let report = report(&outcome, name)?;
        is_true_of(&report, tid, &truth.roles["sleeper"]).context(name)?;
        let length = Duration::from_nanos(report.window.duration_ns);
        ensure!(KEEP <= length && length <= KEEP + SLICE, "{name} has {length:?}");
        let by = if name == "x.offwake" { "signal" } else { "snapshot" };
        ensure!(report.meta.closed_by == by, "{name}: {:?}", report.meta);
        ensure!(report.window.end_ns > newest, "{name} is no newer");
        let named = report.waits_of(tid, None).any(|waits| waits.has_frame("nanosleep"));
        ensure!(named, "{name} has no names for the sleeper's stack");
        newest = report.window.end_ns;
    }
    Ok(())
}

#[test]
fn a_wait_that_is_too_long_writes_a_snapshot() -> Result<()> {
    let workload = Workload::start("short-and-long-sleeps")?;
    let tid = workload.role("sleeper")?.tid;
    let arguments = ["--trigger", "wait>15ms,comm=ow-sleeper", "--trigger", "wait>1ms,comm=nobody"];
    let recorder = recorder(&workload, &arguments)?;
    wait_for(&recorder.path("x.2.offwake"))?;
    let outcome = recorder.interrupt()?;
    let line = format!("(trigger: ow-sleeper {tid} waited ");
    ensure!(outcome.stdout.contains(&line), "{outcome}");
    ensure!(outcome.stderr.contains("more waits tripped"), "{outcome}");
    let truth = workload.stop()?;
    let (first, second) = (report(&outcome, "x.1.offwake")?, report(&outcome, "x.2.offwake")?);
    let apart = Duration::from_nanos(second.window.end_ns - first.window.end_ns);
    ensure!(apart >= KEEP, "two snapshots {apart:?} apart");
    is_true_of(&second, tid, &truth.roles["sleeper"])
}

/// Nobody ends these waits: they trip the trigger all the same, and once each.
#[test]
fn a_wait_that_has_not_ended_writes_a_snapshot_as_soon_as_it_is_too_long() -> Result<()> {
    let workload = Workload::start("stuck-one-after-the-other")?;
    let starter = workload.role("starter")?.tid;
    let recorder = recorder(&workload, &["--trigger", "wait>700ms,comm=ow-starter"])?;
    wait_for(&recorder.path("x.1.offwake"))?;
    let outcome = recorder.interrupt()?;
    let line = outcome.stdout.lines().find(|line| line.contains("(trigger: ow-starter "));
    let line = line.with_context(|| format!("no trigger: {outcome}"))?;
    ensure!(line.contains(" still waits, for "), "{line}");
    // The starter's own waits are short.
    ensure!(!line.contains(&format!("ow-starter {starter} ")), "{line}");
    let report = report(&outcome, "x.1.offwake")?;
    ensure!(report.meta.closed_by == "snapshot", "{:?}", report.meta);
    workload.stop().map(drop)
}

/// The client had asked, and its server hung, before anybody looked.
#[test]
fn a_wait_from_before_the_recording_writes_one_snapshot_with_its_chain() -> Result<()> {
    let workload = Workload::start("unix-left-hangs")?;
    let (client, server) = (workload.role("client")?.clone(), workload.role("left")?.clone());
    workload.wait_for_call("client", &[libc::SYS_read])?;
    workload.wait_for_call("left", &[libc::SYS_nanosleep])?;
    let recorder = recorder_of(&client.pid.to_string(), &["--trigger", "wait>700ms"])?;
    wait_for(&recorder.path("x.1.offwake"))?;
    // Neither the looks that follow nor the end of the pause trip it once more.
    thread::sleep(BEFORE);
    let outcome = recorder.interrupt()?;
    ensure!(!outcome.path("x.2.offwake").exists(), "{outcome}");
    let start = format!("(trigger: ow-client {} still waits, for at least ", client.tid);
    let line = outcome.stdout.lines().find(|line| line.contains(&start));
    let line = line.with_context(|| format!("no trigger: {outcome}"))?;
    ensure!(line.ends_with(": since before the recording)"), "{line}");
    let report = report(&outcome, "x.1.offwake")?;
    let found = report.findings.first().context("there are findings")?;
    let tids: Vec<_> = found.chain.iter().map(|hop| hop.tid).collect();
    ensure!(tids == [Some(client.tid), Some(server.tid)], "{found:#?}");
    ensure!(found.cause.text.contains("sleeps_without_an_answer"), "{found:#?}");
    workload.stop().map(drop)
}

#[test]
fn who_has_had_nothing_to_do_since_before_the_recording_writes_one_only_by_name() -> Result<()> {
    let workload = Workload::start("idle-all-along")?;
    workload.wait_for_call("idle", IN_EPOLL)?;
    let recorder = recorder(&workload, &["--trigger", "wait>700ms"])?;
    thread::sleep(BEFORE);
    let outcome = recorder.interrupt()?;
    ensure!(!outcome.path("x.1.offwake").exists(), "{outcome}");
    let recorder = self::recorder(&workload, &["--trigger", "wait>700ms,comm=ow-idle"])?;
    wait_for(&recorder.path("x.1.offwake"))?;
    thread::sleep(BEFORE);
    let outcome = recorder.interrupt()?;
    ensure!(!outcome.path("x.2.offwake").exists(), "{outcome}");
    ensure!(outcome.stdout.contains("(trigger: ow-idle "), "{outcome}");
    workload.stop().map(drop)
}

/// The syscalls that wait for an epoll. Some machines have no `epoll_wait`.
const IN_EPOLL: &[libc::c_long] = &[
    libc::SYS_epoll_pwait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
];

#[test]
fn a_trigger_with_another_name_is_not_tripped() -> Result<()> {
    let workload = Workload::start("short-and-long-sleeps")?;
    let mut recorder = recorder(&workload, &["--trigger", "wait>1ms,comm=ow-sleepe"])?;
    thread::sleep(BEFORE);
    recorder.signal(libc::SIGTERM)?;
    let outcome = recorder.outcome()?;
    ensure!(outcome.status.success() && outcome.path("x.offwake").exists(), "{outcome}");
    ensure!(!outcome.path("x.1.offwake").exists(), "{outcome}");
    Ok(())
}

#[test]
fn only_so_many_snapshots_stay() -> Result<()> {
    let workload = Workload::start("sleeper")?;
    let mut recorder = recorder(&workload, &["--max-snapshots", "1"])?;
    for name in ["x.1.offwake", "x.2.offwake"] {
        recorder.signal(libc::SIGUSR1)?;
        wait_for(&recorder.path(name))?;
    }
    let outcome = recorder.interrupt()?;
    ensure!(!outcome.path("x.1.offwake").exists() && outcome.path("x.2.offwake").exists());
    ensure!(outcome.stdout.contains("removed x.1.offwake"), "{outcome}");
    Ok(())
}

#[test]
fn a_signal_without_a_stretch_is_answered_and_survived() -> Result<()> {
    let workload = Workload::start("sleeper")?;
    let mut recorder = Offwake::record()?
        .args(["-d", &duration_argument(3 * WINDOW), "-p", &workload.pids(), "-o", "x.offwake"])
        .start_recording()?;
    recorder.signal(libc::SIGUSR1)?;
    let outcome = recorder.outcome()?;
    ensure!(outcome.status.success(), "{outcome}");
    ensure!(outcome.stderr.contains("--keep"), "{outcome}");
    Ok(())
}

#[test]
fn snapshots_of_an_earlier_run_stay() -> Result<()> {
    let workload = Workload::start("sleeper")?;
    let offwake = Offwake::record()?;
    let earlier = offwake.directory().join("x.1.offwake");
    fs::write(&earlier, "of the run before")?;
    let mut recorder = offwake
        .args(["--keep", &duration_argument(KEEP), "-p", &workload.pids(), "-o", "x.offwake"])
        .start_recording()?;
    recorder.signal(libc::SIGUSR1)?;
    wait_for(&recorder.path("x.2.offwake"))?;
    let outcome = recorder.interrupt()?;
    ensure!(outcome.stdout.contains("wrote x.2.offwake"), "{outcome}");
    ensure!(fs::read_to_string(&earlier)? == "of the run before");
    Ok(())
}

#[test]
fn what_makes_no_sense_is_a_usage_error() -> Result<()> {
    for (arguments, word) in [
        (&["--keep", "30s", "-o", "-"][..], "--keep"),
        (&["--keep", "30s", "-o", "full.offwake"], "device"),
        (&["--keep", "30", "-o", "x.offwake"], "time"),
        (&["--trigger", "wait>1s", "-o", "x.offwake"], "--keep"),
        (&["--max-snapshots", "2", "-o", "x.offwake"], "--keep"),
        (&["--keep", "1s", "--trigger", "wait>200", "-o", "x.offwake"], "unit"),
        (&["--keep", "1s", "--trigger", "nap>2s", "-o", "x.offwake"], "trigger"),
    ] {
        let recorder = Offwake::record()?;
        make_full_device(&recorder.directory().join("full.offwake"))?;
        let outcome = recorder.args(arguments).run()?;
        ensure!(outcome.status.code() == Some(2), "{arguments:?}: {outcome}");
        ensure!(outcome.stderr.contains(word), "{arguments:?}: {outcome}");
    }
    Ok(())
}
