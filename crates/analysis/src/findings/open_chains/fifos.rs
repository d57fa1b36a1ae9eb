//! FIFOs that threads wait to open: the kernel lets them once somebody opens the other end.

use crate::{blame::cause::syscalls, timeline::ThreadIndex};

use super::OpenWaitGraph;

/// What somebody has to open a FIFO for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::findings) enum FifoEnd {
    Reading,
    Writing,
}

impl FifoEnd {
    /// Says what a thread waits for that opens a FIFO.
    pub(in crate::findings) fn describe(self) -> &'static str {
        match self {
            Self::Reading => "waits until a reader opens its FIFO",
            Self::Writing => "waits until a writer opens its FIFO",
        }
    }
}

impl OpenWaitGraph<'_> {
    /// Returns which end of a FIFO somebody has to open before a thread can go on that waits in `open`, by
    /// the call's flags. Those of `openat2` are in memory.
    pub(in crate::findings) fn awaited_fifo_end(&self, thread: ThreadIndex) -> Option<FifoEnd> {
        const ACCESS: u64 = 0o3;
        const READ_ONLY: u64 = 0;
        const WRITE_ONLY: u64 = 1;
        let call = self.open_wait_record(thread)?.syscall?;
        let flags = match syscalls::name(&call)? {
            "open" => call.args[1],
            "openat" => call.args[2],
            "creat" => WRITE_ONLY,
            _ => return None,
        };
        match flags & ACCESS {
            READ_ONLY => Some(FifoEnd::Writing),
            WRITE_ONLY => Some(FifoEnd::Reading),
            _ => None,
        }
    }

    /// Returns whether a thread that opens a FIFO waits for a reader: it has something to say. One that waits
    /// for a writer may wait for its next command.
    pub(in crate::findings) fn waits_for_reader(&self, thread: ThreadIndex) -> bool {
        self.awaited_fifo_end(thread) == Some(FifoEnd::Reading)
    }
}
