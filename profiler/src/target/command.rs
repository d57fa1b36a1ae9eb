//! A command that waits before its first instruction until it is released.
//!
//! The standard library's `spawn` only returns once the child has become its program, so it can't
//! hold one; this is fork, a pipe to wait on, exec, and a pipe to say what went wrong:
//!
//! ```text
//! offwake   fork ─ read ────────── attach, survey ──── release ─ read: nothing came, so it runs
//! child        └─ finds it in PATH ─ read(gate) ······················ execv(program)
//! ```
//!
//! The child looks its program up as well: it lies where its caller says, and may lie where nobody answers. Then the
//! child is given up; it holds nothing of ours.

use std::{
    ffi::{CString, OsStr, OsString},
    fs::File,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::{ffi::OsStrExt as _, process::ExitStatusExt as _},
    },
    path::{Path, PathBuf},
    process::ExitStatus,
    ptr,
    sync::OnceLock,
    time::Duration,
};

use offwake_recording::units::Tgid;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    time::Timespec,
};

use super::TargetError;
use crate::parser::WaitMeter;

/// How long a command's files may be waited for, but for what the child computes and waits for a CPU. Who calls
/// again finds the disk awake by then.
const PATIENCE: Duration = Duration::from_secs(4);

/// A command that was started and is held. If it is dropped before it is released, it ends without
/// having run.
#[derive(Debug)]
pub struct HeldCommand {
    tgid: Tgid,
    name: String,
    gate: Option<File>,
    failure: File,
    /// Set once the command has been collected.
    status: OnceLock<ExitStatus>,
}

/// Where a command reads from, and writes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Streams {
    /// From and to where offwake does.
    #[default]
    Shared,
    /// From and to nowhere: offwake needs the terminal for itself.
    Null,
}

impl Streams {
    fn open(self) -> io::Result<Option<File>> {
        match self {
            Self::Shared => Ok(None),
            Self::Null => File::options().read(true).write(true).open("/dev/null").map(Some),
        }
    }
}

impl HeldCommand {
    /// Starts a command and holds it.
    ///
    /// # Errors
    ///
    /// If there is no such program, or it can't be run.
    pub fn start(words: &[OsString], streams: Streams) -> Result<Self, TargetError> {
        let name = words.first().map_or_else(OsString::new, Clone::clone);
        let failed =
            |why| TargetError::Command { command: name.to_string_lossy().into_owned(), why };
        let as_c = |text: &OsStr| {
            CString::new(text.as_bytes())
                .map_err(|_nul| failed(io::Error::from(io::ErrorKind::InvalidInput)))
        };
        let candidates = candidates(&name).map_err(failed)?;
        let paths = (candidates.iter().map(|path| as_c(path.as_os_str())))
            .collect::<Result<Vec<CString>, TargetError>>()?;
        let arguments =
            words.iter().map(|word| as_c(word)).collect::<Result<Vec<CString>, TargetError>>()?;
        let mut pointers: Vec<*const libc::c_char> =
            arguments.iter().map(|argument| argument.as_ptr()).collect();
        pointers.push(ptr::null());

        let streams = streams.open().map_err(failed)?;
        let (gate_read, gate_write) = pipe().map_err(failed)?;
        let (failure_read, failure_write) = pipe().map_err(failed)?;
        // SAFETY: the child calls only what is safe after a fork of a process with threads (read,
        // write, stat, dup2, execv, _exit, signal), on memory that was put together before.
        let child = unsafe { libc::fork() };
        match child {
            -1 => Err(failed(io::Error::last_os_error())),
            0 => {
                // SAFETY: see above. The descriptors are open, and every pointer outlives the call.
                unsafe {
                    // The child closes its own copy: the read below must end when offwake closes
                    // its end.
                    libc::close(gate_write.as_raw_fd());
                    let found = find_program(&paths, &failure_write);
                    let mut go = 0_u8;
                    let read = match found {
                        Some(_) => libc::read(gate_read.as_raw_fd(), (&raw mut go).cast(), 1),
                        None => 0,
                    };
                    if let (1, Some(path)) = (read, found) {
                        if let Some(streams) = &streams {
                            for stream in 0..=2 {
                                libc::dup2(streams.as_raw_fd(), stream);
                            }
                        }
                        // Rust ignores SIGPIPE; programs do not expect that.
                        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                        libc::execv(path.as_ptr(), pointers.as_ptr());
                        let errno = *libc::__errno_location();
                        send(&failure_write, Word { candidate: 0, outcome: errno });
                    }
                    libc::_exit(127)
                }
            }
            child => {
                drop(failure_write);
                let mut command = Self {
                    tgid: Tgid(child.cast_unsigned()),
                    name: name.to_string_lossy().into_owned(),
                    gate: Some(File::from(gate_write)),
                    failure: File::from(failure_read),
                    status: OnceLock::new(),
                };
                command.wait_until_found(&candidates).map_err(failed)?;
                Ok(command)
            }
        }
    }

