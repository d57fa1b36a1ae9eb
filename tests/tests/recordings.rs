//! `record` and `report`: what was recorded is reported later and by anybody, and whatever happens
//! to the recorder, its disk or its target costs no more than it must.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    case::{WINDOW, duration_argument},
    clock,
    full_disk::SmallDisk,
    offwake::{NOBODY, Offwake, Outcome},
    paths,
    process::{Process, wait_for_state},
    workload::Workload,
};

/// Records a workload for a while.
fn record(workload: &Workload) -> Result<Outcome> {
    let outcome = Offwake::record()?
        .args(["-d", &duration_argument(WINDOW), "-p", &workload.pids(), "-o", "x.offwake"])
        .run()?;
    ensure!(outcome.status.success(), "{outcome}");
    Ok(outcome)
}

#[test]
fn a_report_made_later_by_nobody_is_the_same_byte_for_byte() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let profile = Offwake::profile()?
        .args(["-d", &duration_argument(WINDOW), "-p", &workload.pids(), "-o", "x.offwake"])
        .args(["-o", "x.json", "-o", "x.folded", "-o", "x.svg"])
        .run()?;
    ensure!(profile.status.success(), "{profile}");
    drop(workload);
    // The directory and what is in it are nobody's from here on.
    let directory = profile.path("");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777))?;
    fs::set_permissions(profile.path("x.offwake"), fs::Permissions::from_mode(0o644))?;
    for turn in ["first", "second"] {
        let names = ["json", "folded", "svg"].map(|format| format!("{turn}.{format}"));
        let report = Offwake::in_directory(&directory)?
            .args(["report", "x.offwake", "-o", &names[0], "-o", &names[1], "-o", &names[2]])
            .as_nobody()
            .run()?;
        ensure!(report.status.success(), "{report}");
        for (format, name) in ["json", "folded", "svg"].iter().zip(&names) {
            let at_once = fs::read(profile.path(&format!("x.{format}")))?;
            ensure!(fs::read(profile.path(name))? == at_once, "the {turn} {format} differs");
        }
        // What the terminal shows, the lines about files aside.
        let summary = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with("wrote ")).map(str::to_owned).collect()
        };
        ensure!(summary(&report.stdout) == summary(&profile.stdout), "{report}");
    }
    Ok(())
}

#[test]
fn a_recording_says_who_waited_for_whom() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let recorded = record(&workload)?;
    let mode = fs::metadata(recorded.path("x.offwake"))?.permissions().mode() & 0o777;
    ensure!(mode == 0o600, "a recording that others may read: {mode:o}");
    let outcome = recorded.report_of("x.offwake", &["-o", "x.json"])?;
    let report = outcome.report("x.json")?;
    ensure!(report.meta.closed_by == "duration" && !report.recording.cut_off);
    let (client, server) = (workload.role("client")?, workload.role("server")?);
    let woken = report.wakes.iter().any(|wakes| {
        wakes.wakee.tid == client.tid && wakes.waker.tid == Some(server.tid) && wakes.count > 10
    });
    ensure!(woken, "the server did not wake the client: {:?}", report.wakes);
    Ok(())
}

#[test]
fn the_reader_of_a_fifo_gets_all_of_a_recording() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let offwake = Offwake::record()?;
    let directory = offwake.directory().to_owned();
    let made = Command::new("mkfifo").arg(directory.join("fifo.offwake")).status()?;
    ensure!(made.success(), "mkfifo: {made}");
    // The reader opens it once, and leaves at the first end of file.
    let read = "exec timeout 60 cat fifo.offwake > x.offwake";
    let mut reader = Command::new("sh").args(["-c", read]).current_dir(&directory).spawn()?;
    let outcome =
        offwake.args(["-d", "500ms", "-p", &workload.pids(), "-o", "fifo.offwake"]).run()?;
    ensure!(outcome.status.success(), "{outcome}");
    ensure!(reader.wait()?.success(), "the reader saw no end");
    let report = outcome.report_of("x.offwake", &["-o", "x.json"])?.report("x.json")?;
    ensure!(report.meta.closed_by == "duration" && !report.recording.cut_off);
    Ok(())
}

