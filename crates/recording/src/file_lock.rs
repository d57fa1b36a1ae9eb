//! Locks on files that somebody still waited for when a recording ended.

use crate::{file::PeerProcess, units::Tgid};

/// A lock on a file, and one who still waited for it, as the kernel's list has it
/// ([`/proc/locks`](https://man7.org/linux/man-pages/man5/proc_locks.5.html)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitedFileLock {
    /// Device of the file's superblock, as in [`crate::FileId`].
    pub device: u32,
    /// The file's number there.
    pub inode: u64,
    /// The process that waits. None for a lock of an open file (`F_OFD_SETLKW`): the kernel's list
    /// names no process there.
    pub waiter: Option<Tgid>,
    /// The process that held the lock. Of a lock of an open file (`flock`, `F_OFD_SETLKW`), the one from
    /// which all others inherited that file that have it open; none if it is not one, or was not found.
    /// Its name is empty if it had gone.
    pub holder: Option<PeerProcess>,
}
