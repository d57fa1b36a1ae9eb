//! What a thread waits for in its C library, by the functions of its stack: the other half of the proof
//! that a lock's owner is who is waited for.

use offwake_recording::{Frame, LockKind, StackRef, StackTable};

use crate::blame::libc_name;

/// A call of the C library that waits for a futex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::findings) enum LockCall {
    /// For a mutex.
    Mutex,
    /// For a readers-writer lock.
    Rwlock,
    /// For a condition variable, or behind that for the mutex that comes with it.
    Condition,
    /// For a thread's end.
    Join,
}

/// The functions by which calls are known, by the C library's names for them
/// ([`nptl/Versions`](https://sourceware.org/git/?p=glibc.git;a=blob;f=nptl/Versions;hb=glibc-2.36)).
const CALLS: &[(&str, LockCall)] = &[
    ("pthread_mutex_lock", LockCall::Mutex),
    ("pthread_mutex_lock_full", LockCall::Mutex),
    ("pthread_mutex_timedlock", LockCall::Mutex),
    ("pthread_mutex_clocklock", LockCall::Mutex),
    ("pthread_mutex_clocklock_common", LockCall::Mutex),
    ("pthread_mutex_cond_lock", LockCall::Mutex),
    ("pthread_mutex_cond_lock_full", LockCall::Mutex),
    ("pthread_rwlock_rdlock", LockCall::Rwlock),
    ("pthread_rwlock_rdlock_full64", LockCall::Rwlock),
    ("pthread_rwlock_timedrdlock", LockCall::Rwlock),
    ("pthread_rwlock_clockrdlock", LockCall::Rwlock),
    ("pthread_rwlock_wrlock", LockCall::Rwlock),
    ("pthread_rwlock_wrlock_full64", LockCall::Rwlock),
    ("pthread_rwlock_timedwrlock", LockCall::Rwlock),
    ("pthread_rwlock_clockwrlock", LockCall::Rwlock),
    ("pthread_cond_wait", LockCall::Condition),
    ("pthread_cond_wait_common", LockCall::Condition),
    ("pthread_cond_timedwait", LockCall::Condition),
    ("pthread_cond_clockwait", LockCall::Condition),
    ("pthread_join", LockCall::Join),
    ("pthread_tryjoin_np", LockCall::Join),
    ("pthread_timedjoin_np", LockCall::Join),
    ("pthread_clockjoin_np", LockCall::Join),
    ("pthread_clockjoin_ex", LockCall::Join),
];

/// How many functions from the leaf the call may be.
const MAX_DEPTH: usize = 8;

/// Finds the call that a thread waits in.
pub(super) fn find_lock_call(stacks: &StackTable, user: StackRef) -> Option<LockCall> {
    let StackRef::Id(id) = user else { return None };
    stacks.frames_of(id).flat_map(Frame::names).take(MAX_DEPTH).find_map(lock_call)
}

fn lock_call(name: &str) -> Option<LockCall> {
    let plain = libc_name(name);
    CALLS.iter().find(|&&(known, _)| known == plain).map(|&(_, call)| call)
}

/// Returns whether a thread that waits in `call`, with this operation on its futex, waits for a lock of
/// this kind.
pub(super) fn is_for(call: Option<LockCall>, op: u64, kind: LockKind) -> bool {
    /// A condition variable's own wait has a mask (`FUTEX_WAIT_BITSET`), unlike that for its mutex
    /// ([`futex-internal.c`](https://sourceware.org/git/?p=glibc.git;a=blob;f=nptl/futex-internal.c;hb=glibc-2.36),
    /// [`lowlevellock.c`](https://sourceware.org/git/?p=glibc.git;a=blob;f=nptl/lowlevellock.c;hb=glibc-2.36)).
    const FUTEX_WAIT: u64 = 0;
    const COMMAND: u64 = 0x7f;
    match kind {
        // The kernel itself keeps the owner in the futex.
        LockKind::PiLock => true,
        LockKind::Mutex | LockKind::RobustMutex => match call {
            Some(LockCall::Mutex) => true,
            Some(LockCall::Condition) => op & COMMAND == FUTEX_WAIT,
            _ => false,
        },
        LockKind::Rwlock => call == Some(LockCall::Rwlock),
        LockKind::ThreadEnd => call == Some(LockCall::Join),
        // The runtime itself said that the thread waits for it.
        LockKind::PythonLock | LockKind::JavaMonitor | LockKind::JavaLock => true,
    }
}

#[cfg(test)]
mod tests {
    use super::{LockCall, is_for, lock_call};
    use offwake_recording::LockKind;

    #[test]
    fn calls_are_known_by_all_of_their_names() {
        for (name, call) in [
            ("pthread_mutex_lock", Some(LockCall::Mutex)),
            ("___pthread_mutex_lock", Some(LockCall::Mutex)),
            ("__GI___pthread_mutex_lock", Some(LockCall::Mutex)),
            ("__pthread_mutex_lock_full", Some(LockCall::Mutex)),
            ("pthread_mutex_lock@@GLIBC_2.2.5", Some(LockCall::Mutex)),
            ("___pthread_rwlock_rdlock", Some(LockCall::Rwlock)),
            ("pthread_cond_wait@@GLIBC_2.3.2", Some(LockCall::Condition)),
            ("__pthread_clockjoin_ex", Some(LockCall::Join)),
            ("__lll_lock_wait", None),
            ("my_pthread_mutex_lock", None),
            ("pthread_mutex_unlock", None),
            ("sem_wait", None),
        ] {
            assert_eq!(lock_call(name), call, "{name}");
        }
    }

    #[test]
    fn a_lock_is_only_what_the_thread_waits_for() {
        const WAIT: u64 = 0x80;
        const WAIT_BITSET: u64 = 0x189;
        for (call, op, kind, is_one) in [
            (Some(LockCall::Mutex), WAIT, LockKind::Mutex, true),
            (Some(LockCall::Mutex), WAIT_BITSET, LockKind::Mutex, true),
            (Some(LockCall::Mutex), WAIT, LockKind::Rwlock, false),
            (Some(LockCall::Condition), WAIT, LockKind::Mutex, true),
            (Some(LockCall::Condition), WAIT_BITSET, LockKind::Mutex, false),
            (Some(LockCall::Rwlock), WAIT_BITSET, LockKind::Rwlock, true),
            (Some(LockCall::Rwlock), WAIT_BITSET, LockKind::Mutex, false),
            (Some(LockCall::Join), WAIT_BITSET, LockKind::ThreadEnd, true),
            (Some(LockCall::Join), WAIT_BITSET, LockKind::Mutex, false),
            (None, WAIT, LockKind::Mutex, false),
            (None, 0x86, LockKind::PiLock, true),
            (None, WAIT_BITSET, LockKind::PythonLock, true),
            (Some(LockCall::Condition), WAIT_BITSET, LockKind::JavaMonitor, true),
        ] {
            assert_eq!(is_for(call, op, kind), is_one, "{call:?} {op:#x} {kind:?}");
        }
    }
}
