//! Running the real offwake.

use std::{
    env,
    ffi::OsStr,
    fs::{self, File},
    io::{Read, Seek},
    iter,
    os::unix::{
        fs::{FileExt as _, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::{
    ledger,
    machine_lock::MachineLock,
    paths,
    report::Report,
    wait_until::{deadline, wait_at_most, wait_until},
};

/// The user and the group of nobody in particular.
pub const NOBODY: u32 = 65534;

/// How offwake's life ended.
#[derive(Debug)]
pub struct Outcome {
    /// offwake's exit status.
    pub status: ExitStatus,
    /// All that it wrote to standard output.
    pub stdout: String,
    /// All that it wrote to standard error.
    pub stderr: String,
    /// How long it ran.
    pub ran_for: Duration,
    /// The directory with the output files, under the names given.
    directory: PathBuf,
    // Keeps the directory.
    held: Option<TempDir>,
}

/// An offwake to be run.
pub struct Offwake {
    command: Command,
    directory: PathBuf,
    held: Option<TempDir>,
}

/// An offwake that runs; it is ended when this is dropped.
pub struct Running {
    child: Child,
    began: Instant,
    stdout: File,
    stderr: File,
    directory: PathBuf,
    held: Option<TempDir>,
    _machine_lock: MachineLock,
}

impl Offwake {
    /// `offwake profile`, its output files in a directory of its own.
    ///
    /// # Errors
    ///
    /// When there is no offwake, or we are not root.
    pub fn profile() -> Result<Self> {
        Self::in_scratch("profile")
    }

    /// `offwake record`, into a directory of its own.
    ///
    /// # Errors
    ///
    /// When there is no offwake, or we are not root.
    pub fn record() -> Result<Self> {
        Self::in_scratch("record")
    }

    /// `offwake demo`, its output files in a directory of its own.
    ///
    /// # Errors
    ///
    /// When there is no offwake, or we are not root.
    pub fn demo() -> Result<Self> {
        Self::in_new_directory("demo")
    }

    fn in_scratch(command: &str) -> Result<Self> {
        let offwake = Self::in_new_directory(command)?;
        // Where user stacks are unwound by frame pointers alone.
        Ok(match env::var_os("OFFWAKE_TEST_UNWIND") {
            Some(method) => offwake.arg("--unwind").arg(method),
            None => offwake,
        })
    }

    fn in_new_directory(command: &str) -> Result<Self> {
        let held = paths::scratch_directory()?;
        let offwake = Self::in_directory(held.path())?.arg(command);
        Ok(Self { held: Some(held), ..offwake })
    }

    /// offwake with no arguments yet, run in `directory`.
    ///
    /// # Errors
    ///
    /// When there is no offwake, or we are not root.
    pub fn in_directory(directory: &Path) -> Result<Self> {
        // SAFETY: takes nothing, cannot fail.
        ensure!(unsafe { libc::geteuid() } == 0, "these tests run the real thing: they want root");
        let mut command = Command::new(paths::offwake_binary()?);
        command.current_dir(directory).stdin(Stdio::null());
        Ok(Self { command, directory: directory.to_owned(), held: None })
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.command.args(arguments);
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it as sudo does for nobody, in a directory of nobody's.
    ///
    /// # Errors
    ///
    /// When the directory can't be given away.
    pub fn called_by_nobody(self) -> Result<Self> {
        chown(&self.directory, Some(NOBODY), Some(NOBODY)).context("cannot give it away")?;
        let id = NOBODY.to_string();
        Ok(self.env("SUDO_UID", &id).env("SUDO_GID", &id))
    }

    /// Runs it as nobody.
    #[must_use]
    pub fn as_nobody(mut self) -> Self {
        // The standard library also drops the supplementary groups.
        self.command.uid(NOBODY).gid(NOBODY);
        self
    }

    /// Uses another copy of the binary.
    #[must_use]
    pub fn binary(mut self, path: &Path) -> Self {
        let mut command = Command::new(path);
        command.current_dir(&self.directory).stdin(Stdio::null());
        self.command = command;
        self
    }

    /// Where its output files go.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Starts offwake, once the machine lock is acquired.
    ///
    /// # Errors
    ///
    /// When it can't be started.
    pub fn start(mut self) -> Result<Running> {
        let machine_lock = MachineLock::acquire()?;
        // Files, not pipes: nobody needs to empty them.
        let stdout = tempfile::tempfile().context("cannot make a file for standard output")?;
        let stderr = tempfile::tempfile().context("cannot make a file for standard error")?;
        self.command.stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
        let child = self.command.spawn().context("cannot start offwake")?;
        Ok(Running {
            child,
            began: Instant::now(),
            stdout,
            stderr,
            directory: self.directory,
            held: self.held,
            _machine_lock: machine_lock,
        })
    }

    /// Starts it, and waits until it records.
    ///
    /// # Errors
    ///
    /// As [`Offwake::start`] and [`Running::wait_until_recording`].
    pub fn start_recording(self) -> Result<Running> {
        let mut running = self.start()?;
        running.wait_until_recording()?;
        Ok(running)
    }

    /// Runs it to its end.
    ///
    /// # Errors
    ///
    /// When it can't be started, or does not end by the deadline.
    pub fn run(self) -> Result<Outcome> {
        self.start()?.outcome()
    }
}

impl Running {
    /// Where its output files go.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// offwake's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The path of an output file.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Waits until it records: the number of programs that it has attached is no longer 0, and no
    /// longer grows.
    ///
    /// # Errors
    ///
    /// When it ends instead, or does not by the deadline.
    pub fn wait_until_recording(&mut self) -> Result<()> {
        /// Looks with the same answer, 5 ms apart: attaching the next program takes less.
        const SAME: u32 = 100;
        let (mut before, mut same) = (0, 0);
        wait_until("offwake to record", || {
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "offwake ended before it recorded: {status}: {}",
                    read_contents(&mut self.stderr)?
                );
            }
            let links = count_attached_links(self.child.id())?;
            same = if links == before { same + 1 } else { 0 };
            before = links;
            Ok((links > 0 && same >= SAME).then_some(()))
        })
    }

    /// Waits until it has written so many more slices of a recording. What it had seen by now is in
    /// the first of them, what has happened by now in the second.
    ///
    /// # Errors
    ///
    /// When it has not by the deadline.
    pub fn wait_for_slices(&self, recording: &str, number: u32) -> Result<()> {
        let path = self.path(recording);
        // There may be nothing yet.
        let size = || fs::metadata(&path).map_or(0, |metadata| metadata.len());
        for _ in 0..number {
            let before = size();
            wait_until("another slice", || Ok((size() > before).then_some(())))?;
        }
        Ok(())
    }

    /// Waits until it writes nothing for a moment: a slice takes several writes, and the next one
    /// comes a second later. With a flood to record, it never pauses.
    ///
    /// # Errors
    ///
    /// When it has not by the deadline.
    pub fn wait_for_pause(&self, recording: &str) -> Result<()> {
        let path = self.path(recording);
        wait_until("the end of the slice", || {
            let written = fs::metadata(&path)?.len();
            std::thread::sleep(Duration::from_millis(200));
            Ok((fs::metadata(&path)?.len() == written).then_some(()))
        })
    }

    /// What it has said on standard error until now.
    ///
    /// # Errors
    ///
    /// When that can't be read.
    pub fn said(&self) -> Result<String> {
        let length = usize::try_from(self.stderr.metadata()?.len())?;
        let mut bytes = vec![0; length];
        // offwake writes where the file's position is, so that must stay.
        self.stderr.read_exact_at(&mut bytes, 0)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Sends a signal.
    ///
    /// # Errors
    ///
    /// When it has ended already.
    pub fn signal(&mut self, signal: libc::c_int) -> Result<()> {
        ensure!(self.child.try_wait()?.is_none(), "offwake has ended before the signal");
        // SAFETY: takes plain integers; the process has not been reaped, so the id is still its.
        unsafe { libc::kill(self.child.id().cast_signed(), signal) };
        Ok(())
    }

    /// Ends it as Ctrl-C does.
    ///
    /// # Errors
    ///
    /// When it has ended already, fails, or does not end by the deadline.
    pub fn interrupt(mut self) -> Result<Outcome> {
        self.signal(libc::SIGINT)?;
        let outcome = self.outcome()?;
        ensure!(outcome.status.success(), "{outcome}");
        Ok(outcome)
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// When it does not end by the deadline.
    pub fn outcome(self) -> Result<Outcome> {
        self.outcome_within(deadline())
    }

    /// Waits for its end, at most for `deadline`.
    ///
    /// # Errors
    ///
    /// When it does not end by the deadline.
    pub fn outcome_within(mut self, deadline: Duration) -> Result<Outcome> {
        let ended = wait_at_most(deadline, "offwake's end", || Ok(self.child.try_wait()?))
            .with_context(|| describe_threads(self.child.id()));
        let (stdout, stderr) = (read_contents(&mut self.stdout)?, read_contents(&mut self.stderr)?);
        let status = ended.with_context(|| format!("standard error: {stderr}"))?;
        Ok(Outcome {
            status,
            stdout,
            stderr,
            ran_for: self.began.elapsed(),
            directory: self.directory.clone(),
            held: self.held.take(),
        })
    }
}

/// Describes what each thread of a process and of its children does, for a test that waited for its end in
/// vain: a thread that gets no CPU is told from one that waits for something.
fn describe_threads(pid: u32) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let children = read(&format!("/proc/{pid}/task/{pid}/children"));
    let numbers = children.split_ascii_whitespace().filter_map(|number| number.parse().ok());
    let mut lines = vec![format!("load average: {}", read("/proc/loadavg").trim())];
    lines.push(
        "thread: state; ns on a CPU, ns waiting for one, times on one; in the kernel".to_owned(),
    );
    for process in iter::once(pid).chain(numbers) {
        let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let file = |name: &str| read(&thread.path().join(name).display().to_string());
            let (name, status, stack) = (file("comm"), file("status"), file("stack"));
            let state = status.lines().find_map(|line| line.strip_prefix("State:"));
            lines.push(format!(
                "{process} {}: {}; {}; {}",
                name.trim(),
                state.unwrap_or_default().trim(),
                file("schedstat").trim(),
                stack.replace("[<0>]", "").split_ascii_whitespace().collect::<Vec<_>>().join(" < "),
            ));
        }
    }
    lines.join("\n")
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error means that it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Outcome {
    /// The path of an output file.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// An output file's text.
    ///
    /// # Errors
    ///
    /// When there is none, or it is no UTF-8.
    pub fn text(&self, name: &str) -> Result<String> {
        fs::read_to_string(self.path(name)).with_context(|| format!("no output {name}: {self}"))
    }

    /// An output file that is a JSON report, its ledger checked.
    ///
    /// # Errors
    ///
    /// When offwake failed, the file is none, or its ledger does not close.
    pub fn report(&self, name: &str) -> Result<Report> {
        ensure!(self.status.success(), "offwake failed: {self}");
        self.parse_report(name)
    }

    /// The same of a command that ended with `status`, which offwake passes on.
    ///
    /// # Errors
    ///
    /// When offwake ended with another status, the file is none, or its ledger does not close.
    pub fn report_of_command(&self, status: i32, name: &str) -> Result<Report> {
        ensure!(self.status.code() == Some(status), "wanted the command's {status}: {self}");
        self.parse_report(name)
    }

    fn parse_report(&self, name: &str) -> Result<Report> {
        let report = Report::parse(&self.text(name)?)?;
        ledger::check(&report)?;
        Ok(report)
    }

    /// What a person sees on the terminal: both streams.
    #[must_use]
    pub fn terminal(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// Reports a recording that is among the output files, with these arguments, beside it.
    ///
    /// # Errors
    ///
    /// When offwake can't be run.
    pub fn report_of(&self, recording: &str, arguments: &[&str]) -> Result<Self> {
        Offwake::in_directory(&self.directory)?.args(["report", recording]).args(arguments).run()
    }

    /// Reports a recording that is among the output files: how that went, and the report, its ledger
    /// checked.
    ///
    /// # Errors
    ///
    /// When offwake failed, the recording is not whole, or its ledger does not close.
    pub fn report_on(self, recording: &str) -> Result<(Self, Report)> {
        ensure!(self.status.success(), "offwake failed: {self}");
        let reported = self.report_of(recording, &["-o", "x.json"])?;
        let report = reported.report("x.json")?;
        ensure!(report.recording.is_whole(), "{:?}", report.recording);
        Ok((Self { held: self.held, ..reported }, report))
    }

    /// Demands that it failed with `status` and said so in one line that holds one of `words`.
    ///
    /// # Errors
    ///
    /// When it did anything else.
    pub fn check_failure(&self, status: i32, words: &[&str]) -> Result<()> {
        ensure!(self.status.code() == Some(status), "wanted exit status {status}: {self}");
        ensure!(!self.terminal().contains("panicked"), "it panicked: {self}");
        let lines = self.stderr.trim_end().lines().count();
        // What the argument parser refuses, it explains with the usage below.
        const USAGE: i32 = 2;
        ensure!(lines == 1 || (status == USAGE && lines > 1), "wanted one line: {self}");
        let first = self.stderr.lines().next().unwrap_or_default().to_lowercase();
        ensure!(
            words.iter().any(|word| first.contains(&word.to_lowercase())),
            "wanted one of {words:?} in the line: {self}"
        );
        Ok(())
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} after {:?}; standard output: {:?}; standard error: {:?}",
            self.status, self.ran_for, self.stdout, self.stderr
        )
    }
}

/// How many BPF links and perf events a process holds.
///
/// # Errors
///
/// None so far: a process that has ended holds none.
pub fn count_attached_links(pid: u32) -> Result<usize> {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        // It has just ended; the caller finds out.
        return Ok(0);
    };
    let holds = |path: PathBuf| {
        fs::read_link(path).is_ok_and(|to| {
            let to = to.to_string_lossy();
            to.contains("bpf_link") || to.contains("bpf-link") || to.contains("perf_event")
        })
    };
    Ok(descriptors.flatten().filter(|descriptor| holds(descriptor.path())).count())
}

fn read_contents(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
