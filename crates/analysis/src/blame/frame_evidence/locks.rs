//! The one table of functions that wait for a lock, and of what each lock is called.

use offwake_recording::{Frame, StackTable};

use super::{module_name, plain_name};

/// What a lock is called, as far as the functions tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockName {
    /// A mutex, a monitor, a latch: nothing more is known.
    Plain,
    /// A readers-writer lock, which the thread wants for itself alone.
    Write,
    /// The lock of Python's interpreter, of which a process has one.
    Gil,
    /// The lock of Ruby's interpreter, of which a process has one.
    Gvl,
    /// A lock on the file of a SQLite database. SQLite asks for it again and again, and sleeps in
    /// between.
    Sqlite,
    /// A lock on a file. No function tells: the thread is refused it, sleeps, and asks again.
    PolledFile,
    /// A lock on a row of a table, of MariaDB's and MySQL's storage engine.
    Row,
    /// A lock on the definition of a table, of MariaDB and MySQL.
    Metadata,
    /// A lock on a whole table, of MariaDB and MySQL.
    Table,
}

impl LockName {
    /// Returns what the lock is called in findings.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Plain => "a lock",
            Self::Write => "a readers-writer lock, to write",
            Self::Gil => "the interpreter's lock (GIL)",
            Self::Gvl => "the interpreter's lock (GVL)",
            Self::Sqlite => "a lock of the SQLite database",
            Self::PolledFile => "a file lock",
            Self::Row => "a row lock (InnoDB)",
            Self::Metadata => "a metadata lock (MDL)",
            Self::Table => "a table lock",
        }
    }

    /// Returns whether threads sleep while they wait for it, and ask for it again.
    #[must_use]
    pub fn is_polled(self) -> bool {
        matches!(self, Self::Sqlite | Self::PolledFile)
    }

    /// Returns whether a process has only one such lock, wherever its threads wait for it.
    #[must_use]
    pub fn is_of_interpreter(self) -> bool {
        matches!(self, Self::Gil | Self::Gvl)
    }
}

