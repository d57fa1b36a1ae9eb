//! Ordinary programs, as they are in use: nobody built them to be looked at.

mod compiled;
mod servers;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use tempfile::TempDir;

pub use compiled::{Compiled, Source};
pub use servers::{mariadb, nginx, postgres, redis};

use crate::{
    machine_lock::MachineLock,
    paths,
    wait_until::{deadline, wait_at_most, wait_until},
};

/// A program that runs, and the processes that it started. They end when this is dropped.
pub struct Program {
    child: Child,
    // Some end when their input does.
    _input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
    directory: TempDir,
    _machine_lock: MachineLock,
}

impl Program {
    /// Starts a program, once the machine lock is acquired. Its files are in `directory`.
    ///
    /// # Errors
    ///
    /// When it can't be started.
    pub fn start(command: &mut Command, directory: TempDir) -> Result<Self> {
        let machine_lock = MachineLock::acquire()?;
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot run {name}"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take().map(BufReader::new));
        Ok(Self { child, _input: input, output, directory, _machine_lock: machine_lock })
    }

    /// Starts a program, and waits until it says `ready`.
    ///
    /// # Errors
    ///
    /// When it can't be started, or says anything else first, or nothing by the deadline.
    pub fn start_and_wait(command: &mut Command, directory: TempDir) -> Result<Self> {
        let mut program = Self::start(command, directory)?;
        let mut output = program.output.take().context("its output is not piped")?;
        let (sender, receiver) = mpsc::channel();
        // Another thread reads, so that a program that hangs can't hang us.
        thread::spawn(move || {
            let mut line = String::new();
            let read = output.read_line(&mut line);
            // Nobody listens any more if the deadline has passed.
            drop(sender.send((read, line, output)));
        });
        let (read, line, output) = receiver
            .recv_timeout(deadline())
            .map_err(|_| anyhow!("{command:?} says nothing by the deadline"))?;
        program.output = Some(output);
        ensure!(read? > 0 && line == "ready\n", "{command:?} says {line:?}");
        Ok(program)
    }

    /// A script of `tests/programs`, run by its interpreter, which says `ready`.
    ///
    /// # Errors
    ///
    /// As [`Program::start_and_wait`].
    pub fn script(interpreter: &Path, script: &str, arguments: &[&Path]) -> Result<Self> {
        let mut command = Command::new(interpreter);
        command.arg(paths::programs_directory().join(script)).args(arguments);
        Self::start_and_wait(&mut command, paths::scratch_directory()?)
    }

    /// The process that was started.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended, and well.
    ///
    /// # Errors
    ///
    /// When it has failed.
    pub fn check_ended(&mut self) -> Result<Option<()>> {
        let Some(status) = self.child.try_wait()? else { return Ok(None) };
        ensure!(status.success(), "a program failed: {status}");
        Ok(Some(()))
    }

    /// Where its files are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The program's process and its descendants.
    ///
    /// # Errors
    ///
    /// When `/proc` can't be read, or it has ended.
    pub fn pids(&self) -> Result<BTreeSet<u32>> {
        let parents = parents()?;
        ensure!(parents.contains_key(&self.pid()), "the program has ended");
        let mut pids = BTreeSet::from([self.pid()]);
        loop {
            let before = pids.len();
            pids.extend(
                parents
                    .iter()
                    .filter(|(_, parent)| pids.contains(*parent))
                    .map(|(pid, _)| *pid)
                    .collect::<Vec<_>>(),
            );
            if pids.len() == before {
                return Ok(pids);
            }
        }
    }

