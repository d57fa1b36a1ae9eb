//! Reads small files of other programs whole.

use std::{fs::File, io::Read as _, path::Path};

use rustix::fs::{CWD, FileType, Mode, OFlags};

/// Reads a small file; none if it has more than `limit` bytes, is no regular file, or can't be
/// read. A link is not followed, and nothing waits for whoever may be at the other end of a FIFO.
pub(super) fn read(path: &Path, limit: u64) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let mut bytes = Vec::new();
    File::from(file).take(limit.saturating_add(1)).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= limit).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

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
        assert_eq!(read(&path("file"), 5).as_deref(), Some(&b"12345"[..]));
        assert_eq!(read(&path("file"), 4), None);
        for name in ["link", "fifo", "none", "."] {
            assert_eq!(read(&path(name), 5), None, "{name}");
        }
    }
}