/// Functions that acquire a lock, or wait until it is theirs. C++ and Rust names have no arguments
/// and no hash, those of the C library no underscores in front.
const LOCKS: &[(LockName, &[&str])] = &[
    (
        LockName::Plain,
        &[
            // The GNU C library, https://sourceware.org/git/?p=glibc.git;a=tree;f=nptl;hb=glibc-2.36.
            // `…_full` is for robust mutexes and for those with priority inheritance.
            "lll_lock_wait",
            "lll_clocklock_wait",
            "pthread_mutex_lock",
            "pthread_mutex_lock_full",
            "pthread_mutex_cond_lock",
            "pthread_mutex_cond_lock_full",
            "pthread_mutex_timedlock",
            "pthread_mutex_clocklock",
            "pthread_mutex_clocklock_common",
            "pthread_rwlock_rdlock",
            "pthread_rwlock_rdlock_full64",
            "pthread_rwlock_timedrdlock",
            "pthread_rwlock_clockrdlock",
            "futex_lock_pi64",
            // The JVM, https://github.com/openjdk/jdk/tree/jdk-21%2B35/src/hotspot/share/runtime
            "ObjectMonitor::enter",
            "ObjectMonitor::EnterI",
            "ObjectMonitor::ReenterI",
            // PostgreSQL, https://github.com/postgres/postgres/tree/REL_15_0/src/backend/storage/lmgr
            "LockAcquire",
            "LockAcquireExtended",
            "ProcSleep",
            "LWLockAcquire",
            "LWLockAcquireOrWait",
            "LWLockWaitForVar",
            // Go's runtime, libuv, Abseil.
            "runtime.lock2",
            "uv_mutex_lock",
            "absl::Mutex::Lock",
            "absl::lts_20220623::Mutex::Lock",
            // parking_lot, https://github.com/Amanieu/parking_lot/tree/0.12.1/src
            "parking_lot::raw_mutex::RawMutex::lock_slow",
            "parking_lot::raw_rwlock::RawRwLock::lock_exclusive_slow",
            "parking_lot::raw_rwlock::RawRwLock::lock_shared_slow",
            "parking_lot::raw_rwlock::RawRwLock::lock_upgradable_slow",
            "parking_lot::raw_rwlock::RawRwLock::upgrade_slow",
            // Ruby, https://github.com/ruby/ruby/blob/v3_1_2/thread_sync.c
            "rb_mutex_lock",
            "do_mutex_lock",
            "rb_monitor_enter",
        ],
    ),
    (
        LockName::Write,
        &[
            "pthread_rwlock_wrlock",
            "pthread_rwlock_wrlock_full64",
            "pthread_rwlock_timedwrlock",
            "pthread_rwlock_clockwrlock",
        ],
    ),
    // CPython exports all but the first, and they do nothing else. `take_gil`, which they call, has no
    // name in most distributions' builds
    // (https://github.com/python/cpython/blob/v3.11.2/Python/ceval.c#L672).
    (
        LockName::Gil,
        &["take_gil", "PyEval_RestoreThread", "PyEval_AcquireThread", "PyEval_AcquireLock"],
    ),
    // https://github.com/ruby/ruby/blob/v3_1_2/thread_pthread.c, v3_2_0 and v3_3_0
    (
        LockName::Gvl,
        &[
            "gvl_acquire",
            "gvl_acquire_common",
            "gvl_yield",
            "thread_sched_to_running",
            "thread_sched_to_running_common",
            "thread_sched_wait_running_turn",
            "thread_sched_yield",
            "rb_thread_schedule",
        ],
    ),
    // https://github.com/sqlite/sqlite/blob/version-3.40.1/src/main.c#L1683
    (
        LockName::Sqlite,
        &["sqliteDefaultBusyCallback", "sqlite3InvokeBusyHandler", "btreeInvokeBusyHandler"],
    ),
    // https://github.com/mysql/mysql-server/blob/mysql-8.0.36/storage/innobase/lock/lock0wait.cc,
    // and MariaDB before 10.6
    (LockName::Row, &["lock_wait_suspend_thread"]),
    // https://github.com/MariaDB/server/blob/mariadb-10.11.6/sql/mdl.cc#L1212
    (
        LockName::Metadata,
        &["MDL_wait::timed_wait", "MDL_context::acquire_lock", "MDL_context::upgrade_shared_lock"],
    ),
    // https://github.com/MariaDB/server/blob/mariadb-10.11.6/mysys/thr_lock.c
    (LockName::Table, &["thr_multi_lock"]),
];

/// Ends of names of Rust's standard library, which has moved its locks from one module of `std::sys`
/// to another again and again
/// ([`mutex/futex.rs`](https://github.com/rust-lang/rust/blob/1.88.0/library/std/src/sys/sync/mutex/futex.rs)).
const RUST_LOCKS: &[&str] = &["::lock_contended", "::read_contended", "::write_contended"];

/// Returns what the lock is called that a function waits for, if it does. The name is
/// [`plain_name`]'s.
pub(super) fn lock_of_function(name: &str) -> Option<LockName> {
    if name.starts_with("std::sys::") && RUST_LOCKS.iter().any(|end| name.ends_with(end)) {
        return Some(LockName::Plain);
    }
    let of_libc = libc_name(name);
    LOCKS
        .iter()
        .find(|(_, functions)| functions.contains(&name) || functions.contains(&of_libc))
        .map(|&(lock, _)| lock)
}

/// `__GI___pthread_mutex_lock@@GLIBC_2.2.5` → `pthread_mutex_lock`: the C library has several names
/// for one function.
pub(crate) fn libc_name(name: &str) -> &str {
    let plain = name.split(['@', '.']).next().unwrap_or(name).trim_start_matches('_');
    plain.strip_prefix("GI_").unwrap_or(plain).trim_start_matches('_')
}

