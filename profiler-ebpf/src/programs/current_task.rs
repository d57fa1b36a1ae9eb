//! What is read of the current task at every switch and wake, through typed pointers.
//!
//! Global functions are verified once for each program, not once for each path that leads to them: see
//! [`super::task_address`] for what a load of a pointer costs the verifier.

use profiler_ebpf::record::Inode;

use super::{file, task::Task};

/// Id of the current thread's cgroup in the v2 hierarchy.
#[unsafe(no_mangle)]
pub extern "C" fn current_cgroup() -> u64 {
    Task::current().cgroup()
}

/// Not 0 if the current thread has a user stack to walk: one on its way out has given its address space
/// back already.
#[unsafe(no_mangle)]
pub extern "C" fn current_user_half() -> u64 {
    u64::from(Task::current().has_user_half())
}

/// Reads the inode that one of the current thread's descriptors refers to. 0 if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn read_current_inode(descriptor: u32, into: *mut Inode) -> u64 {
    // SAFETY: callers pass an inode of their own; the verifier checks it.
    let Some(into) = (unsafe { into.as_mut() }) else { return 0 };
    match file::read_inode(Task::current(), descriptor) {
        Some(inode) => {
            *into = inode;
            1
        }
        None => 0,
    }
}