    /// Waits until the child knows which program it is to become.
    fn wait_until_found(&mut self, candidates: &[PathBuf]) -> io::Result<()> {
        let mut refusal = None;
        let mut looked_at = 0;
        loop {
            let heard = self.listen().inspect_err(|_silent| self.give_up());
            let word = heard.map_err(|error| {
                let path = candidates.get(looked_at).map_or(Path::new(""), PathBuf::as_path);
                io::Error::new(error.kind(), format!("{} {error}", path.display()))
            })?;
            match word {
                Some(Word { candidate, outcome: LOOKS }) => looked_at = candidate as usize,
                Some(Word { outcome: FOUND, .. }) => return Ok(()),
                Some(Word { outcome, .. }) => {
                    let error = refusal_of(outcome);
                    // That a program is not in one of many places goes without saying.
                    if self.name.contains('/') || error.kind() == io::ErrorKind::PermissionDenied {
                        refusal = Some(error);
                    }
                }
                // It has looked everywhere, and ends.
                None => {
                    return Err(refusal.unwrap_or_else(|| {
                        io::Error::new(io::ErrorKind::NotFound, "command not found in PATH")
                    }));
                }
            }
        }
    }

    /// Waits for the child's next word; none if it says no more.
    fn listen(&mut self) -> io::Result<Option<Word>> {
        const STEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        let mut meter = WaitMeter::new(self.tgid.0);
        meter.begin();
        loop {
            let mut watched = [PollFd::new(&self.failure, PollFlags::IN)];
            match poll(&mut watched, Some(&STEP)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => {
                    let mut bytes = [0; size_of::<Word>()];
                    let read = self.failure.read_exact(&mut bytes);
                    return Ok(read.is_ok().then(|| Word::from_bytes(bytes)));
                }
                Err(error) => return Err(error.into()),
            }
            if meter.waited() > PATIENCE {
                let silent = format!("has not answered for {} s", PATIENCE.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, silent));
            }
        }
    }

    /// Ends a child that may wait for ever, without waiting for it.
    fn give_up(&mut self) {
        self.gate = None;
        // SAFETY: it is our own child and has not been collected, so the number is still its.
        unsafe { libc::kill(self.tgid.0.cast_signed(), libc::SIGKILL) };
    }

    /// The command's process.
    #[must_use]
    pub fn tgid(&self) -> Tgid {
        self.tgid
    }

    /// Lets the command run, and returns once it does.
    ///
    /// # Errors
    ///
    /// If the program can't be run after all.
    pub fn release(&mut self) -> Result<(), TargetError> {
        let failed = |command: &str, why| TargetError::Command { command: command.to_owned(), why };
        if let Some(mut gate) = self.gate.take() {
            gate.write_all(&[1]).map_err(|error| failed(&self.name, error))?;
        }
        // The other end is closed by the exec if it succeeds.
        match self.listen() {
            Ok(Some(Word { outcome, .. })) => {
                Err(failed(&self.name, io::Error::from_raw_os_error(outcome)))
            }
            Ok(None) => Ok(()),
            Err(silent) => {
                self.give_up();
                let said = io::Error::new(silent.kind(), format!("its file {silent}"));
                Err(failed(&self.name, said))
            }
        }
    }

    /// Collects the command if it has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut status = 0;
        // SAFETY: it is our own child; the call writes to `status` alone.
        let ended =
            unsafe { libc::waitpid(self.tgid.0.cast_signed(), &raw mut status, libc::WNOHANG) };
        if ended > 0 {
            self.status.get_or_init(|| ExitStatus::from_raw(status));
        }
        // A result of -1 means that the command has been collected before: by this function, or by
        // the kernel if offwake was started with SIGCHLD ignored.
        ended != 0
    }

    /// How the command ended. None if it has not been collected, or was collected by the kernel,
    /// which then keeps no status.
    #[must_use]
    pub fn status(&self) -> Option<ExitStatus> {
        self.status.get().copied()
    }

    /// The command's first word.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Asks the command to end.
    pub fn terminate(&self) {
        // SAFETY: it is our own child and has not been collected, so the number is still its.
        unsafe { libc::kill(self.tgid.0.cast_signed(), libc::SIGTERM) };
    }
}

impl Drop for HeldCommand {
    fn drop(&mut self) {
        if self.gate.take().is_some() {
            // The command was never released: it ends as soon as the gate is closed.
            let mut status = 0;
            // SAFETY: it is our own child; the call writes to `status` alone.
            unsafe { libc::waitpid(self.tgid.0.cast_signed(), &raw mut status, 0) };
        }
    }
}