/// A lock that is known by the function through which the library is entered that waits for it.
/// Distributions take the names of inner functions away:
///
/// ```text
/// leaf                                                                       root
/// clock_nanosleep  usleep  (no name)  (no name)  sqlite3_step  the program's own
/// `---- libc ----'         `--------- libsqlite3.so.0 -------'
/// ```
struct EnteredLock {
    lock: LockName,
    /// What was called of the C library to wait.
    calls: &'static [&'static str],
    /// Beginnings of the names of the files that the library's code is in.
    modules: &'static [&'static str],
    /// The functions through which the library is entered, or the beginnings of their names.
    entries: &'static [&'static str],
    /// Beginnings of the names of inner functions, where they have any.
    inner: &'static [&'static str],
}

const ENTERED_LOCKS: &[EnteredLock] = &[
    // SQLite sleeps for no other reason than that another connection has a lock
    // (https://github.com/sqlite/sqlite/blob/version-3.40.1/src/main.c#L1683, and `walTryBeginRead`).
    // `sqlite3_sleep` is no such entry: with that, a program sleeps on purpose.
    EnteredLock {
        lock: LockName::Sqlite,
        calls: &["clock_nanosleep", "nanosleep", "usleep", "sleep", "select", "poll"],
        modules: &["libsqlite3.", "libsqlite3-", "libmozsqlite3.", "libsqlcipher."],
        entries: &[
            "sqlite3_step",
            "sqlite3_exec",
            "sqlite3_get_table",
            "sqlite3_prepare",
            "sqlite3_open",
            "sqlite3_close",
            "sqlite3_backup_step",
            "sqlite3_blob_open",
            "sqlite3_wal_checkpoint",
            "sqlite3_table_column_metadata",
        ],
        inner: &["sqlite3", "unix", "btree", "pager", "wal", "vdbe", "balance", "sqliteDefault"],
    },
    // `lock_wait` (https://github.com/MariaDB/server/blob/mariadb-10.11.6/storage/innobase/lock/lock0lock.cc#L1877)
    // waits for a row with a timeout. InnoDB's latches are no condition variables.
    EnteredLock {
        lock: LockName::Row,
        calls: &["pthread_cond_timedwait", "pthread_cond_timedwait64", "pthread_cond_clockwait"],
        modules: &["mariadbd", "mysqld", "ha_innodb."],
        entries: &[
            "handler::ha_rnd_next",
            "handler::ha_rnd_pos",
            "handler::ha_index_",
            "handler::ha_write_row",
            "handler::ha_update_row",
            "handler::ha_delete_row",
            "handler::read_range_",
            "handler::multi_range_read_",
        ],
        inner: &["lock_wait", "row_", "ha_innobase::", "my_cond_", "safe_cond_", "inline_mysql_"],
    },
    // A block that is run with the mutex has `rb_yield` in between
    // (https://github.com/ruby/ruby/blob/v3_1_2/thread_sync.c#L273).
    EnteredLock {
        lock: LockName::Plain,
        calls: RUBY_WAIT_CALLS,
        modules: RUBY_MODULES,
        entries: &["rb_mutex_synchronize", "rb_mutex_lock", "rb_monitor_enter"],
        inner: &["do_mutex_lock", "native_", "rb_native_cond_"],
    },
    // After its time slice (https://github.com/ruby/ruby/blob/v3_1_2/thread.c#L2369). What waits below
    // `rb_nogvl` may as well be what is done there without the lock: it waits for another Ractor, say.
    EnteredLock {
        lock: LockName::Gvl,
        calls: &["pthread_cond_wait", "pthread_cond_timedwait", "pthread_cond_timedwait64"],
        modules: RUBY_MODULES,
        entries: &["rb_threadptr_execute_interrupts"],
        inner: &["rb_native_cond_", "native_cond_", "gvl_", "thread_sched_"],
    },
];