    /// Sends the process that was started a signal, and none of its children.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn signal_itself(&mut self, signal: libc::c_int) -> Result<()> {
        ensure!(self.child.try_wait()?.is_none(), "the program has ended");
        // SAFETY: takes plain integers; the process has not been reaped, so the id is still its.
        unsafe { libc::kill(self.child.id().cast_signed(), signal) };
        Ok(())
    }

    /// Sends all of its processes a signal.
    ///
    /// # Errors
    ///
    /// As [`Program::pids`].
    pub fn signal(&self, signal: libc::c_int) -> Result<()> {
        for pid in self.pids()? {
            // SAFETY: takes plain integers. The first process has not been reaped; the others are
            // its descendants a moment ago.
            unsafe { libc::kill(pid.cast_signed(), signal) };
        }
        Ok(())
    }

    /// The program's threads, and how often each has gone to sleep so far.
    ///
    /// # Errors
    ///
    /// As [`Program::pids`].
    pub fn sleeping_threads(&self) -> Result<BTreeMap<u32, SleepingThread>> {
        let mut sleeps = BTreeMap::new();
        for pid in self.pids()? {
            for task in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
                let status = fs::read_to_string(task.path().join("status"))?;
                let field = |key: &str| {
                    let line = status.lines().find_map(|line| line.strip_prefix(key));
                    line.map(str::trim).with_context(|| format!("no {key} in {status}"))
                };
                let now = SleepingThread {
                    is_asleep: field("State:")?.starts_with('S'),
                    count: field("voluntary_ctxt_switches:")?.parse()?,
                };
                sleeps.insert(field("Pid:")?.parse()?, now);
            }
        }
        Ok(sleeps)
    }

    /// Waits until every one of its threads sleeps.
    ///
    /// # Errors
    ///
    /// When one still does not at the deadline.
    pub fn wait_until_asleep(&self) -> Result<()> {
        wait_until("all threads to sleep", || {
            Ok(self.sleeping_threads()?.values().all(|now| now.is_asleep).then_some(()))
        })
    }

    /// Has every thread leave the call that it sleeps in, and waits until it sleeps again.
    ///
    /// A stop and a continuation: the kernel then begins the calls anew, or says that they were
    /// interrupted, which every program here bears: `signal(7)`.
    ///
    /// # Errors
    ///
    /// When one does not sleep again by the deadline.
    pub fn wake_all(&self) -> Result<()> {
        let before = self.sleeping_threads()?;
        let since = |now: &BTreeMap<u32, SleepingThread>, tid: &u32| {
            let count =
                |sleeps: &BTreeMap<u32, SleepingThread>| sleeps.get(tid).map_or(0, |s| s.count);
            count(now).saturating_sub(count(&before))
        };
        self.signal(libc::SIGSTOP)?;
        // To be stopped is to sleep once.
        wait_until("all threads to stop", || {
            let now = self.sleeping_threads()?;
            Ok(now.keys().all(|tid| since(&now, tid) >= 1).then_some(()))
        })?;
        self.signal(libc::SIGCONT)?;
        wait_until("all threads to sleep again", || {
            let now = self.sleeping_threads()?;
            Ok(now.iter().all(|(tid, s)| s.is_asleep && since(&now, tid) >= 2).then_some(()))
        })
    }
}

/// How a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SleepingThread {
    /// Whether the thread is asleep now.
    pub is_asleep: bool,
    /// How often the thread has left a CPU to sleep.
    pub count: u64,
}

impl Drop for Program {
    fn drop(&mut self) {
        // So that servers end their own processes; those that can't be ended in this way have none.
        drop(self.signal(libc::SIGTERM));
        let ended = wait_at_most(Duration::from_secs(2), "a program's end", || {
            Ok(self.child.try_wait()?)
        });
        if ended.is_err() {
            // SAFETY: takes plain integers; the process has not been reaped, so the group's id is
            // still its.
            unsafe { libc::kill(-self.child.id().cast_signed(), libc::SIGKILL) };
            drop(self.child.wait());
        }
        if let Some(mut output) = self.output.take() {
            // The end of the output is the end of its last process.
            drop(output.read_to_end(&mut Vec::new()));
        }
    }
}

/// The parent of every process.
fn parents() -> Result<BTreeMap<u32, u32>> {
    let mut parents = BTreeMap::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // It may have ended meanwhile. The name, in parentheses, may hold anything.
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
        if let Some(parent) = parent.and_then(|parent| parent.parse().ok()) {
            parents.insert(pid, parent);
        }
    }
    Ok(parents)
}
