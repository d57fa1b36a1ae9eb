//! Starting a workload, and getting its truth.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc,
    thread,
};

use anyhow::{Context, Result, anyhow, ensure};
use tempfile::TempDir;

use crate::{
    ground_truth::{GroundTruth, Player, Ready},
    machine_lock::MachineLock,
    paths,
    wait_until::{deadline, wait_until},
};

/// A workload that runs. It ends when the harness does, whatever happens to the test.
pub struct Workload {
    child: Child,
    stdout: Option<BufReader<ChildStdout>>,
    ready: Ready,
    /// The directory that is the workload's argument, for files that it makes.
    directory: TempDir,
    _machine_lock: MachineLock,
}

impl Workload {
    /// Starts the workload `name`, once the machine lock is acquired, and waits until all its roles are taken.
    ///
    /// # Errors
    ///
    /// When it can't be started, or is not ready by the deadline.
    pub fn start(name: &str) -> Result<Self> {
        Self::start_with(name, |_| Ok(()))
    }

    /// Starts the workload `name` as [`Workload::start`] does, after `prepare` has put into its
    /// directory what it needs.
    ///
    /// # Errors
    ///
    /// As [`Workload::start`], or when `prepare` fails.
    pub fn start_with(name: &str, prepare: impl FnOnce(&Path) -> Result<()>) -> Result<Self> {
        let machine_lock = MachineLock::acquire()?;
        let directory = paths::scratch_directory()?;
        prepare(directory.path())?;
        let mut child = Command::new(paths::workload_binary()?)
            .arg(name)
            .arg(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start the workload {name}"))?;
        let stdout = child.stdout.take().context("the workload has no standard output")?;
        let ready = Ready { pid: child.id(), roles: BTreeMap::new() };
        // From here on the guard ends it.
        let mut workload = Self {
            child,
            stdout: Some(BufReader::new(stdout)),
            ready,
            directory,
            _machine_lock: machine_lock,
        };
        workload.ready =
            workload.read_line().with_context(|| format!("the workload {name} is not ready"))?;
        Ok(workload)
    }

    /// The workload's own process, which plays no role.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.ready.pid
    }

    /// The thread that plays `role`.
    ///
    /// # Errors
    ///
    /// When there is no such role.
    pub fn role(&self, role: &str) -> Result<&Player> {
        self.ready.roles.get(role).with_context(|| format!("the workload has no role {role}"))
    }

    /// Waits until the thread that plays `role` is in one of these syscalls.
    ///
    /// # Errors
    ///
    /// When there is no such role, or it is in none of them by the deadline.
    pub fn wait_for_call(&self, role: &str, calls: &[libc::c_long]) -> Result<()> {
        let player = self.role(role)?;
        let path = format!("/proc/{}/task/{}/syscall", player.pid, player.tid);
        wait_until("the role to be in its call", || {
            let call = fs::read_to_string(&path)?;
            let number = call.split(' ').next().and_then(|number| number.parse().ok());
            Ok(number.is_some_and(|number| calls.contains(&number)).then_some(()))
        })
    }

    /// The threads that play roles, by role.
    #[must_use]
    pub fn players(&self) -> &BTreeMap<String, Player> {
        &self.ready.roles
    }

    /// The processes that play roles, without the workload's own if it plays none, as `--pid`
    /// wants them.
    #[must_use]
    pub fn pids(&self) -> String {
        let pids: BTreeSet<String> =
            self.ready.roles.values().map(|player| player.pid.to_string()).collect();
        Vec::from_iter(pids).join(",")
    }

    /// Stops it, and returns what its roles measured.
    ///
    /// # Errors
    ///
    /// When it does not end well by the deadline, or its truth has holes.
    pub fn stop(mut self) -> Result<GroundTruth> {
        // Closing its standard input tells it to stop.
        drop(self.child.stdin.take());
        let truth: GroundTruth = self.read_line().context("the workload tells no truth")?;
        for (role, log) in &truth.roles {
            ensure!(log.is_complete(), "the log of {role} is too small: {} dropped", log.dropped);
        }
        let status = wait_until("the workload's end", || Ok(self.child.try_wait()?))?;
        ensure!(status.success(), "the workload failed: {status}");
        Ok(truth)
    }

    /// The directory that is its argument.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Reads one line of JSON. Another thread does, so that a workload that hangs can't hang us.
    fn read_line<T: serde::de::DeserializeOwned>(&mut self) -> Result<T> {
        let mut stdout = self.stdout.take().context("its output was not read to the end")?;
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            let read = stdout.read_line(&mut line);
            // Nobody listens any more if the deadline has passed.
            let _ = sender.send((read, line, stdout));
        });
        let (read, line, stdout) =
            receiver.recv_timeout(deadline()).map_err(|_| anyhow!("no line by the deadline"))?;
        self.stdout = Some(stdout);
        ensure!(read.context("cannot read its output")? > 0, "it ended without a line");
        serde_json::from_str(&line).with_context(|| format!("not the JSON expected: {line}"))
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        // Its processes die with it. An error means that it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
        if let Some(mut stdout) = self.stdout.take() {
            // The end of the output is the end of its last process.
            drop(stdout.read_to_end(&mut Vec::new()));
        }
    }
}
