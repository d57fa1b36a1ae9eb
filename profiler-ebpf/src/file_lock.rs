//! Locks on files that processes ask for without waiting for them, and are refused.
//!
//! ```text
//! waiter   | asks, refused | sleeps                          | asks, refused | sleeps
//! one      | has the lock .......... gives it back |
//! other                                                | takes it ..................
//! record         REFUSED (one has it)      RELEASED      ACQUIRED    REFUSED (other has it)
//! ```
//!
//! SQLite asks for its locks so, and sleeps in between. No wake tells who had the lock.

use crate::record::{Inode, RecordHeader};

/// How many of these records each CPU makes in a second (2³⁰ ns). Who asks without end must not take the
/// room of everybody's waits.
pub const MAX_PER_SECOND: u64 = 10_000;

/// How many of a file's locks are searched for the one that stood in the way.
pub const MAX_SEARCHED: usize = 32;

/// For how long after a refusal it is recorded who takes the lock. SQLite asks again after 100 ms at most
/// (<https://github.com/sqlite/sqlite/blob/version-3.40.1/src/main.c#L1702>).
pub const CONTENDED_NS: u64 = 250_000_000;

/// What happened to a lock ([`FileLockRecord::event`]). Append-only.
pub mod file_lock_event {
    /// The thread asked for the lock without waiting for it, and another process had it.
    pub const REFUSED: u32 = 1;
    /// The thread gave back the lock on its file that somebody was refused last.
    pub const RELEASED: u32 = 2;
    /// The thread took a lock that somebody had been refused just before.
    pub const ACQUIRED: u32 = 3;
}

/// What happened to a lock on a file, of a process (`fcntl`), that somebody is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FileLockRecord {
    /// [`kind::FILE_LOCK`](crate::record::kind::FILE_LOCK).
    pub header: RecordHeader,
    /// The thread that asked for the lock, gave it back or took it.
    pub tid: u32,
    /// The thread's process.
    pub tgid: u32,
    /// When.
    pub ns: u64,
    /// One of [`file_lock_event`].
    pub event: u32,
    /// The process that had the lock, or has it now; 0 if none was found that stood in the way.
    pub holder_tgid: u32,
    /// The file.
    pub file: Inode,
}

const _: () = assert!(size_of::<FileLockRecord>() == 48);
