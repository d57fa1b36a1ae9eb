//! Locks on files: those that somebody still waited for when a recording ended, and those that were
//! refused meanwhile.

use strum::{IntoStaticStr, VariantArray};

use crate::{
    file::PeerProcess,
    units::{Tgid, Tid, Timestamp},
};

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

/// What happened to a lock on a file of a process (`fcntl`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum FileLockEventKind {
    /// The thread asked for the lock without waiting for it, and another process had it.
    Refused,
    /// The thread gave back the lock that somebody was refused last.
    Released,
    /// The thread took a lock that somebody had been refused just before.
    Acquired,
}

/// What a thread did with a lock on a file that somebody is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLockEvent {
    /// When.
    pub at: Timestamp,
    /// The thread.
    pub tid: Tid,
    /// The thread's process.
    pub tgid: Tgid,
    /// What happened.
    pub kind: FileLockEventKind,
    /// The process that had the lock, or has it now, if it was found.
    pub holder: Option<Tgid>,
    /// Device of the file's superblock, as in [`crate::FileId`].
    pub device: u32,
    /// The file's number there.
    pub inode: u64,
}
