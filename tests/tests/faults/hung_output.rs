//! An output goes where nobody answers: to a file system that stops to ([`stopping_fs.c`](../../programs/stopping_fs.c)), or
//! into a pipe that nobody reads.

use std::{path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    kernel_objects::KernelObjects,
    machine_lock::MachineLock,
    offwake::{Offwake, Running},
    paths,
    process::descendants,
    programs::{Compiled, Program, Source},
    wait_until::{wait_at_most, wait_until},
    workload::Workload,
};
use tempfile::TempDir;

/// What one request may take before the process that writes is given up, and what a busy machine takes to end.
const IN_TIME: Duration = Duration::from_secs(30 + 30);

/// How long after the death of offwake something of it may be in the kernel.
const FREED_IN: Duration = Duration::from_secs(1);

/// The program serves a file system in memory; the mount goes with it.
pub(crate) struct StoppingFs {
    server: Program,
    /// Where it puts what it had of the recording when it fell silent.
    kept: TempDir,
}

impl StoppingFs {
    pub(crate) fn start() -> Result<Self> {
        let source = Source { compiler: "cc", file: "stopping_fs.c", flags: &["-O1"] };
        let compiled = Compiled::compile_one(source)?;
        let mount = paths::scratch_directory()?;
        let mut command = Command::new(compiled.path("stopping_fs"));
        let kept = paths::scratch_directory()?;
        command.arg(mount.path()).arg(kept.path().join("x.offwake"));
        Ok(Self { server: Program::start_and_wait(&mut command, mount)?, kept })
    }

    pub(crate) fn directory(&self) -> &Path {
        self.server.directory()
    }

    pub(crate) fn fall_silent(&mut self) -> Result<()> {
        self.server.signal_itself(libc::SIGUSR1)
    }
}

impl Drop for StoppingFs {
    fn drop(&mut self) {
        // Without a server nobody waits for it any more.
        drop(self.server.signal_itself(libc::SIGKILL));
        drop(Command::new("umount").arg("--lazy").arg(self.directory()).output());
    }
}

fn record(workload: &Workload, to: &Path, arguments: &[&str]) -> Result<Running> {
    let recorder = Offwake::in_directory(to)?
        .args(["record", "-p", &workload.pids(), "-o", "x.offwake"])
        .args(arguments)
        .start_recording()?;
    recorder.wait_for_slices("x.offwake", 2)?;
    Ok(recorder)
}

/// Waits until the process that writes waits for the file system: for an answer to what was read there
/// (<https://elixir.bootlin.com/linux/v6.12/source/fs/fuse/dev.c>), which no signal ends any more.
fn wait_until_stuck(recorder: &Running) -> Result<u32> {
    wait_until("the writer to wait for the file system", || {
        let helpers = descendants(recorder.pid())?;
        Ok(helpers.into_iter().find_map(|(pid, name)| {
            (name == "offwake-writer" && waits_in(pid, "request_wait_answer")).then_some(pid)
        }))
    })
}

fn waits_in(pid: u32, function: &str) -> bool {
    let waits = std::fs::read_to_string(format!("/proc/{pid}/stack")).unwrap_or_default();
    waits.contains(function)
}

