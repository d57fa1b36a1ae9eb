//! Locks of Java's library, by the names that a map of the JVM's compiled methods has
//! (`/tmp/perf-PID.map`). Without such a map, a thread parks for whatever it may be.

use super::LockName;

/// Classes of `java.util.concurrent.locks`, and their methods that wait for a lock. What semaphores and latches wait
/// with (`acquireShared`, `acquire` itself since Java 17) is not among them
/// (<https://github.com/openjdk/jdk/tree/jdk-21%2B35/src/java.base/share/classes/java/util/concurrent/locks>,
/// and Java 11's).
const METHODS: &[(&str, &[&str])] = &[
    ("ReentrantLock", &["lock", "lockInterruptibly", "tryLock"]),
    ("ReentrantLock$Sync", &["lock", "lockInterruptibly", "tryLockNanos"]),
    ("ReentrantReadWriteLock$ReadLock", &["lock", "lockInterruptibly", "tryLock"]),
    ("ReentrantReadWriteLock$WriteLock", &["lock", "lockInterruptibly", "tryLock"]),
    (
        "StampedLock",
        &[
            "readLock",
            "readLockInterruptibly",
            "tryReadLock",
            "writeLock",
            "writeLockInterruptibly",
            "tryWriteLock",
            "acquireRead",
            "acquireWrite",
        ],
    ),
    (
        "AbstractQueuedSynchronizer",
        &["acquireQueued", "doAcquireInterruptibly", "doAcquireNanos", "tryAcquireNanos"],
    ),
];

/// What comes before the name of a package.
const BEGINNINGS: &[&str] = &["", "L", "java.base/"];

/// Returns what the lock is called that a method waits for, if it does: `boolean
/// java.util.concurrent.locks.ReentrantLock.tryLock` as the JVM itself writes it, or
/// `Ljava/util/concurrent/locks/ReentrantLock;::tryLock` as agents do.
pub(super) fn lock_of_method(name: &str) -> Option<LockName> {
    let (class, method) = class_and_method(name.rsplit(' ').next()?)?;
    let (_, methods) = METHODS.iter().find(|(known, _)| *known == class)?;
    methods.contains(&method).then_some(LockName::Plain)
}

fn class_and_method(name: &str) -> Option<(&str, &str)> {
    const PACKAGES: &[&str] = &["java.util.concurrent.locks.", "java/util/concurrent/locks/"];
    let (before, rest) = PACKAGES.iter().find_map(|package| name.split_once(package))?;
    if !BEGINNINGS.contains(&before) {
        return None;
    }
    rest.split_once(";::").or_else(|| rest.rsplit_once('.'))
}

#[cfg(test)]
mod tests {
    use super::{LockName, lock_of_method};

    #[test]
    fn locks_of_javas_library_are_known_however_a_map_writes_them() {
        let plain = Some(LockName::Plain);
        for (name, lock) in [
            ("boolean java.util.concurrent.locks.ReentrantLock.tryLock", plain),
            ("java.base/java.util.concurrent.locks.ReentrantLock$Sync.tryLockNanos", plain),
            ("Ljava/util/concurrent/locks/AbstractQueuedSynchronizer;::acquireQueued", plain),
            ("Ljava/util/concurrent/locks/ReentrantReadWriteLock$WriteLock;::lock", plain),
            // These wait for anything.
            ("Ljava/util/concurrent/locks/LockSupport;::parkNanos", None),
            ("Ljava/util/concurrent/locks/AbstractQueuedSynchronizer;::acquire", None),
            ("Ljava/util/concurrent/locks/AbstractQueuedSynchronizer;::doAcquireSharedNanos", None),
            ("void java.util.concurrent.locks.ReentrantLock.unlock", None),
            // What a program calls like this may be anything.
            ("app.java.util.concurrent.locks.ReentrantLock.lock", None),
            ("app.ReentrantLock.lock", None),
            ("", None),
        ] {
            assert_eq!(lock_of_method(name), lock, "{name}");
        }
    }
}