/// How Ruby's threads wait for each other: the first of them polls a pipe as well.
const RUBY_WAIT_CALLS: &[&str] = &[
    "pthread_cond_wait",
    "pthread_cond_timedwait",
    "pthread_cond_timedwait64",
    "pthread_cond_clockwait",
    "ppoll",
];

const RUBY_MODULES: &[&str] = &["libruby", "ruby"];

/// Beginnings of the names of the C library's own files.
const C_LIBRARIES: &[&str] = &["libc.", "libc-", "libpthread", "ld-musl-", "ld-linux", "[vdso]"];

/// Finds the lock that a stack waits for by the library that it is in.
pub(super) fn find_entered_lock<'a>(
    stacks: &StackTable,
    frames: impl Iterator<Item = &'a Frame> + Clone,
) -> Option<LockName> {
    (ENTERED_LOCKS.iter())
        .find(|known| known.is_waited_for(stacks, frames.clone()))
        .map(|known| known.lock)
}

impl EnteredLock {
    fn is_waited_for<'a>(
        &self,
        stacks: &StackTable,
        frames: impl Iterator<Item = &'a Frame>,
    ) -> bool {
        let begins = |name: &str, with: &[&str]| with.iter().any(|start| name.starts_with(start));
        let mut is_called = false;
        for frame in frames {
            let module = module_name(stacks, frame);
            if begins(module, C_LIBRARIES) {
                is_called |= frame.names().any(|name| self.calls.contains(&libc_name(name)));
                continue;
            }
            if !is_called || !begins(module, self.modules) {
                return false;
            }
            for name in frame.names().map(plain_name) {
                if begins(name, self.entries) {
                    return true;
                }
                if !begins(name, self.inner) || name == "sqlite3_sleep" {
                    return false;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::{LockName, libc_name, lock_of_function};

    #[test]
    fn one_function_of_the_c_library_has_many_names() {
        for name in [
            "pthread_mutex_lock",
            "___pthread_mutex_lock",
            "__GI___pthread_mutex_lock",
            "pthread_mutex_lock@@GLIBC_2.2.5",
        ] {
            assert_eq!(libc_name(name), "pthread_mutex_lock", "{name}");
            assert_eq!(lock_of_function(name), Some(LockName::Plain), "{name}");
        }
    }

    #[test]
    fn locks_of_many_runtimes_are_known() {
        use LockName::{Gil, Gvl, Metadata, Plain, Row, Sqlite, Write};
        for (name, lock) in [
            ("__pthread_mutex_lock_full", Some(Plain)),
            ("std::sys::sync::mutex::futex::Mutex::lock_contended", Some(Plain)),
            ("std::sys::unix::locks::futex_mutex::Mutex::lock_contended", Some(Plain)),
            ("std::sys::sync::rwlock::futex::RwLock::write_contended", Some(Plain)),
            ("parking_lot::raw_rwlock::RawRwLock::lock_shared_slow", Some(Plain)),
            ("___pthread_rwlock_rdlock", Some(Plain)),
            ("___pthread_rwlock_wrlock", Some(Write)),
            ("rb_mutex_lock", Some(Plain)),
            ("thread_sched_to_running", Some(Gvl)),
            ("take_gil", Some(Gil)),
            ("MDL_wait::timed_wait", Some(Metadata)),
            ("lock_wait_suspend_thread", Some(Row)),
            ("sqliteDefaultBusyCallback", Some(Sqlite)),
            // What a program calls like this may be anything.
            ("app::Mutex::lock_contended", None),
            ("pthread_mutex_unlock", None),
            ("pthread_cond_wait", None),
            ("rb_mutex_sleep", None),
            ("sqlite3_sleep", None),
            ("std::sys::sync::condvar::futex::Condvar::wait", None),
        ] {
            assert_eq!(lock_of_function(name), lock, "{name}");
        }
    }
}
