//! Nobody reads the terminal: somebody has pressed Ctrl-S, or the ssh connection behind it hangs. Whoever writes
//! to it waits.

use std::{
    fs::File,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    kernel_objects::KernelObjects,
    machine_lock::MachineLock,
    offwake::Offwake,
    paths,
    wait_until::{wait_at_most, wait_until},
    workload::Workload,
};

/// How long the end may take.
const IN_TIME: Duration = Duration::from_secs(40);

/// How long after the death of offwake something of it may be in the kernel.
const FREED_IN: Duration = Duration::from_secs(1);

/// A terminal: what is written to it can be held back.
struct Terminal {
    master: File,
    slave: OwnedFd,
}

impl Terminal {
    fn open() -> Result<Self> {
        let (mut master, mut slave) = (-1, -1);
        let size = libc::winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: both numbers live here, and so does the size; a name and settings are not given.
        let opened = unsafe {
            libc::openpty(
                &raw mut master,
                &raw mut slave,
                std::ptr::null_mut(),
                std::ptr::null(),
                &raw const size,
            )
        };
        ensure!(opened == 0, "no terminal: {}", std::io::Error::last_os_error());
        // SAFETY: both have just been opened, and nobody else has them.
        let (master, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        Ok(Self { master, slave })
    }

    fn to_stdio(&self) -> Result<Stdio> {
        Ok(Stdio::from(self.slave.try_clone()?))
    }

    /// Does what Ctrl-S does.
    fn stop_output(&self) -> Result<()> {
        // SAFETY: takes plain integers; the descriptor is open.
        let stopped = unsafe { libc::tcflow(self.slave.as_raw_fd(), libc::TCOOFF) };
        ensure!(stopped == 0, "no Ctrl-S: {}", std::io::Error::last_os_error());
        Ok(())
    }
}

/// offwake, which is ended when this is dropped.
struct Running(Child);

impl Running {
    /// Starts it in `directory`. Its standard error is the terminal.
    fn start(terminal: &Terminal, directory: &Path, arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(paths::offwake_binary()?);
        command.args(arguments).current_dir(directory).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(terminal.to_stdio()?);
        Ok(Self(command.spawn()?))
    }

    /// Waits until its programs are attached, and until it waits for the terminal.
    fn wait_until_stuck(&self) -> Result<KernelObjects> {
        wait_until("a thread of offwake to wait for the terminal", || {
            let held = KernelObjects::held_by(self.0.id())?;
            let waits = waits_for_terminal(self.0.id());
            Ok((!held.links.is_empty() && waits).then_some(held))
        })
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: takes plain integers; it has not been reaped.
        unsafe { libc::kill(self.0.id().cast_signed(), signal) };
    }

    fn wait(&mut self, within: Duration) -> Result<ExitStatus> {
        wait_at_most(within, "its end", || Ok(self.0.try_wait()?))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn waits_for_terminal(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let stacks = threads.map(|thread| std::fs::read_to_string(thread.path().join("stack")));
    stacks.flatten().any(|stack| stack.contains("n_tty_write"))
}

/// Checks that nothing is left in the kernel.
fn check_freed(held: &KernelObjects) -> Result<()> {
    wait_at_most(FREED_IN, "the kernel to free everything", || {
        Ok(held.still_loaded().is_empty().then_some(()))
    })
    .with_context(|| format!("left {:?}", held.still_loaded()))
}

#[test]
fn a_terminal_that_nobody_reads_keeps_no_recording_from_its_end() -> Result<()> {
    let _alone = MachineLock::acquire()?;
    let workload = Workload::start("futex-handoff")?;
    let directory = paths::scratch_directory()?;
    let terminal = Terminal::open()?;
    terminal.stop_output()?;
    let record = ["record", "-p", &workload.pids(), "-o", "x.offwake"];
    // Its time is up, somebody ends it, and somebody kills it.
    for (duration, signal) in
        [("3s", None), ("10m", Some(libc::SIGTERM)), ("10m", Some(libc::SIGKILL))]
    {
        let arguments = [&record[..], &["-d", duration]].concat();
        let mut running = Running::start(&terminal, directory.path(), &arguments)?;
        let held = running.wait_until_stuck()?;
        if let Some(signal) = signal {
            std::thread::sleep(Duration::from_secs(1));
            running.signal(signal);
        }
        let began = Instant::now();
        let status = running.wait(IN_TIME).with_context(|| format!("{signal:?}"))?;
        eprintln!("{signal:?}: {status}: {:?}", began.elapsed());
        check_freed(&held)?;
        if signal == Some(libc::SIGKILL) {
            continue;
        }
        ensure!(status.success(), "{signal:?}: {status}");
        let report = Offwake::in_directory(directory.path())?
            .args(["report", "x.offwake", "-o", "x.json", "--full"])
            .run()?
            .report("x.json")?;
        let waiter = workload.role("waiter")?.tid;
        ensure!(report.blocked_ns(waiter, "futex") > 0, "{:?}", report.waits);
    }
    Ok(())
}

/// The view draws on it in a thread of its own, which waits for ever then.
#[test]
fn a_terminal_that_nobody_reads_keeps_no_view_from_its_end() -> Result<()> {
    let _alone = MachineLock::acquire()?;
    let workload = Workload::start("futex-handoff")?;
    for (duration, signal) in [("6s", None), ("10m", Some(libc::SIGTERM))] {
        let terminal = Terminal::open()?;
        let mut reader = terminal.master.try_clone()?;
        let mut command = Command::new(paths::offwake_binary()?);
        command.args(["top", "-p", &workload.pids(), "-d", duration]).env("TERM", "xterm");
        command.stdin(terminal.to_stdio()?).stdout(terminal.to_stdio()?);
        command.stderr(terminal.to_stdio()?);
        let mut running = Running(command.spawn()?);
        // It has the terminal open as well.
        drop(command);
        // The terminal is read until the view is there.
        let drain = std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
        wait_until("the programs to be attached", || {
            let held = KernelObjects::held_by(running.0.id())?;
            Ok((!held.links.is_empty()).then_some(()))
        })?;
        std::thread::sleep(Duration::from_secs(2));
        terminal.stop_output()?;
        let held = running.wait_until_stuck()?;
        if let Some(signal) = signal {
            running.signal(signal);
        }
        let began = Instant::now();
        let ended = running.wait(IN_TIME).with_context(|| format!("{signal:?}"));
        drop(running);
        // The master has an end when nobody has the other side.
        drop(terminal);
        drop(drain.join());
        eprintln!("{signal:?}: {:?}: {:?}", ended, began.elapsed());
        ended?;
        check_freed(&held)?;
    }
    Ok(())
}
