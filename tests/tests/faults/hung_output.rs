//! A recording goes to a file system that stops to answer: [`stopping_fs.c`](../../programs/stopping_fs.c).

use std::{path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    kernel_objects::KernelObjects,
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
struct StoppingFs {
    server: Program,
    /// Where it puts what it had of the recording when it fell silent.
    kept: TempDir,
}

impl StoppingFs {
    fn start() -> Result<Self> {
        let source = Source { compiler: "cc", file: "stopping_fs.c", flags: &["-O1"] };
        let compiled = Compiled::compile_one(source)?;
        let mount = paths::scratch_directory()?;
        let mut command = Command::new(compiled.path("stopping_fs"));
        let kept = paths::scratch_directory()?;
        command.arg(mount.path()).arg(kept.path().join("x.offwake"));
        Ok(Self { server: Program::start_and_wait(&mut command, mount)?, kept })
    }

    fn directory(&self) -> &Path {
        self.server.directory()
    }

    fn fall_silent(&mut self) -> Result<()> {
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

#[test]
fn killed_while_its_output_does_not_answer_it_leaves_nothing_in_the_kernel() -> Result<()> {
    let workload = Workload::start("futex-handoff")?;
    let mut fs = StoppingFs::start()?;
    let mut recorder = record(&workload, fs.directory(), &[])?;
    let held = KernelObjects::held_by(recorder.pid())?;
    ensure!(!held.links.is_empty(), "nothing is attached: {held:?}");
    fs.fall_silent()?;
    let writer = wait_until_stuck(&recorder)?;
    let of_writer = KernelObjects::held_by(writer)?;
    ensure!(of_writer.is_empty(), "the process that writes has {of_writer:?}");
    recorder.signal(libc::SIGKILL)?;
    recorder.outcome_within(FREED_IN)?;
    wait_at_most(FREED_IN, "the kernel to free everything", || {
        Ok(held.still_loaded().is_empty().then_some(()))
    })
    .with_context(|| format!("left {:?}", held.still_loaded()))
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

/// The process that writes has no room for a second one: what it has taken is there.
#[test]
fn without_the_process_that_writes_the_recording_ends_at_once_with_what_there_is() -> Result<()> {
    let workload = Workload::start("futex-handoff")?;
    let directory = paths::scratch_directory()?;
    let recorder = record(&workload, directory.path(), &[])?;
    let helpers = descendants(recorder.pid())?;
    let writer = helpers.into_iter().find(|(_, name)| name == "offwake-writer");
    let (writer, _) = writer.context("nobody writes")?;
    // SAFETY: takes plain integers; its parent has not reaped it.
    unsafe { libc::kill(writer.cast_signed(), libc::SIGKILL) };
    let outcome = recorder.outcome()?;
    ensure!(outcome.status.code() == Some(1), "{outcome}");
    let words = "cannot write x.offwake: the process that writes died: the recording ends after";
    ensure!(outcome.stderr.contains(words), "{outcome}");
    let report = outcome.report_of("x.offwake", &["-o", "x.json", "--full"])?.report("x.json")?;
    ensure!(report.blocked_ns(workload.role("waiter")?.tid, "futex") > 0, "{:?}", report.waits);
    Ok(())
}