#[test]
fn under_sudo_the_recording_is_the_callers() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let outcome = Offwake::record()?
        .args(["-d", "200ms", "-p", &workload.pids(), "-o", "x.offwake"])
        .called_by_nobody()?
        .run()?;
    ensure!(outcome.status.success(), "{outcome}");
    let metadata = fs::metadata(outcome.path("x.offwake"))?;
    ensure!((metadata.uid(), metadata.gid()) == (NOBODY, NOBODY), "{metadata:?}");
    fs::set_permissions(outcome.path(""), fs::Permissions::from_mode(0o777))?;
    let report = Offwake::in_directory(&outcome.path(""))?
        .args(["report", "x.offwake", "-o", "x.json"])
        .as_nobody()
        .run()?;
    ensure!(report.status.success(), "{report}");
    Ok(())
}

#[test]
fn a_recording_can_go_through_a_pipe() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let directory = paths::scratch_directory()?;
    let script =
        r#""$0" record -d 500ms -p "$1" -o - | tee piped.offwake | "$0" report - -o y.json"#;
    let status = Command::new("sh")
        .args(["-c", script])
        .arg(paths::offwake_binary()?)
        .arg(workload.pids())
        .current_dir(directory.path())
        .status()?;
    ensure!(status.success(), "{status}");
    let report = Offwake::in_directory(directory.path())?
        .args(["report", "piped.offwake", "-o", "x.json"])
        .run()?;
    let text = report.text("x.json")?;
    let report = report.report("x.json")?;
    ensure!(report.blocked_ns(workload.role("client")?.tid, "pipe") > 0);
    ensure!(fs::read_to_string(directory.path().join("y.json"))? == text);
    Ok(())
}

#[test]
fn killing_the_recorder_costs_no_more_than_the_last_second() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let mut running =
        Offwake::record()?.args(["-p", &workload.pids(), "-o", "x.offwake"]).start_recording()?;
    // A second each.
    running.wait_for_slices("x.offwake", 3)?;
    running.wait_for_pause("x.offwake")?;
    let killed_at = clock::now_ns();
    running.signal(libc::SIGKILL)?;
    let outcome = running.outcome()?;
    ensure!(!outcome.status.success(), "{outcome}");
    let reported = outcome.report_of("x.offwake", &["-o", "x.json"])?;
    ensure!(reported.stdout.contains("CUT OFF"), "{reported}");
    let report = reported.report("x.json")?;
    ensure!(report.recording.cut_off && report.meta.closed_by == "cut_off");
    let missing = Duration::from_nanos(killed_at.saturating_sub(report.window.end_ns));
    // A second, and what a busy machine needs to write.
    ensure!(missing < Duration::from_millis(1500), "{missing:?} are missing");
    ensure!(report.window.duration_ns > 1_000_000_000, "{:?}", report.window);
    let client = workload.role("client")?.tid;
    ensure!(report.blocked_ns(client, "pipe") > 0, "nothing about the client");
    Ok(())
}

#[test]
fn a_full_disk_ends_the_recording_with_what_fits() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let small = paths::scratch_directory()?;
    let _disk = SmallDisk::mount(small.path(), "512k")?;
    let recording = small.path().join("x.offwake");
    // No duration: it is the disk that ends it. Everybody is recorded, so that it fills soon.
    let outcome = Offwake::in_directory(small.path())?
        .args(["record", "-p", &workload.pids(), "-o"])
        .arg(&recording)
        .run()?;
    outcome.check_failure(1, &["no space"])?;
    ensure!(outcome.stderr.contains("x.offwake"), "{outcome}");
    let directory = paths::scratch_directory()?;
    let reported = Offwake::in_directory(directory.path())?
        .args(["report", "-o", "x.json"])
        .arg(&recording)
        .run()?;
    ensure!(reported.stdout.contains("no more room"), "{reported}");
    let report = reported.report("x.json")?;
    ensure!(report.meta.closed_by == "disk_full" && !report.recording.cut_off);
    ensure!(report.loss_count("records_unwritten") > 0);
    // Names still found room.
    let client = workload.role("client")?.tid;
    let waits = report.waits.iter().find(|waits| waits.tid == client);
    let waits = waits.context("nothing about the client")?;
    ensure!(waits.has_frame("pipe_read"), "{:?}", waits.stack);
    Ok(())
}

