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
//! it guards. Of the network's settings and of the cgroups there is one for all, which kernel threads have too.
//! Of a path's directory none is recorded; nobody is named for the lock of one.

use offwake_recording::Wait;

use crate::blame::cause::{
    Cause, kernel_frames,
    kernel_locks::{KernelLock, LockScope, find_own_lock, holds_while_it_sleeps},
};

use super::{Awaited, Link, OpenWaitGraph, Owner};

impl OpenWaitGraph<'_> {
    /// The thread that has the lock of the kernel's for which another one waits, if that is one alone.
    pub(super) fn kernel_lock_link(&self, wait: &Wait) -> Option<Link> {
        let lock = self.awaited_kernel_lock(wait)?;
        let scope = LockScope::find(lock, wait)?;
        let kernel_threads = self.kernel_threads.iter().filter(|_| scope == LockScope::Machine);
        let all = self.living.values().flatten().chain(kernel_threads).copied();
        let mut holders = all.filter(|&thread| {
            self.open_wait_record(thread).is_some_and(|other| {
                LockScope::find(lock, &other) == Some(scope) && self.sleeps_with(lock, &other)
            })
        });
        let holder = holders.next()?;
        let is_one = holders.next().is_none();
        is_one.then_some(Link { awaited: Awaited::KernelLock(lock), owner: Owner::Thread(holder) })
    }

    /// Returns the lock that a thread waits for in the kernel; none if it asks for the lock of another process.
    fn awaited_kernel_lock(&self, wait: &Wait) -> Option<KernelLock> {
        find_own_lock(Cause::KernelLock, || {
            kernel_frames(&self.recording.stacks, wait.kernel_stack)
        })
    }

    fn sleeps_with(&self, lock: KernelLock, wait: &Wait) -> bool {
        holds_while_it_sleeps(lock, kernel_frames(&self.recording.stacks, wait.kernel_stack))
    }
}
