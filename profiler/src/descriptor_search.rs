//! A search through the descriptors of all processes, for who has something open.
//!
//! A holder that is not found would make another one look like the only one. So a search ends with all
//! holders or with none, and says why.
//!
//! ```text
//! 1957  fd 1 ──▶ pipe:[771]                       1957
//! 2005  fd 5 ──▶ pipe:[771]      time is up       1957 looks like the only one: nobody
//! ```

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use offwake_recording::{
    loss::{Diagnostics, count},
    units::Tgid,
};

use crate::proc_files::{has_path, list_processes, try_read_beginning};

/// For how long the descriptors of all processes are searched. A descriptor takes some 3 us.
pub(crate) const SEARCH_TIME: Duration = Duration::from_millis(250);

/// The directory of a process that has a file for each of its descriptors, and the most bytes that are
/// read of one.
const DIRECTORY: &str = "fdinfo";
const MAX_BYTES: u64 = 16 << 10;

/// The process that the kernel starts.
pub(crate) const FIRST_PROCESS: Tgid = Tgid(1);

/// Why a search has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Incomplete {
    /// It took too long.
    OutOfTime,
    /// This process did not let its descriptors be seen.
    Refused(Tgid),
}

impl Incomplete {
    /// The name of the counter of such searches.
    fn diagnostic(self) -> &'static str {
        match self {
            Self::OutOfTime => "holder_searches_out_of_time",
            Self::Refused(_) => "holder_searches_refused",
        }
    }
}

/// Returns what a search found. One that could not be completed has found nobody, and is counted.
pub(crate) fn or_nobody<T: Default>(
    found: Result<T, Incomplete>,
    diagnostics: &mut Diagnostics,
) -> T {
    found.unwrap_or_else(|incomplete| {
        count(diagnostics, incomplete.diagnostic());
        T::default()
    })
}

/// Whether the machine's first process let its descriptors be seen. In some virtual machines it is an
/// agent that even root cannot look into; whoever searches says what then follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstProcess {
    Seen,
    Refused,
}

/// A descriptor of a process.
pub(crate) struct Descriptor<'a> {
    /// The process.
    pub(crate) tgid: Tgid,
    /// The process's folder.
    pub(crate) process: &'a Path,
    /// The descriptor's number, as the kernel prints it.
    number: OsString,
}

impl Descriptor<'_> {
    /// Reads where its link leads (`/proc/PID/fd/N`), and does not go there.
    ///
    /// # Errors
    ///
    /// If it has gone or may not be read.
    pub(crate) fn read_link(&self) -> io::Result<PathBuf> {
        fs::read_link(self.process.join("fd").join(&self.number))
    }

    /// Reads what the kernel says of it, if it is a [file that has a path](has_path); None of any other.
    ///
    /// # Errors
    ///
    /// If it has gone or may not be read.
    pub(crate) fn read_info_of_file(&self) -> io::Result<Option<String>> {
        match has_path(&self.read_link()?) {
            true => self.read_info().map(Some),
            false => Ok(None),
        }
    }

    /// Reads what the kernel says of it (`/proc/PID/fdinfo/N`). It has to be a file that has a path, or a
    /// pipe: of those, nothing is asked of the file itself, whose file system may never answer.
    ///
    /// # Errors
    ///
    /// If it has gone or may not be read.
    pub(crate) fn read_info(&self) -> io::Result<String> {
        try_read_beginning(&self.process.join(DIRECTORY).join(&self.number), MAX_BYTES)
    }
}

