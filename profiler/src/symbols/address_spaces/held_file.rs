//! Files that are held open without being read, so that they stay reachable when they are deleted.

use std::{
    fs::File,
    os::fd::{AsFd, AsRawFd as _, OwnedFd},
};

use rustix::{
    fs::{AtFlags, FileType, FsWord, Mode, OFlags, Statx, StatxFlags},
    io::Errno,
};
use serde::{Deserialize, Serialize};

/// `SYSFS_MAGIC`.
///
/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/magic.h>
const SYSFS: FsWord = 0x6265_6572;

/// What makes a file the same file with the same content.
///
/// From `stat`, not from `maps`: there, Btrfs shows one device for all its subvolumes, so that
/// two files can share device and inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// What names the file on this machine, whatever is in it.
    pub(crate) fn device_and_inode(&self) -> ((u32, u32), u64) {
        (self.device, self.inode)
    }

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

/// Opens a held file for reading, if it is a regular file. This asks its server, which may never
/// answer.
pub(crate) fn open_directly(held: &OwnedFd) -> rustix::io::Result<File> {
    let mode = stat(held, "")?.stx_mode;
    if FileType::from_raw_mode(mode.into()) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    // The kernel's own files can do things when they are read.
    if rustix::fs::fstatfs(held).is_ok_and(|stat| stat.f_type == SYSFS) {
        return Err(Errno::INVAL);
    }
    // Somebody's lease on it is not waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let link = format!("/proc/self/fd/{}", held.as_raw_fd());
    Ok(File::from(rustix::fs::open(link, flags, Mode::empty())?))
}