#[test]
fn a_recorder_that_can_not_begin_leaves_the_old_recording() -> Result<()> {
    let directory = paths::scratch_directory()?;
    fs::write(directory.path().join("x.offwake"), "the old one")?;
    let outcome = Offwake::in_directory(directory.path())?
        .args(["record", "-p", "4194304", "-o", "x.offwake"])
        .run()?;
    outcome.check_failure(1, &["4194304"])?;
    ensure!(fs::read_to_string(directory.path().join("x.offwake"))? == "the old one");
    let left = fs::read_dir(directory.path())?.count();
    ensure!(left == 1, "{left} files are left");
    Ok(())
}

#[test]
fn a_target_that_execs_and_dies_is_recorded_to_its_end() -> Result<()> {
    let (_, report) = Offwake::record()?
        .args(["-o", "x.offwake", "--", "sh", "-c", "sleep 0.2; exec sleep 0.3"])
        .run()?
        .report_on("x.offwake")?;
    ensure!(report.meta.closed_by == "command", "{:?}", report.meta);
    let slept: u64 = report.waits.iter().filter(|w| w.cause == "timer").map(|w| w.blocked_ns).sum();
    ensure!((450_000_000..700_000_000).contains(&slept), "slept for {slept} ns");
    let comms: Vec<&str> = report.waits.iter().map(|waits| waits.comm.as_str()).collect();
    ensure!(comms.contains(&"sh") && comms.contains(&"sleep"), "{comms:?}");
    Ok(())
}

/// ```text
/// first thread  --- sleeps ------------+ ends
/// second        --- sleeps 0.2 s --exec+
/// after that, under the first's tid    +- sleeps 0.3 s -+
/// ```
const EXEC_FROM_A_THREAD: &str = "\
import os, threading, time
def become_another():
    time.sleep(0.2)
    os.execvp('sleep', ['sleep', '0.3'])
threading.Thread(target=become_another).start()
time.sleep(1000)
";

#[test]
fn a_thread_that_execs_and_gets_another_tid_loses_no_time() -> Result<()> {
    let (_, report) = Offwake::record()?
        .args(["-o", "x.offwake", "--", "python3", "-c", EXEC_FROM_A_THREAD])
        .run()?
        .report_on("x.offwake")?;
    let threads = &report.threads;
    let slept = |is_first: bool, comm: &str| {
        let thread = threads.iter().find(|t| (t.tid == t.tgid, &*t.comm) == (is_first, comm));
        let external = thread.map(|thread| thread.external.get("timer").copied());
        external.flatten().with_context(|| format!("no {comm} slept: {threads:?}"))
    };
    let second = threads.iter().find(|thread| thread.tid != thread.tgid).context("one thread")?;
    let slept_before = slept(false, &second.comm)?;
    ensure!((190_000_000..300_000_000).contains(&slept_before), "{second:?}");
    let slept_after = slept(true, "sleep")?;
    ensure!((290_000_000..400_000_000).contains(&slept_after), "{threads:?}");
    // It ended where the other program began.
    let lived_after = second.wall_ns + 250_000_000;
    ensure!(lived_after < report.window.duration_ns, "{second:?} {:?}", report.window);
    let lost: u64 = threads.iter().map(offwake_tests::report::Thread::lost_ns).sum();
    ensure!(lost < 1_000_000, "{lost} ns are lost: {threads:?}");
    Ok(())
}