/// The recording ends by itself: nobody has asked for its end.
#[test]
fn an_output_that_stops_to_answer_ends_the_recording_and_keeps_what_it_had_taken() -> Result<()> {
    let _shared = MachineLock::acquire_shared()?;
    let workload = Workload::start("futex-handoff")?;
    let mut fs = StoppingFs::start()?;
    let recorder = record(&workload, fs.directory(), &[])?;
    let held = KernelObjects::held_by(recorder.pid())?;
    ensure!(!held.links.is_empty(), "nothing is attached: {held:?}");
    fs.fall_silent()?;
    let outcome = recorder.outcome_within(IN_TIME)?;
    eprintln!("{:?}: {}", outcome.ran_for, outcome.stderr);
    ensure!(outcome.status.code() == Some(1), "{outcome}");
    let words = "cannot write x.offwake: its file system has not answered for 30 s: the recording ends after";
    ensure!(outcome.stderr.contains(words), "{outcome}");
    wait_at_most(FREED_IN, "the kernel to free everything", || {
        Ok(held.still_loaded().is_empty().then_some(()))
    })
    .with_context(|| format!("left {:?}", held.still_loaded()))?;
    // Nobody can look at it in its place, where the page that was written last is locked.
    let report = Offwake::in_directory(fs.kept.path())?
        .args(["report", "x.offwake", "-o", "x.json", "--full"])
        .run()?
        .report("x.json")?;
    ensure!(report.window.duration_ns > 500_000_000, "{:?}", report.window);
    let waiter = workload.role("waiter")?.tid;
    ensure!(report.blocked_ns(waiter, "futex") > 0, "{:?}", report.waits);
    Ok(())
}

/// Kills offwake while the process that writes waits for its file system. Nothing that it held may be left in the
/// kernel then, and that process has none of it.
fn kill_beside_stuck_writer(
    mut recorder: Running,
    writer: u32,
    held: &KernelObjects,
) -> Result<()> {
    let of_writer = KernelObjects::held_by(writer)?;
    ensure!(of_writer.is_empty(), "the process that writes has {of_writer:?}");
    recorder.signal(libc::SIGKILL)?;
    recorder.outcome_within(FREED_IN)?;
    wait_at_most(FREED_IN, "the kernel to free everything", || {
        Ok(held.still_loaded().is_empty().then_some(()))
    })
    .with_context(|| format!("left {:?}", held.still_loaded()))
}

#[test]
fn killed_while_its_output_does_not_answer_it_leaves_nothing_in_the_kernel() -> Result<()> {
    let workload = Workload::start("futex-handoff")?;
    let mut fs = StoppingFs::start()?;
    let recorder = record(&workload, fs.directory(), &[])?;
    let held = KernelObjects::held_by(recorder.pid())?;
    ensure!(!held.links.is_empty(), "nothing is attached: {held:?}");
    fs.fall_silent()?;
    let writer = wait_until_stuck(&recorder)?;
    kill_beside_stuck_writer(recorder, writer, &held)
}

/// A second Ctrl-C leaves at once, whatever is being waited for.
#[test]
fn a_second_interrupt_ends_it_at_once_while_its_output_does_not_answer() -> Result<()> {
    let workload = Workload::start("futex-handoff")?;
    let mut fs = StoppingFs::start()?;
    let mut recorder = record(&workload, fs.directory(), &[])?;
    fs.fall_silent()?;
    wait_until_stuck(&recorder)?;
    recorder.signal(libc::SIGINT)?;
    std::thread::sleep(Duration::from_secs(1));
    recorder.signal(libc::SIGINT)?;
    let outcome = recorder.outcome_within(Duration::from_secs(5))?;
    ensure!(outcome.status.code() == Some(130), "{outcome}");
    Ok(())
}

/// Kills the process that writes, and waits until there is another one, or none any more.
fn kill_writer(recorder: &Running) -> Result<Option<u32>> {
    let find = || -> Result<Option<u32>> {
        let helpers = descendants(recorder.pid())?;
        Ok(helpers.into_iter().find_map(|(pid, name)| (name == "offwake-writer").then_some(pid)))
    };
    let Some(writer) = find()? else { return Ok(None) };
    // SAFETY: takes plain integers; its parent has not reaped it.
    unsafe { libc::kill(writer.cast_signed(), libc::SIGKILL) };
    wait_until("another process that writes", || {
        let ended = !Path::new(&format!("/proc/{}", recorder.pid())).exists();
        let next = find()?.filter(|next| *next != writer);
        Ok((ended || next.is_some() || !has_ended_slowly(recorder.pid())?).then_some(next))
    })
}

/// Whether a process still records: it has programs attached.
fn has_ended_slowly(pid: u32) -> Result<bool> {
    Ok(KernelObjects::held_by(pid).is_ok_and(|held| !held.links.is_empty()))
}

