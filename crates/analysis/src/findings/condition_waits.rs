//! Tells a program's own wait on a condition variable from what runtimes make of such waits.
//!
//! ```text
//! leaf                                                                            root
//! futex  __pthread_cond_wait_common  pthread_cond_timedwait  Item_func_sleep  ...     a condition of the program's
//! futex  __pthread_cond_wait_common  pthread_cond_timedwait  Unsafe_Park  ...         whatever a Java thread parks for
//! ```

use offwake_recording::{Frame, StackRef, StackTable};

use crate::blame::libc_name;

/// The C library's calls that wait on a condition variable until a time at most
/// ([`nptl/Versions`](https://sourceware.org/git/?p=glibc.git;a=blob;f=nptl/Versions;hb=glibc-2.36)).
const TIMED_WAITS: &[&str] = &[
    "pthread_cond_timedwait",
    "pthread_cond_timedwait64",
    "pthread_cond_clockwait",
    "cnd_timedwait",
];

/// Functions of runtimes that have locks of their own which are made of a condition variable: the JVM's
/// (<https://github.com/openjdk/jdk/blob/jdk-21%2B35/src/hotspot/os/posix/os_posix.cpp#L1636>), CPython's
/// (<https://github.com/python/cpython/blob/v3.11.2/Python/thread_pthread.h#L577>).
const RUNTIME_LOCKS: &[&str] = &[
    "Unsafe_Park",
    "Parker::park",
    "PlatformEvent::park",
    "PlatformEvent::park_nanos",
    "PlatformMonitor::wait",
    "PyThread_acquire_lock_timed",
];

/// How many functions from the leaf the C library's call may be.
const MAX_DEPTH: usize = 4;

/// How many functions above it those of a runtime may be: inner ones have no names.
const MAX_RUNTIME_DEPTH: usize = 4;

/// Returns whether a thread with this stack waits on a condition variable, until a time at most, and no runtime's lock
/// is known to be made of it.
pub(super) fn is_on_condition(stacks: &StackTable, user: StackRef) -> bool {
    let StackRef::Id(id) = user else { return false };
    let mut names = stacks.frames_of(id).flat_map(Frame::names);
    let is_timed_wait = |name: &str| TIMED_WAITS.contains(&libc_name(name));
    let is_called = names.by_ref().take(MAX_DEPTH).any(is_timed_wait);
    is_called
        && !names.take(MAX_RUNTIME_DEPTH).any(|name| {
            let plain = name.split('(').next().unwrap_or(name);
            RUNTIME_LOCKS.contains(&plain)
        })
}
