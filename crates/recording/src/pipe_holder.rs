//! Who had pipes open at which somebody still waited when a recording ended.

use strum::{IntoStaticStr, VariantArray};

use crate::file::PeerProcess;

/// The ends of a pipe that a process has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum PipeEnds {
    /// It can read from the pipe.
    Reading,
    /// It can write to the pipe.
    Writing,
    /// It can do both: it has both ends open, or a FIFO for both.
    Both,
    /// Nobody could see: it may have the pipe open or not. The machine's first process alone may be such
    /// a holder.
    NotSeen,
}

impl PipeEnds {
    /// Returns whether the process can read from the pipe.
    #[must_use]
    pub fn can_read(self) -> bool {
        matches!(self, Self::Reading | Self::Both)
    }

    /// Returns whether the process can write to the pipe.
    #[must_use]
    pub fn can_write(self) -> bool {
        matches!(self, Self::Writing | Self::Both)
    }

    /// Adds the ends that another descriptor of the same process is.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::NotSeen, seen) | (seen, Self::NotSeen) => seen,
            _ if self == other => self,
            _ => Self::Both,
        }
    }
}

/// A process that had a pipe or FIFO open at which somebody waited, by the descriptors of all processes
/// ([`/proc/PID/fdinfo`](https://man7.org/linux/man-pages/man5/proc_pid_fdinfo.5.html)). Of a pipe, all
/// of its holders are known, or none; but the first process may be one that nobody could see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipeHolder {
    /// Device of the pipe's superblock, as in [`crate::FileId`].
    pub device: u32,
    /// The pipe's number there.
    pub inode: u64,
    /// The process. Its name is empty if it had gone.
    pub holder: PeerProcess,
    /// The ends that it has open.
    pub ends: PipeEnds,
}