/// Shows `visit` all descriptors of all processes until the deadline. What a visit finds to have gone has
/// gone; each other error of its is a refusal.
///
/// # Errors
///
/// If not all were shown, or if a process other than the first refused.
pub(crate) fn search_descriptors(
    deadline: Instant,
    visit: &mut impl FnMut(&Descriptor<'_>) -> io::Result<()>,
) -> Result<FirstProcess, Incomplete> {
    let mut first_process = FirstProcess::Seen;
    for (tgid, process) in list_processes() {
        let entries = fs::read_dir(process.join(DIRECTORY));
        let searched = entries.and_then(|entries| {
            for entry in entries {
                if Instant::now() >= deadline {
                    return Ok(Err(Incomplete::OutOfTime));
                }
                let visited = entry.and_then(|entry| {
                    visit(&Descriptor { tgid, process: &process, number: entry.file_name() })
                });
                match visited {
                    Err(error) if !has_gone(&error) => return Err(error),
                    _ => {}
                }
            }
            Ok(Ok(()))
        });
        match searched {
            Ok(in_time) => in_time?,
            Err(gone) if has_gone(&gone) => {}
            Err(_refused) if tgid == FIRST_PROCESS => first_process = FirstProcess::Refused,
            Err(_refused) => return Err(Incomplete::Refused(tgid)),
        }
    }
    Ok(first_process)
}

/// Returns whether a process, or its descriptor, has ended meanwhile.
fn has_gone(error: &io::Error) -> bool {
    let gone = [rustix::io::Errno::NOENT, rustix::io::Errno::SRCH].map(|gone| gone.raw_os_error());
    error.raw_os_error().is_some_and(|code| gone.contains(&code))
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd as _, OwnedFd};

    use rustix::io::Errno;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn own() -> (Tgid, OwnedFd, OwnedFd) {
        let (reads, writes) = std::io::pipe().unwrap();
        (Tgid(std::process::id()), reads.into(), writes.into())
    }

    /// Searches for two descriptors of this process, and lets one of them end in this error.
    fn search_with(error: Option<Errno>) -> (Result<FirstProcess, Incomplete>, usize) {
        let (own, reads, writes) = own();
        let names = [&reads, &writes].map(|end| end.as_raw_fd().to_string());
        let mut seen = 0;
        let result = search_descriptors(Instant::now() + LONG, &mut |descriptor| {
            if descriptor.tgid != own || !names.iter().any(|it| descriptor.number == it.as_str()) {
                return Ok(());
            }
            assert!(descriptor.read_info()?.contains("flags:"));
            seen += 1;
            match error {
                Some(error) if seen == 1 => Err(error.into()),
                _ => Ok(()),
            }
        });
        (result, seen)
    }

    #[test]
    fn a_search_sees_all_descriptors_of_all_processes() {
        let (result, seen) = search_with(None);
        assert!(result.is_ok(), "{result:?}");
        assert_eq!(seen, 2);
    }

    /// To read what the kernel says of an epoll may take for ever.
    #[test]
    fn an_epoll_is_not_read() {
        let (own, reads, writes) = own();
        let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC);
        let (epoll, file) = (epoll.unwrap(), tempfile::tempfile().unwrap());
        let mut infos = Vec::new();
        let descriptors = [epoll.as_raw_fd(), reads.as_raw_fd(), file.as_raw_fd()];
        for wanted in descriptors.map(|number| number.to_string()) {
            search_descriptors(Instant::now() + LONG, &mut |descriptor| {
                if descriptor.tgid == own && descriptor.number == wanted.as_str() {
                    infos.push(descriptor.read_info_of_file()?.is_some());
                }
                Ok(())
            })
            .unwrap();
        }
        drop(writes);
        assert_eq!(infos, [false, false, true]);
    }

    #[test]
    fn a_descriptor_that_has_gone_does_not_end_a_search_and_one_that_is_refused_does() {
        for gone in [Errno::NOENT, Errno::SRCH] {
            let (result, seen) = search_with(Some(gone));
            assert!(result.is_ok(), "{result:?}");
            assert_eq!(seen, 2);
        }
        let own = Tgid(std::process::id());
        for refused in [Errno::ACCESS, Errno::PERM, Errno::IO] {
            assert_eq!(search_with(Some(refused)), (Err(Incomplete::Refused(own)), 1));
        }
    }

    /// The first process, if it refuses, is not the end of a search: all others are seen.
    #[test]
    fn the_first_process_is_left_out_if_it_refuses_and_that_is_said() {
        let mut seen = false;
        let own = Tgid(std::process::id());
        let result = search_descriptors(Instant::now() + LONG, &mut |descriptor| {
            seen |= descriptor.tgid == own;
            if descriptor.tgid == FIRST_PROCESS { Err(Errno::ACCESS.into()) } else { Ok(()) }
        });
        assert_eq!(result, Ok(FirstProcess::Refused));
        assert!(seen);
    }

    #[test]
    fn a_search_that_takes_too_long_has_no_result() {
        let result = search_descriptors(Instant::now(), &mut |_descriptor| Ok(()));
        assert_eq!(result, Err(Incomplete::OutOfTime));
    }
}
