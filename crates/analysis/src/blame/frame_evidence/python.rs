//! Locks of Python's `threading`, by the functions of CPython that acquire them.
//!
//! ```text
//! leaf                                                                                          root
//! futex … PyThread_acquire_lock_timed  lock_PyThread_acquire_lock … transfer (bank.py)         a lock of the program's
//! futex … PyThread_acquire_lock_timed  lock_PyThread_acquire_lock … Condition.wait (threading.py)   whatever it may be
//! futex … PyThread_acquire_lock_timed  (no name) … take_job (pool.py)             a lock, or a SimpleQueue without jobs
//! ```
//!
//! Python's library waits with a lock for anything: for a condition, an event, a thread's end. So only a
//! lock counts that the program's own code asked for. Distributions take the names of inner functions away; then
//! nothing is told.

use offwake_recording::Frame;

use super::{is_script_of_program, plain_name};

/// The function that waits, which CPython exports
/// (<https://github.com/python/cpython/blob/v3.11.2/Python/thread_pthread.h#L464>).
const WAITS: &str = "PyThread_acquire_lock_timed";
/// Methods of the two kinds of lock
/// (<https://github.com/python/cpython/blob/v3.11.2/Modules/_threadmodule.c#L136>).
const METHODS: &[&str] = &["lock_PyThread_acquire_lock", "rlock_acquire"];
/// How many frames from the leaf the function that waits may be.
const MAX_DEPTH: usize = 8;
/// How many more the function of Python may be.
const MAX_INNER: usize = 16;

/// Returns whether a stack waits for a lock that the program's own code asked for.
pub(super) fn waits_for_lock<'a>(frames: impl Iterator<Item = &'a Frame>) -> bool {
    let mut frames = frames;
    if !frames.by_ref().take(MAX_DEPTH).any(|frame| is_called(frame, &[WAITS])) {
        return false;
    }
    let mut is_method = false;
    for frame in frames.take(MAX_INNER) {
        is_method |= is_called(frame, METHODS);
        let mut scripts = frame.functions.iter().filter(|function| {
            let file = function.file.as_deref().unwrap_or_default();
            file.ends_with(".py") || file.starts_with('<')
        });
        if let Some(script) = scripts.next() {
            return is_method && is_script_of_program(script);
        }
    }
    false
}

fn is_called(frame: &Frame, wanted: &[&str]) -> bool {
    frame.names().any(|name| wanted.contains(&plain_name(name)))
}

#[cfg(test)]
mod tests {
    use super::{super::tests::make_frames, waits_for_lock};

    fn is_lock(stack: &[&str]) -> bool {
        waits_for_lock(make_frames(stack).iter())
    }

    #[test]
    fn a_lock_is_one_that_the_program_itself_asks_for() {
        const SEM: &str = "__futex_abstimed_wait_common";
        const TIMED: &str = "PyThread_acquire_lock_timed";
        const LOCK: &str = "lock_PyThread_acquire_lock";
        const CALL: &str = "method_vectorcall_VARARGS_KEYWORDS";
        const OWN: &str = "transfer @/srv/bank.py";
        assert!(is_lock(&[SEM, "sem_clockwait", TIMED, "acquire_timed", LOCK, CALL, OWN]));
        assert!(is_lock(&[SEM, TIMED, "rlock_acquire", CALL, OWN]));
        assert!(is_lock(&[SEM, TIMED, "lock_PyThread_acquire_lock.isra.0", CALL, OWN]));
        for other in [
            // What Python's library waits for.
            &[SEM, TIMED, LOCK, CALL, "Condition.wait @/usr/lib/python3.11/threading.py", OWN][..],
            &[SEM, TIMED, LOCK, CALL, "Thread.join @/usr/lib/python3.11/threading.py", OWN],
            &[SEM, TIMED, LOCK, CALL, "_ModuleLock.acquire @<frozen importlib._bootstrap>", OWN],
            // Another method, or nobody knows which.
            &[SEM, TIMED, "_queue_SimpleQueue_get", CALL, OWN],
            &[SEM, TIMED, "", "", OWN],
            &[SEM, "take_gil", "PyEval_RestoreThread", LOCK, CALL, OWN],
            &[TIMED, LOCK],
        ] {
            assert!(!is_lock(other), "{other:?}");
        }
    }
}