/// A pipe whose ends close on exec: read end, write end.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the call fills both, and nobody else owns them.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Where a program may be: as a shell has it, in PATH unless its name has a slash.
fn candidates(name: &OsStr) -> io::Result<Vec<PathBuf>> {
    if name.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the command is empty"));
    }
    if name.as_bytes().contains(&b'/') {
        return Ok(vec![PathBuf::from(name)]);
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    Ok(std::env::split_paths(&paths).map(|directory| directory.join(name)).collect())
}

/// What the child says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word {
    /// Which of the places it is about.
    candidate: u32,
    /// An error's number, or one of the numbers below, which no error has.
    outcome: i32,
}

/// It looks at a place next, which may take for ever.
const LOOKS: i32 = -1;
const FOUND: i32 = 0;
const IS_DIRECTORY: i32 = -2;
const IS_NOT_EXECUTABLE: i32 = -3;

impl Word {
    fn to_bytes(self) -> [u8; 8] {
        let [a, b, c, d] = self.candidate.to_ne_bytes();
        let [e, f, g, h] = self.outcome.to_ne_bytes();
        [a, b, c, d, e, f, g, h]
    }

    fn from_bytes([a, b, c, d, e, f, g, h]: [u8; 8]) -> Self {
        Self {
            candidate: u32::from_ne_bytes([a, b, c, d]),
            outcome: i32::from_ne_bytes([e, f, g, h]),
        }
    }
}

/// Says something, in the child: nothing but a system call.
fn send(to: &OwnedFd, word: Word) {
    let bytes = word.to_bytes();
    // SAFETY: the descriptor is open, and the bytes are there.
    unsafe { libc::write(to.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
}

/// Finds the program, in the child: nothing but system calls. Says before each place that it looks there, and after
/// it what is wrong with it.
fn find_program<'p>(paths: &'p [CString], to: &OwnedFd) -> Option<&'p CString> {
    (0..).zip(paths).find_map(|(candidate, path)| {
        send(to, Word { candidate, outcome: LOOKS });
        // SAFETY: plain numbers, for which all zeroes are a value.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the path ends with a zero byte, and `stat` outlives the call; errno is the thread's own.
        let failed = unsafe {
            (libc::stat(path.as_ptr(), &raw mut stat) != 0).then(|| *libc::__errno_location())
        };
        let outcome = match failed {
            Some(errno) => errno,
            None if stat.st_mode & libc::S_IFMT == libc::S_IFDIR => IS_DIRECTORY,
            None if stat.st_mode & 0o111 == 0 => IS_NOT_EXECUTABLE,
            None => FOUND,
        };
        send(to, Word { candidate, outcome });
        (outcome == FOUND).then_some(path)
    })
}

fn refusal_of(outcome: i32) -> io::Error {
    let refused = |why: &str| io::Error::new(io::ErrorKind::PermissionDenied, why);
    match outcome {
        IS_DIRECTORY => refused("it is a directory"),
        IS_NOT_EXECUTABLE => refused("it is not executable"),
        errno => io::Error::from_raw_os_error(errno),
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt as _, time::Instant};

    use super::*;

    fn ended(command: &HeldCommand) -> bool {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !command.has_ended() {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    #[test]
    fn a_command_runs_once_it_is_let_go() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("made");
        let words = ["touch".into(), file.clone().into_os_string()];
        let mut command = HeldCommand::start(&words, Streams::Shared).unwrap();
        assert!(!command.has_ended());
        assert!(!file.exists());
        command.release().unwrap();
        assert!(ended(&command));
        assert!(file.exists());
    }

    #[test]
    fn a_command_that_has_ended_has_a_status() {
        for (script, code, signal) in [("exit 7", Some(7), None), ("kill -9 $$", None, Some(9))] {
            let words = ["sh", "-c", script].map(OsString::from);
            let mut command = HeldCommand::start(&words, Streams::Shared).unwrap();
            assert_eq!(command.status(), None);
            command.release().unwrap();
            assert!(ended(&command));
            let status = command.status().unwrap();
            assert_eq!((status.code(), status.signal()), (code, signal), "{script}");
            // Once it is collected, its number may be another process's.
            assert!(command.has_ended());
            assert_eq!(command.status(), Some(status));
        }
    }

    #[test]
    fn a_command_that_is_never_let_go_never_runs() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("made");
        let words = ["touch".into(), file.clone().into_os_string()];
        let mut command = HeldCommand::start(&words, Streams::Shared).unwrap();
        drop(command.gate.take());
        assert!(ended(&command));
        assert!(!file.exists());
    }

    #[test]
    fn what_can_not_be_run_is_said_at_once() {
        for name in ["offwake-no-such-command", "/etc/passwd", "/", ""] {
            let error = HeldCommand::start(&[name.into()], Streams::Shared).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn what_is_no_program_is_said_when_it_is_let_go() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("garbage");
        std::fs::write(&file, [0x7f, b'E', b'L', b'F', 0]).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = HeldCommand::start(&[file.into_os_string()], Streams::Shared).unwrap();
        assert!(command.release().is_err());
        assert!(ended(&command));
    }
}
