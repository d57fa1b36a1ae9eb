//! Who has a lock of the kernel's that a thread waits for: the only thread that sleeps in the code which
//! takes it.
//!
//! ```text
//! B  rwsem_down_write_slowpath  down_write  ext4_buffered_write_iter   wants the inode's lock of file 7
//! A  io_schedule  balance_dirty_pages       ext4_buffered_write_iter   writes to file 7: A has it
//! C  io_schedule  balance_dirty_pages       ext4_buffered_write_iter   writes to file 8: C has another
//! ```
//!
//! The kernel does not say who has such a lock, and its address is not recorded. So it is told by what it
//! belongs to: the file behind the syscall's descriptor, that descriptor, or the process whose address space
//! it guards. Of a path's directory none is recorded; nobody is named for the lock of one.

use offwake_recording::{Wait, units::Tgid};

use crate::blame::cause::{
    Cause, kernel_frames,
    kernel_locks::{KernelLock, find_kernel_lock, holds_while_it_sleeps, is_own_lock},
    syscalls,
};

use super::{Awaited, Link, OpenWaitGraph, Owner};

/// What a lock of the kernel's belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LockScope {
    File {
        device: u32,
        inode: u64,
    },
    Process(Tgid),
    /// An open file, by its number in its process.
    Descriptor {
        process: Tgid,
        number: u32,
    },
}

impl OpenWaitGraph<'_> {
    /// The thread that has the lock of the kernel's for which another one waits, if that is one alone.
    pub(super) fn kernel_lock_link(&self, wait: &Wait) -> Option<Link> {
        let lock = self.awaited_kernel_lock(wait)?;
        let scope = scope_of_lock(lock, wait)?;
        let mut holders = self.living.values().flatten().copied().filter(|&thread| {
            self.open_wait_record(thread).is_some_and(|other| {
                scope_of_lock(lock, &other) == Some(scope) && self.sleeps_with(lock, &other)
            })
        });
        let holder = holders.next()?;
        let is_one = holders.next().is_none();
        is_one.then_some(Link { awaited: Awaited::KernelLock(lock), owner: Owner::Thread(holder) })
    }

    /// Returns the lock that a thread waits for in the kernel; none if it asks for the lock of another process.
    fn awaited_kernel_lock(&self, wait: &Wait) -> Option<KernelLock> {
        let frames = || kernel_frames(&self.recording.stacks, wait.kernel_stack);
        find_kernel_lock(Cause::KernelLock, frames()).filter(|_| frames().all(is_own_lock))
    }

    fn sleeps_with(&self, lock: KernelLock, wait: &Wait) -> bool {
        holds_while_it_sleeps(lock, kernel_frames(&self.recording.stacks, wait.kernel_stack))
    }
}

/// Returns what the lock belongs to that a thread in this syscall takes.
fn scope_of_lock(lock: KernelLock, wait: &Wait) -> Option<LockScope> {
    match lock {
        KernelLock::AddressSpace => Some(LockScope::Process(wait.tgid)),
        KernelLock::File => {
            let file = wait.file?;
            Some(LockScope::File { device: file.device, inode: file.inode })
        }
        KernelLock::FilePosition => {
            let number = syscalls::descriptor(wait.syscall.as_ref()?, None)?;
            Some(LockScope::Descriptor { process: wait.tgid, number })
        }
        KernelLock::Directory
        | KernelLock::Pipe
        | KernelLock::NetworkSettings
        | KernelLock::Cgroups
        | KernelLock::FrozenFilesystem => None,
    }
}
