//! Reads small files of other programs whole.

use std::{
    io::{Read as _, Seek as _},
    path::Path,
};

use rustix::{fs::FileType, io::Errno};

use crate::reader_process;

/// Reads a small file, which has `limit` bytes at most. A link is not followed, nothing waits for whoever may be at
/// the other end of a FIFO, and not for long for a file system that does not answer.
///
/// # Errors
///
/// If it is longer, is no regular file, or can't be read; [`Errno::TIMEDOUT`] if there is no answer.
pub(super) fn read(path: &Path, limit: u64) -> rustix::io::Result<Vec<u8>> {
    let (held, stat) = reader_process::open_path_itself(path)?;
    if FileType::from_raw_mode(stat.mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    let mut copy = reader_process::copy_file(&held, limit)?;
    let mut bytes = Vec::new();
    let read = copy.rewind().and_then(|()| copy.read_to_end(&mut bytes));
    read.map(|_length| bytes).map_err(|_error| Errno::IO)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use rustix::io::Errno;

    use super::read;

    #[test]
    fn only_a_small_regular_file_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("file"), "12345").unwrap();
        symlink(path("file"), path("link")).unwrap();
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), rustix::fs::FileType::Fifo, mode, 0)
            .unwrap();
        assert_eq!(read(&path("file"), 5).as_deref(), Ok(&b"12345"[..]));
        assert_eq!(read(&path("file"), 4), Err(Errno::FBIG));
        for name in ["link", "fifo", "none", "."] {
            assert!(read(&path(name), 5).is_err(), "{name}");
        }
    }
}
