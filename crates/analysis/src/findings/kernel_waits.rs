//! What threads waited for inside of the kernel, as the functions of its stacks tell.

use offwake_recording::{StackRef, StackTable};

use crate::blame::cause::{
    self, Cause,
    kernel_locks::{KernelLock, find_kernel_lock},
};

use super::memory_waits::{MemoryWait, find_memory_wait};

/// What inside of the kernel was waited for, where the cause does not say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum KernelWait {
    /// The program that serves a FUSE filesystem.
    Fuse,
    /// The server of a network filesystem.
    NetworkFilesystem,
    /// The disk, as it can't write as fast as pages are changed.
    Writeback,
    /// The journal of the filesystem, until the changes that are on their way to it are written.
    Journal,
    /// Whoever listens, until it accepts the connection.
    Connect,
    /// Whoever opens a named pipe (FIFO) at its other end.
    OpenFifo,
    /// Memory: a page that is not there, or free memory.
    Memory(MemoryWait),
    /// A lock of the kernel's.
    Lock(KernelLock),
}

impl KernelWait {
    /// Returns whether who waits like that is in the middle of something. Who opens a FIFO to read from it
    /// may be a server that waits for its next command.
    pub(super) fn is_of_busy_thread(self) -> bool {
        self != Self::OpenFifo
    }
}

/// Returns what the kernel functions of a stack wait for.
pub(super) fn find_kernel_wait(
    stacks: &StackTable,
    kernel: StackRef,
    wait_cause: Cause,
) -> Option<KernelWait> {
    let functions: Vec<&str> = cause::kernel_frames(stacks, kernel).collect();
    let filesystem = (functions.iter().enumerate())
        .find_map(|(place, name)| Some((place, find_filesystem_wait(name)?)));
    // What lies nearest to the leaf says it: a thread that asks a FUSE server may have to reclaim
    // memory for that first, and who reclaims memory may have to ask the server. A filesystem's own
    // function that asks for a lock has not asked its server yet.
    let (inner, _) = functions.split_at(filesystem.map_or(functions.len(), |(place, _)| place));
    (find_memory_wait(inner).map(KernelWait::Memory))
        .or_else(|| find_kernel_lock(wait_cause, functions.iter().copied()).map(KernelWait::Lock))
        .or_else(|| filesystem.map(|(_, wait)| wait))
}

/// How functions begin that wait before they change anything until a journal has room, or has written what
/// others changed. A sync is none of them: it wants its own changes on the disk.
const JOURNALS: &[&str] = &[
    "wait_transaction_locked",
    "wait_transaction_switching",
    "add_transaction_credits",
    "start_this_handle",
    "jbd2_journal_wait_updates",
    "xlog_grant_head_wait",
    "wait_current_trans",
];

/// How functions of filesystems begin whose files a server has.
const REMOTE_FILESYSTEMS: &[&str] = &[
    "nfs_",
    "nfs4_",
    "nfs3_",
    "rpc_",
    "__rpc_",
    "cifs_",
    "smb2_",
    "ceph_",
    "v9fs_",
    "p9_client_",
    "p9_virtio_",
];

/// Returns what a kernel function waits for that belongs to a filesystem or a connection.
fn find_filesystem_wait(name: &str) -> Option<KernelWait> {
    let begins = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
    // The other end: a server at work on its connection.
    if begins(&["fuse_dev_"]) {
        return None;
    }
    if begins(&["fuse_", "__fuse_", "request_wait_answer"]) {
        Some(KernelWait::Fuse)
    } else if begins(REMOTE_FILESYSTEMS) {
        Some(KernelWait::NetworkFilesystem)
    } else if begins(&["balance_dirty_pages"]) {
        Some(KernelWait::Writeback)
    } else if begins(JOURNALS) {
        Some(KernelWait::Journal)
    } else if begins(&["inet_stream_connect", "__inet_stream_connect", "unix_stream_connect"]) {
        Some(KernelWait::Connect)
    } else if begins(&["fifo_open"]) {
        Some(KernelWait::OpenFifo)
    } else {
        None
    }
}
