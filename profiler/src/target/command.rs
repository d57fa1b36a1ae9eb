//! A command that waits before its first instruction until it is released.
//!
//! The standard library's `spawn` only returns once the child has become its program, so it can't
//! hold one; this is fork, a pipe to wait on, exec, and a pipe to say what went wrong:
//!
//! ```text
//! offwake   fork ───────── attach, survey ──── release ─ read: nothing came, so it runs
//! child        └─ read(gate) ········································ execvp(command)
//! ```

use std::{
    ffi::{CString, OsStr, OsString},
    fs::File,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::{ffi::OsStrExt as _, fs::PermissionsExt as _, process::ExitStatusExt as _},
    },
    path::{Path, PathBuf},
    process::ExitStatus,
    ptr,
    sync::OnceLock,
};

use offwake_recording::units::Tgid;

use super::TargetError;

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
            |source| TargetError::Command { command: name.to_string_lossy().into_owned(), source };
        let program = find_program(&name).map_err(failed)?;
        let as_c = |text: &OsStr| {
            CString::new(text.as_bytes())
                .map_err(|_nul| failed(io::Error::from(io::ErrorKind::InvalidInput)))
        };
        let path = as_c(program.as_os_str())?;
        let arguments =
            words.iter().map(|word| as_c(word)).collect::<Result<Vec<CString>, TargetError>>()?;
        let mut pointers: Vec<*const libc::c_char> =
            arguments.iter().map(|argument| argument.as_ptr()).collect();
        pointers.push(ptr::null());

        let streams = streams.open().map_err(failed)?;
        let (gate_read, gate_write) = pipe().map_err(failed)?;
        let (failure_read, failure_write) = pipe().map_err(failed)?;
        // SAFETY: the child calls only what is safe after a fork of a process with threads (read,
        // write, dup2, execv, _exit, signal), on memory that was put together before.
        let child = unsafe { libc::fork() };
        match child {
            -1 => Err(failed(io::Error::last_os_error())),
            0 => {
                // SAFETY: see above. The descriptors are open, and every pointer outlives the call.
                unsafe {
                    // The child closes its own copy: the read below must end when offwake closes
                    // its end.
                    libc::close(gate_write.as_raw_fd());
                    let mut go = 0_u8;
                    let read = libc::read(gate_read.as_raw_fd(), (&raw mut go).cast(), 1);
                    if read == 1 {
                        if let Some(streams) = &streams {
                            for stream in 0..=2 {
                                libc::dup2(streams.as_raw_fd(), stream);
                            }
                        }
                        // Rust ignores SIGPIPE; programs do not expect that.
                        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                        libc::execv(path.as_ptr(), pointers.as_ptr());
                        let errno = *libc::__errno_location();
                        libc::write(failure_write.as_raw_fd(), (&raw const errno).cast(), 4);
                    }
                    libc::_exit(127)
                }
            }
            child => Ok(Self {
                tgid: Tgid(child.cast_unsigned()),
                name: name.to_string_lossy().into_owned(),
                gate: Some(File::from(gate_write)),
                failure: File::from(failure_read),
                status: OnceLock::new(),
            }),
        }
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
        let failed =
            |command: &str, source| TargetError::Command { command: command.to_owned(), source };
        if let Some(mut gate) = self.gate.take() {
            gate.write_all(&[1]).map_err(|error| failed(&self.name, error))?;
        }
        let mut errno = [0; 4];
        // The other end is closed by the exec if it succeeds.
        match self.failure.read(&mut errno) {
            Ok(4) => {
                let error = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
                Err(failed(&self.name, error))
            }
            _ => Ok(()),
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

/// Finds a program as a shell would: by PATH unless its name has a slash.
fn find_program(name: &OsStr) -> io::Result<PathBuf> {
    if name.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the command is empty"));
    }
    if name.as_bytes().contains(&b'/') {
        return check_executable(Path::new(name)).map(|()| PathBuf::from(name));
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut refusal = None;
    for directory in std::env::split_paths(&paths) {
        let candidate = directory.join(name);
        match check_executable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                refusal = Some(error);
            }
            Err(_absent) => {}
        }
    }
    Err(refusal
        .unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "command not found in PATH")))
}

fn check_executable(path: &Path) -> io::Result<()> {
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is a directory"));
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not executable"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

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