#[test]
fn a_target_that_is_killed_meanwhile_ends_there() -> Result<()> {
    let mut target = Process::start("sleep", &["1000"])?;
    let running = Offwake::record()?
        .args(["-p", &target.pid().to_string(), "-o", "x.offwake"])
        .start_recording()?;
    target.end()?;
    let died_at = clock::now_ns();
    // The recorder goes on without its target.
    running.wait_for_slices("x.offwake", 1)?;
    running.wait_for_pause("x.offwake")?;
    let (_, report) = running.interrupt()?.report_on("x.offwake")?;
    let [thread] = report.threads.as_slice() else {
        anyhow::bail!("{:?}", report.threads);
    };
    ensure!(thread.wall_ns <= died_at.saturating_sub(report.window.start_ns), "{thread:?}");
    ensure!(thread.wall_ns < report.window.duration_ns, "{thread:?} {:?}", report.window);
    Ok(())
}

#[test]
fn a_target_that_is_stopped_meanwhile_says_so() -> Result<()> {
    let target = Process::start("sleep", &["1000"])?;
    let pid = target.pid();
    let running =
        Offwake::record()?.args(["-p", &pid.to_string(), "-o", "x.offwake"]).start_recording()?;
    let send = |signal: libc::c_int| {
        // SAFETY: takes plain integers; the process is not reaped before the end of this test.
        let sent = unsafe { libc::kill(pid.cast_signed(), signal) };
        ensure!(sent == 0, "signal {signal} was not sent");
        Ok(())
    };
    send(libc::SIGSTOP)?;
    wait_for_state(pid, 'T')?;
    let stopped_at = clock::now_ns();
    // As long as a slice lasts.
    running.wait_for_slices("x.offwake", 1)?;
    running.wait_for_pause("x.offwake")?;
    let continued_at = clock::now_ns();
    send(libc::SIGCONT)?;
    wait_for_state(pid, 'S')?;
    let (_, report) = running.interrupt()?.report_on("x.offwake")?;
    let stopped = report.blocked_ns(pid, "stopped");
    let least = continued_at.saturating_sub(stopped_at);
    ensure!(stopped >= least, "stopped for {stopped} ns, at least {least} were seen");
    // What signals and this test's own looks take.
    ensure!(stopped < least + 500_000_000, "stopped for {stopped} ns, {least} were seen");
    Ok(())
}

#[test]
fn names_can_be_looked_up_again_after_a_kill() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let mut running =
        Offwake::record()?.args(["-p", &workload.pids(), "-o", "x.offwake"]).start_recording()?;
    running.wait_for_slices("x.offwake", 1)?;
    running.wait_for_pause("x.offwake")?;
    running.signal(libc::SIGKILL)?;
    let outcome = running.outcome()?;
    let client = workload.role("client")?.tid;
    let named = |name: &str, arguments: &[&str]| -> Result<bool> {
        let reported = outcome.report_of("x.offwake", &[&["-o", name], arguments].concat())?;
        let report = reported.report(name)?;
        let mut waits = report.waits_of(client, None);
        Ok(waits.any(|waits| waits.has_frame("pipe_read") && waits.has_frame("offwake_tests")))
    };
    ensure!(!named("before.json", &[])?, "there are names in a recording that was cut off");
    ensure!(named("after.json", &["--resymbolize"])?, "no names after they were looked up again");
    // What was looked up can be kept.
    let kept = outcome.report_of("x.offwake", &["--resymbolize", "-o", "named.offwake"])?;
    ensure!(kept.status.success(), "{kept}");
    let reported = outcome.report_of("named.offwake", &["-o", "kept.json"])?;
    let (kept, after) = (reported.report("kept.json")?, outcome.text("after.json")?);
    ensure!(after.contains("pipe_read") && !kept.waits.is_empty());
    Ok(())
}