/// Another process goes on with the file: nothing is lost, names included.
#[test]
fn the_death_of_the_process_that_writes_costs_nothing() -> Result<()> {
    let workload = Workload::start("futex-handoff")?;
    let directory = paths::scratch_directory()?;
    let recorder = record(&workload, directory.path(), &[])?;
    for _ in 0..2 {
        kill_writer(&recorder)?.context("nobody writes")?;
        recorder.wait_for_slices("x.offwake", 2)?;
    }
    let outcome = recorder.interrupt()?;
    let report = outcome.report_of("x.offwake", &["-o", "x.json", "--full"])?.report("x.json")?;
    ensure!(report.recording.is_whole(), "{:?}", report.recording);
    let waiter = workload.role("waiter")?.tid;
    ensure!(report.blocked_ns(waiter, "futex") > 0, "{:?}", report.waits);
    let is_named = report.waits.iter().any(|waits| waits.has_frame("main"));
    ensure!(is_named, "functions have no names: {:?}", report.waits);
    Ok(())
}

/// There are five starts.
#[test]
fn who_writes_and_dies_again_and_again_ends_the_recording_with_what_there_is() -> Result<()> {
    let workload = Workload::start("futex-handoff")?;
    let directory = paths::scratch_directory()?;
    let recorder = record(&workload, directory.path(), &[])?;
    let mut kills = 0;
    while has_ended_slowly(recorder.pid())? && kill_writer(&recorder)?.is_some() {
        kills += 1;
        ensure!(kills < 10, "it is started again for ever");
    }
    let outcome = recorder.outcome()?;
    ensure!(outcome.status.code() == Some(1), "{outcome}");
    let words = "cannot write x.offwake: the process that writes died: the recording ends after";
    ensure!(outcome.stderr.contains(words), "{outcome}");
    let lost = "the names of its functions are lost";
    ensure!(outcome.stderr.contains(lost), "{outcome}");
    let report = outcome.report_of("x.offwake", &["-o", "x.json", "--full"])?.report("x.json")?;
    ensure!(report.blocked_ns(workload.role("waiter")?.tid, "futex") > 0, "{:?}", report.waits);
    Ok(())
}

/// Whoever would write the report can be given up, as nothing is attached any more.
#[test]
fn a_report_whose_output_stops_to_answer_ends_in_time_and_leaves_nothing_in_the_kernel()
-> Result<()> {
    let _shared = MachineLock::acquire_shared()?;
    let workload = Workload::start("futex-handoff")?;
    let mut fs = StoppingFs::start()?;
    let mut recorder = Offwake::in_directory(fs.directory())?
        .args(["profile", "-p", &workload.pids(), "-o", "x.json"])
        .start_recording()?;
    let held = KernelObjects::held_by(recorder.pid())?;
    ensure!(!held.links.is_empty(), "nothing is attached: {held:?}");
    fs.fall_silent()?;
    recorder.signal(libc::SIGINT)?;
    wait_until_stuck_anywhere(&recorder)?;
    ensure!(held.still_loaded().is_empty(), "it has {:?}", held.still_loaded());
    let outcome = recorder.outcome_within(IN_TIME)?;
    ensure!(outcome.status.code() == Some(1), "{outcome}");
    let words = "cannot write x.json: its file system has not answered for 30 s";
    ensure!(outcome.stderr.contains(words), "{outcome}");
    Ok(())
}

/// As [`wait_until_stuck`], before the request is read, too.
fn wait_until_stuck_anywhere(recorder: &Running) -> Result<u32> {
    wait_until("the writer to wait for the file system", || {
        let helpers = descendants(recorder.pid())?;
        Ok(helpers.into_iter().find_map(|(pid, name)| {
            (name == "offwake-writer" && waits_in(pid, "fuse_")).then_some(pid)
        }))
    })
}

