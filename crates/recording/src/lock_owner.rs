//! Who held the locks in memory that somebody still waited for when a recording ended.

use strum::{IntoStaticStr, VariantArray};

use crate::{ThreadRef, units::Tid};

/// The kind of lock that the words around a futex were read as, or what a language's runtime says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum LockKind {
    /// A mutex of the GNU C library: the owner lies beside the futex
    /// ([`struct __pthread_mutex_s`](https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/nptl/bits/struct_mutex.h;hb=glibc-2.36)).
    Mutex,
    /// A robust mutex of the same library: the owner lies in the futex itself and beside it.
    RobustMutex,
    /// A lock with priority inheritance: by the kernel's own rule the futex holds the owner
    /// ([futex(2)](https://man7.org/linux/man-pages/man2/futex.2.html), `FUTEX_LOCK_PI`).
    PiLock,
    /// A readers-writer lock of the same library that a writer has
    /// ([`struct __pthread_rwlock_arch_t`](https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/x86/nptl/bits/struct_rwlock.h;hb=glibc-2.36)).
    Rwlock,
    /// The end of a thread, in `pthread_join`: the futex holds that thread until it has ended
    /// ([set_tid_address(2)](https://man7.org/linux/man-pages/man2/set_tid_address.2.html)).
    ThreadEnd,
    /// A `Lock` or `RLock` of Python's `threading`. What CPython keeps of its threads tells the owner,
    /// and proves that the waiter waits for this lock
    /// ([`_threadmodule.c`](https://github.com/python/cpython/blob/v3.11.2/Modules/_threadmodule.c)).
    PythonLock,
    /// A monitor of Java (`synchronized`). What the JVM keeps of its threads tells the owner, and proves
    /// that the waiter waits for this monitor. The futex is the waiter's own
    /// ([`ObjectMonitor`](https://github.com/openjdk/jdk17u/blob/jdk-17.0.15%2B6/src/hotspot/share/runtime/objectMonitor.hpp)).
    JavaMonitor,
    /// A lock of `java.util.concurrent` that one thread has. What the JVM keeps of its threads and of their
    /// objects tells the owner, and proves that the waiter is parked at this lock. The futex is the
    /// waiter's own
    /// ([`AbstractOwnableSynchronizer`](https://github.com/openjdk/jdk17u/blob/jdk-17.0.15%2B6/src/java.base/share/classes/java/util/concurrent/locks/AbstractOwnableSynchronizer.java)).
    JavaLock,
}

/// Who could end a wait for a futex, if that is a lock of this kind. What the words around a futex say
/// is one half of the proof: that the thread waits for such a lock, its stack or its syscall has to tell.
/// Only locks of Python and of Java are proved as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockOwner {
    /// The thread that waits.
    pub waiter: Tid,
    /// The futex's address in the waiter's process.
    pub futex: u64,
    /// The kind of lock.
    pub kind: LockKind,
    /// The thread that the lock names, as it was there: a thread of the same process, or of one that
    /// maps the same memory.
    pub owner: ThreadRef,
    /// The owner's name; empty if it had gone meanwhile.
    pub owner_comm: String,
}
