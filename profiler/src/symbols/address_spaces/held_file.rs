//! Files that are held open without being read, so that they stay reachable when they are deleted.

use std::{
    fs::File,
    os::fd::{AsFd, AsRawFd as _, OwnedFd},
};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx, StatxFlags};
use serde::{Deserialize, Serialize};

/// What makes a file the same file with the same content.
///
/// From `stat`, not from `maps`: there, Btrfs shows one device for all its subvolumes, so that
/// two files can share device and inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileIdentity {
    device: (u32, u32),
    inode: u64,
    size: u64,
    modified: (i64, u32),
}

impl FileIdentity {
    pub(crate) fn from_stat(stat: &Statx) -> Self {
        Self {
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            size: stat.stx_size,
            modified: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
        }
    }

    #[cfg(test)]
    pub(crate) fn from_file(file: impl AsFd) -> rustix::io::Result<Self> {
        Ok(Self::from_stat(&stat(file, "")?))
    }
}

/// Whether a file can be changed under us by somebody who is not root of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Trust {
    /// Owned by root, writable by root alone, seen in our own mount namespace.
    System,
    /// Nobody but us changes it, but what it contains may be anybody's: its links are not followed.
    Own,
    /// Anything else.
    Stranger,
}

/// Asks about a file, but not the server of a network filesystem: it may be what everybody waits
/// for.
pub(crate) fn stat(directory: impl AsFd, path: &str) -> rustix::io::Result<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(directory, path, flags, StatxFlags::BASIC_STATS)
}

/// Whether a held file still has the content that was mapped.
pub(crate) fn is_unchanged(file: &OwnedFd, identity: FileIdentity) -> bool {
    stat(file, "").is_ok_and(|stat| FileIdentity::from_stat(&stat) == identity)
}

/// Opens a held file for reading, if it is a regular file.
pub(crate) fn open_for_reading(held: &OwnedFd) -> Option<File> {
    let stat = rustix::fs::fstat(held).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    // Somebody's lease on it is not waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let link = format!("/proc/self/fd/{}", held.as_raw_fd());
    Some(File::from(rustix::fs::open(link, flags, Mode::empty()).ok()?))
}