/// The programs are attached while snapshots are written.
#[test]
fn a_snapshot_that_can_not_be_written_costs_that_snapshot_and_nothing_is_left_in_the_kernel()
-> Result<()> {
    let workload = Workload::start("futex-handoff")?;
    let mut fs = StoppingFs::start()?;
    let mut recorder = Offwake::in_directory(fs.directory())?
        .args(["record", "--keep", "5s", "-p", &workload.pids(), "-o", "x.offwake"])
        .start_recording()?;
    let held = KernelObjects::held_by(recorder.pid())?;
    fs.fall_silent()?;
    recorder.signal(libc::SIGUSR1)?;
    let writer = wait_until_stuck_anywhere(&recorder)?;
    kill_beside_stuck_writer(recorder, writer, &held)
}

#[test]
fn an_output_that_does_not_answer_as_a_run_starts_is_told_in_one_line() -> Result<()> {
    let _shared = MachineLock::acquire_shared()?;
    let workload = Workload::start("futex-handoff")?;
    let mut fs = StoppingFs::start()?;
    fs.fall_silent()?;
    let x = fs.directory().join("x.offwake");
    let elsewhere = paths::scratch_directory()?;
    for command in ["record", "profile"] {
        let outcome = Offwake::in_directory(elsewhere.path())?
            .args([command, "-d", "1s", "-p", &workload.pids(), "-o"])
            .arg(&x)
            .start()?
            .outcome_within(IN_TIME)?;
        outcome.check_failure(1, &["cannot write", "its file system has not answered for 30 s"])?;
    }
    Ok(())
}

/// Whoever reads may have been stopped.
#[test]
fn a_pipe_that_nobody_reads_ends_the_recording() -> Result<()> {
    let _shared = MachineLock::acquire_shared()?;
    let workload = Workload::start("futex-handoff")?;
    let directory = paths::scratch_directory()?;
    let fifo = directory.path().join("pipe.offwake");
    let made = Command::new("mkfifo").arg(&fifo).status()?;
    ensure!(made.success(), "mkfifo: {made}");
    // To open it for both does not wait for anybody.
    let reader = std::fs::File::options().read(true).write(true).open(&fifo)?;
    let recorder = Offwake::in_directory(directory.path())?
        .args(["record", "-a", "-o", "pipe.offwake"])
        .start_recording()?;
    let held = KernelObjects::held_by(recorder.pid())?;
    let outcome = recorder.outcome_within(IN_TIME)?;
    ensure!(outcome.status.code() == Some(1), "{outcome}");
    let words =
        "cannot write pipe.offwake: it has not been read for 30 s: the recording ends after";
    ensure!(outcome.stderr.contains(words), "{outcome}");
    ensure!(held.still_loaded().is_empty(), "left {:?}", held.still_loaded());
    drop(reader);
    drop(workload);
    Ok(())
}

/// Ctrl-C ends a program that writes to somebody who does not read.
#[test]
fn a_report_that_nobody_reads_is_ended_by_an_interrupt() -> Result<()> {
    let workload = Workload::start("futex-handoff")?;
    let directory = paths::scratch_directory()?;
    let (reader, writer) = std::io::pipe()?;
    let mut child = Command::new(paths::offwake_binary()?)
        .args(["profile", "-d", "1s", "-p", &workload.pids(), "-o", "-", "--format", "html"])
        .current_dir(directory.path())
        .stdout(writer)
        .stderr(std::process::Stdio::null())
        .spawn()?;
    let waited = wait_until("it to wait for its reader", || {
        Ok(waits_in(child.id(), "pipe_write").then_some(()))
    });
    // SAFETY: takes plain integers; it has not been reaped.
    unsafe { libc::kill(child.id().cast_signed(), libc::SIGINT) };
    let ended = waited
        .and_then(|()| wait_at_most(Duration::from_secs(5), "its end", || Ok(child.try_wait()?)));
    if ended.is_err() {
        child.kill()?;
        child.wait()?;
    }
    drop(reader);
    ended.map(drop)
}
