//! Where an incident takes place.

use std::{
    cell::RefCell,
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
};

use anyhow::{Context, Result, anyhow, ensure};
use tempfile::TempDir;

use crate::{
    machine_lock::MachineLock,
    paths,
    wait_until::{deadline, wait_until},
    workloads::stage::die_with_parent,
};

/// Debian's Python: the one for which Debian packages a client of PostgreSQL.
const PYTHON: &str = "/usr/bin/python3";

/// The file with what the programs say on standard error.
const COMPLAINTS: &str = "complaints";

type Undo = Box<dyn FnOnce() -> Result<()>>;

/// A directory, processes, and what else has to be undone. All of it is gone once this is dropped,
/// whether the incident went well or not.
pub struct Scene {
    children: RefCell<Vec<Child>>,
    undo: RefCell<Vec<(String, Undo)>>,
    directory: TempDir,
    disk: TempDir,
    _machine_lock: MachineLock,
}

impl Scene {
    /// An empty one, once the machine lock is acquired.
    ///
    /// # Errors
    ///
    /// When its directories can't be made.
    pub fn new() -> Result<Self> {
        let machine_lock = MachineLock::acquire()?;
        // Servers change their user, who may not look into the workspace.
        let directory = tempfile::tempdir().context("cannot make a directory")?;
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777))?;
        Ok(Self {
            children: RefCell::default(),
            undo: RefCell::default(),
            directory,
            disk: paths::scratch_directory()?,
            _machine_lock: machine_lock,
        })
    }

    /// A path for a socket or a file of the incident's.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The path of a file that has to be on a disk: `/tmp` may be in memory.
    #[must_use]
    pub fn path_on_disk(&self, name: &str) -> PathBuf {
        self.disk.path().join(name)
    }

    /// Starts a program that is killed, with all processes of its group, when this is dropped.
    ///
    /// # Errors
    ///
    /// When it can't be started.
    pub fn start(&self, command: &mut Command) -> Result<u32> {
        self.spawn(command.stdin(Stdio::null()).stdout(Stdio::null()))
    }

    /// Starts a program as [`Scene::start`] does, and waits until it says `ready`.
    ///
    /// # Errors
    ///
    /// When it can't be started, or says anything else first, or nothing by the deadline.
    pub fn start_and_wait(&self, command: &mut Command) -> Result<u32> {
        let pid = self.spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()))?;
        self.wait_for_ready(command)?;
        Ok(pid)
    }

    /// Starts a program as [`Scene::start_and_wait`] does, whose standard input is written to later.
    ///
    /// # Errors
    ///
    /// As [`Scene::start_and_wait`].
    pub fn start_with_input(&self, command: &mut Command) -> Result<(u32, fs::File)> {
        let pid = self.spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        self.wait_for_ready(command)?;
        let mut children = self.children.borrow_mut();
        let input = children.last_mut().and_then(|child| child.stdin.take());
        let input = input.context("its input is not piped")?;
        Ok((pid, fs::File::from(std::os::fd::OwnedFd::from(input))))
    }

    /// Starts a Python program of `tests/incidents`, and waits until it says `ready`.
    ///
    /// # Errors
    ///
    /// As [`Scene::start_and_wait`].
    pub fn start_python<A: AsRef<OsStr>>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<u32> {
        self.start_and_wait(python(program).args(arguments))
    }

    /// Runs a command to its end, and returns what it says.
    ///
    /// # Errors
    ///
    /// When it fails.
    pub fn execute(&self, command: &mut Command) -> Result<String> {
        let output = command.stdin(Stdio::null()).current_dir(&self.directory).output();
        let output = output.with_context(|| format!("cannot run {command:?}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{command:?}: {}: {said}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Compiles a C program of `tests/incidents` as others would, and returns its path.
    ///
    /// # Errors
    ///
    /// When it does not compile.
    pub fn compile_c(&self, source: &str) -> Result<PathBuf> {
        let source = source_path(source);
        let program = self.directory.path().join(source.file_stem().context("no name")?);
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-g", "-Wall", "-Wextra", "-pthread", "-o"]);
        self.execute(compiler.arg(&program).arg(source))?;
        Ok(program)
    }

    /// Has something done at the end, once the processes have been killed. What was said last is done first.
    pub fn undo_at_end(
        &self,
        what: impl Into<String>,
        undo: impl FnOnce() -> Result<()> + 'static,
    ) {
        self.undo.borrow_mut().push((what.into(), Box::new(undo)));
    }

    /// What the programs have said on standard error so far.
    #[must_use]
    pub fn complaints(&self) -> String {
        fs::read_to_string(self.path(COMPLAINTS)).unwrap_or_default()
    }

    fn spawn(&self, command: &mut Command) -> Result<u32> {
        // The group is for those that it starts itself.
        command.current_dir(&self.directory).process_group(0);
        // What they complain about when they are killed at the end is of no interest.
        let complaints =
            fs::OpenOptions::new().create(true).append(true).open(self.path(COMPLAINTS))?;
        command.stderr(complaints);
        // SAFETY: the function makes one system call, and touches no memory of this process.
        unsafe {
            command.pre_exec(|| {
                die_with_parent();
                Ok(())
            })
        };
        let child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
        let pid = child.id();
        self.children.borrow_mut().push(child);
        Ok(pid)
    }

    fn wait_for_ready(&self, command: &Command) -> Result<()> {
        let stdout = self.children.borrow_mut().last_mut().and_then(|child| child.stdout.take());
        let mut stdout = BufReader::new(stdout.context("its output is not piped")?);
        let (sender, receiver) = mpsc::channel();
        // Another thread reads, so that a program that hangs can't hang us.
        thread::spawn(move || {
            let mut line = String::new();
            let read = stdout.read_line(&mut line);
            // Nobody listens any more if the deadline has passed.
            drop(sender.send(read.map(|_| line)));
        });
        let line = receiver
            .recv_timeout(deadline())
            .map_err(|_| anyhow!("{command:?} says nothing by the deadline"))??;
        ensure!(line == "ready\n", "{command:?} says {line:?}");
        Ok(())
    }

    fn kill_all(&self) -> Result<()> {
        let mut children = self.children.borrow_mut();
        for child in children.iter() {
            // SAFETY: takes plain integers; the process has not been reaped, so the group's id is
            // still its.
            unsafe { libc::kill(-child.id().cast_signed(), libc::SIGKILL) };
        }
        // Only when all have been killed: one may wait for another in the kernel, where no signal
        // ends it.
        for mut child in children.drain(..) {
            wait_until("the end of a process", || Ok(child.try_wait()?))?;
        }
        Ok(())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Err(error) = self.kill_all() {
            eprintln!("a process is left behind: {error:#}");
        }
        for (what, undo) in self.undo.take().into_iter().rev() {
            if let Err(error) = undo() {
                eprintln!("left behind: {what}: {error:#}");
            }
        }
    }
}

/// A Python program of `tests/incidents`, as a command.
#[must_use]
pub fn python(program: &str) -> Command {
    let mut command = Command::new(PYTHON);
    // What is compiled would be written into the source tree.
    command.arg("-B").arg(source_path(program));
    command
}

/// A file of `tests/incidents`.
#[must_use]
pub fn source_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("incidents").join(name)
}
