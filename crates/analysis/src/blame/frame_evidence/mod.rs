//! What the functions of a program's stack tell about why it waits, where the syscall does not.
//!
//! A condition variable serves for everything: a pool's thread waits on one for its next job, a
//! Java thread for a monitor that another holds, and `Thread.sleep` for its time to be over.

mod java;
mod locks;
mod python;

use std::{borrow::Cow, collections::HashMap};

use offwake_recording::{Frame, Function, StackRef, StackTable, units::StackId};

pub use locks::LockName;
pub(crate) use locks::libc_name;

use super::cause::Cause;

/// What a user stack tells about a wait, or the syscall's own words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FrameEvidence {
    /// No function tells anything.
    #[default]
    None,
    /// The thread waits for its next job.
    WorkerLoop,
    /// The thread waits for a lock, which is called this.
    Lock(LockName),
    /// The thread sleeps until its time is over.
    Sleep,
    /// The thread waits for the answer of a server that it asked.
    Request,
    /// The thread waits for the answer of a name server.
    NameLookup,
    /// The thread waits until the JVM lets all of its threads go on, after a garbage collection say.
    Safepoint,
    /// The thread is one coroutine's own, which waits for whatever: any thread of the runtime may be
    /// the one that wakes it when that has come.
    OwnCoroutine,
    /// The thread polls one file until it can write: it connects, or has something to send. The events
    /// that it asks for tell that, no function does.
    Output,
}

impl FrameEvidence {
    /// Returns whether the thread waits for a lock.
    #[must_use]
    pub fn is_lock(self) -> bool {
        matches!(self, Self::Lock(_))
    }

    /// Returns whether the thread waits for what the other end of a connection has to do.
    #[must_use]
    pub fn is_request(self) -> bool {
        matches!(self, Self::Request | Self::NameLookup | Self::Output)
    }
}

/// Functions in which the threads of runtimes and servers wait for their next job, and what they
/// belong to.
const WORKER_LOOPS: &[&str] = &[
    // The JVM, https://github.com/openjdk/jdk/tree/jdk-21%2B35/src/hotspot/share
    "CompileQueue::get",
    "GangWorker::loop",
    "GangWorker::run",
    "WorkerThread::run",
    "VMThread::loop",
    "VMThread::wait_for_vm_thread_terminate",
    "WatcherThread::sleep",
    "ServiceThread::service_thread_entry",
    "MonitorDeflationThread::monitor_deflation_thread_entry",
    "NotificationThread::notification_thread_entry",
    "JVM_WaitForReferencePendingList",
    "AttachListener::dequeue",
    "LinuxAttachListener::dequeue",
    "signal_thread_entry",
    "G1ServiceThread::run_service",
    "G1ConcurrentRefineThread::run_service",
    "G1ConcurrentMarkThread::run_service",
    "ConcurrentGCBreakpoints",
    // Go's scheduler, https://github.com/golang/go/blob/go1.22.0/src/runtime/proc.go
    "runtime.stopm",
    "runtime.sysmon",
    "runtime.templateThread",
    // Node, https://github.com/nodejs/node/blob/v20.20.0/src/node_platform.cc
    "node::(anonymous namespace)::PlatformWorkerThread",
    "node::WorkerThreadsTaskRunner::DelayedTaskScheduler::Run",
    // PostgreSQL, https://github.com/postgres/postgres/tree/REL_15_0/src/backend/postmaster
    "WalWriterMain",
    "BackgroundWriterMain",
    "CheckpointerMain",
    "AutoVacLauncherMain",
    "ApplyLauncherMain",
    "PgArchiverMain",
    "SysLoggerMain",
    // Redis, nginx, MySQL.
    "bioProcessBackgroundJobs",
    "IOThreadMain",
    "ngx_thread_pool_cycle",
    "Per_thread_connection_handler::block_until_new_connection",
    // MariaDB's own threads, https://github.com/MariaDB/server/tree/mariadb-10.11.6/{sql,tpool}
    "tpool::thread_pool_generic::wait_for_tasks",
    "handle_manager",
    "slave_deadlock_handler",
    "signal_hand",
    // Where servers wait for connections alone, which others then serve: MariaDB, MySQL, PHP.
    "handle_connections_sockets",
    "Mysqld_socket_listener::listen_for_connection_event",
    "fpm_event_loop",
    // Rust's pools.
    "tokio::runtime::blocking::pool::Inner::run",
    // The same where it is named by debug information.
    "tokio::runtime::blocking::pool::run",
    // Of several workers of tokio's, all but the one that polls.
    "tokio::runtime::scheduler::multi_thread::park::Inner::park_condvar",
    "tokio::runtime::scheduler::multi_thread::park::park_condvar",
    "rayon_core::sleep::Sleep::sleep",
];

/// The same of Python's library: a function and the end of its file.
const PYTHON_WORKER_LOOPS: &[(&str, &str)] = &[
    ("_worker", "concurrent/futures/thread.py"),
    ("worker", "multiprocessing/pool.py"),
    ("serve_forever", "socketserver.py"),
];

/// Functions that a worker's loop calls to do a job. Whatever their threads wait for, it is not the next job, even
/// where no function is the program's own: `executor.submit(cursor.execute, ...)`.
const JOBS: &[&str] = &["tokio::runtime::task::"];

/// The same of Python's library: a function and the end of its file.
const PYTHON_JOBS: &[(&str, &str)] = &[
    ("run", "concurrent/futures/thread.py"),
    ("mapstar", "multiprocessing/pool.py"),
    ("starmapstar", "multiprocessing/pool.py"),
    ("_handle_request_noblock", "socketserver.py"),
];

/// Functions that sleep, with whatever they do it.
const SLEEPS: &[&str] = &[
    "JVM_Sleep",
    "JVM_SleepNanos",
    "JavaThread::sleep",
    "JavaThread::sleep_nanos",
    "os::sleep",
    "g_usleep",
    "std::thread::sleep",
    "std::thread::functions::sleep",
];

/// Functions that ask a server and wait for its answer, with a timeout of their own.
const REQUESTS: &[&str] = &["curl_easy_perform", "PQgetResult", "PQexec", "PQconnectdb"];

/// Functions in which the JVM's threads wait while it has stopped all of them
/// (<https://github.com/openjdk/jdk/blob/jdk-21%2B35/src/hotspot/share/runtime/safepoint.cpp#L666>).
const SAFEPOINTS: &[&str] = &["SafepointSynchronize::block", "LinuxWaitBarrier::wait"];

/// Functions in which threads wait that have one coroutine of their own. In Go, that is
/// `runtime.LockOSThread` (<https://github.com/golang/go/blob/go1.22.0/src/runtime/proc.go#L2997>).
const OWN_COROUTINES: &[&str] = &["runtime.stoplockedm"];

/// Functions of C libraries that ask name servers.
const NAME_LOOKUPS: &[&str] = &[
    "__res_context_send",
    "__GI___res_context_send",
    "__res_nsend",
    "__libc_res_nsend",
    "__res_msend_rc",
];

/// How many frames from the leaf a worker's loop may be: processes that a server forks have the
/// server's own loop at the root of their stacks. Python needs a dozen for one of its functions.
const MAX_LOOP_DEPTH: usize = 16;

/// Reads user stacks, each once for each cause that makes a difference.
#[derive(Default)]
pub(super) struct FrameReader {
    known: HashMap<(StackId, WaitKind), FrameEvidence>,
}

/// The kinds of waits for which one stack means different things.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum WaitKind {
    /// The thread sleeps until a time.
    Sleep,
    /// The thread waits on a futex, or for any of several files.
    FutexOrPoll,
    Other,
}

impl FrameReader {
    /// Returns what a user stack tells about a wait with this cause.
    pub(super) fn read(
        &mut self,
        stacks: &StackTable,
        user: StackRef,
        cause: Cause,
    ) -> FrameEvidence {
        let StackRef::Id(id) = user else { return FrameEvidence::None };
        let kind = match cause {
            Cause::Timer => WaitKind::Sleep,
            Cause::Futex | Cause::Poll => WaitKind::FutexOrPoll,
            _ => WaitKind::Other,
        };
        *self.known.entry((id, kind)).or_insert_with(|| read_stack(stacks, id, kind))
    }
}

fn read_stack(stacks: &StackTable, id: StackId, kind: WaitKind) -> FrameEvidence {
    let entered = || match kind {
        WaitKind::Sleep | WaitKind::FutexOrPoll => {
            locks::find_entered_lock(stacks, stacks.frames_of(id).collect::<Vec<_>>().into_iter())
        }
        WaitKind::Other => None,
    };
    let is_pythons =
        || kind == WaitKind::FutexOrPoll && python::waits_for_lock(stacks.frames_of(id));
    match entered() {
        Some(lock) => FrameEvidence::Lock(lock),
        None if is_pythons() => FrameEvidence::Lock(LockName::Plain),
        None => read_frames(stacks.frames_of(id), kind),
    }
}

/// Reads frames from the leaf on, until one tells something.
fn read_frames<'a>(frames: impl Iterator<Item = &'a Frame>, kind: WaitKind) -> FrameEvidence {
    let mut has_job = false;
    for (frame, depth) in frames.zip(0..) {
        match evidence_of_frame(frame) {
            // Whoever was called by the loop has a job.
            Some(FrameEvidence::WorkerLoop) if has_job || depth >= MAX_LOOP_DEPTH => {}
            // A busy handler that does anything else than to sleep is the program's own.
            Some(FrameEvidence::Lock(LockName::Sqlite)) if kind != WaitKind::Sleep => {}
            Some(evidence) => return evidence,
            None => {
                has_job |= (frame.functions.iter())
                    .any(|function| is_script_of_program(function) || does_job(function));
            }
        }
    }
    FrameEvidence::None
}

/// Returns the name of the file that a frame's code is in, without its folder.
fn module_name<'a>(stacks: &'a StackTable, frame: &Frame) -> &'a str {
    let path = stacks.module_of(frame).map_or("", |module| module.path.as_str());
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns whether a function is in a script of the program itself.
fn is_script_of_program(function: &Function) -> bool {
    function.file.as_deref().is_some_and(|file| {
        file.ends_with(".py") && !file.contains("/lib/python") && !file.starts_with('<')
    })
}

/// `BaseServer.serve_forever` → `serve_forever`: Python names the class since 3.11.
pub(crate) fn python_name(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// Returns whether a worker's loop calls a function to do a job.
fn does_job(function: &Function) -> bool {
    let file = function.file.as_deref().unwrap_or_default();
    let is_pythons =
        |&(name, end): &(&str, &str)| python_name(&function.name) == name && file.ends_with(end);
    let name = function.name.trim_start_matches('<');
    JOBS.iter().any(|job| name.starts_with(job)) || PYTHON_JOBS.iter().any(is_pythons)
}

fn evidence_of_frame(frame: &Frame) -> Option<FrameEvidence> {
    frame.functions.iter().find_map(|function| {
        let name = without_brackets(plain_name(&function.name));
        let name = &*name;
        let file = function.file.as_deref().unwrap_or_default();
        let is_python_loop = (PYTHON_WORKER_LOOPS.iter())
            .any(|&(of_python, end)| python_name(name) == of_python && file.ends_with(end));
        if let Some(lock) = locks::lock_of_function(name).or_else(|| java::lock_of_method(name)) {
            Some(FrameEvidence::Lock(lock))
        } else if SLEEPS.contains(&name) {
            Some(FrameEvidence::Sleep)
        } else if REQUESTS.contains(&name) {
            Some(FrameEvidence::Request)
        } else if SAFEPOINTS.contains(&name) {
            Some(FrameEvidence::Safepoint)
        } else if OWN_COROUTINES.contains(&name) {
            Some(FrameEvidence::OwnCoroutine)
        } else if NAME_LOOKUPS.contains(&name) {
            Some(FrameEvidence::NameLookup)
        } else if is_python_loop || WORKER_LOOPS.contains(&name) {
            Some(FrameEvidence::WorkerLoop)
        } else {
            None
        }
    })
}

/// `ObjectMonitor::enter(JavaThread*)` → `ObjectMonitor::enter`. What a compiler adds to a name
/// does not count either: `LockAcquireExtended.part.0`.
pub(super) fn plain_name(name: &str) -> &str {
    let end = name
        .char_indices()
        .find(|&(n, c)| c == '(' && n > 0 && !name[..n].ends_with(':'))
        .map_or(name.len(), |(n, _)| n);
    let plain = &name[..end];
    ["part.", "constprop.", "isra.", "cold"]
        .iter()
        .find_map(|added| plain.split_once(&format!(".{added}")).map(|(plain, _)| plain))
        .unwrap_or(plain)
}

/// `<std::sync::Mutex>::lock` → `std::sync::Mutex::lock`: so newer compilers of Rust name a method.
fn without_brackets(name: &str) -> Cow<'_, str> {
    match name.strip_prefix('<').and_then(|rest| rest.split_once(">::")) {
        Some((owner, method)) if !owner.contains(['<', ' ']) => {
            Cow::Owned(format!("{owner}::{method}"))
        }
        _ => Cow::Borrowed(name),
    }
}

#[cfg(test)]
mod tests {
    use offwake_recording::AddressKind;

    use super::*;

    /// Makes the frames of a stack from the leaf on: functions, with files behind `@`.
    pub(super) fn make_frames(stack: &[&str]) -> Vec<Frame> {
        (stack.iter().zip(0..))
            .map(|(text, address)| {
                let (name, file) = text.split_once(" @").unwrap_or((text, ""));
                let file = Some(file).filter(|file| !file.is_empty()).map(Into::into);
                let functions = vec![Function { file, ..Function::named(name) }];
                let (module, module_offset) = (None, None);
                Frame { address, kind: AddressKind::Return, module, module_offset, functions }
            })
            .collect()
    }

    fn read(stack: &[&str]) -> FrameEvidence {
        read_frames(make_frames(stack).iter(), WaitKind::Other)
    }

    #[test]
    fn a_worker_that_waits_for_a_job_is_told_from_one_that_has_one() {
        const POOL: &str = "_worker @/usr/lib/python3.11/concurrent/futures/thread.py";
        const ITEM: &str = "_WorkItem.run @/usr/lib/python3.11/concurrent/futures/thread.py";
        const TOKIO: &str = "tokio::runtime::blocking::pool::Inner::run";
        const TASK: &str = "<tokio::runtime::task::harness::Harness<T, S>>::poll";
        const SERVER: &str = "BaseServer.serve_forever @/usr/lib/python3.11/socketserver.py";
        const REQUEST: &str =
            "BaseServer._handle_request_noblock @/usr/lib/python3.11/socketserver.py";
        let idle = FrameEvidence::WorkerLoop;
        assert_eq!(read(&["futex_wait", "lock_acquire", POOL]), idle);
        assert_eq!(read(&["syscall", TOKIO]), idle);
        assert_eq!(read(&["select @/usr/lib/python3.11/selectors.py", SERVER]), idle);
        // Before 3.11.
        assert_eq!(read(&["serve_forever @/usr/lib/python3.9/socketserver.py"]), idle);
        // None of these functions is the program's own.
        assert_eq!(read(&["poll", "psyco_cursor_execute", ITEM, POOL]), FrameEvidence::None);
        assert_eq!(read(&["recv", "std::net::tcp::read", TASK, TOKIO]), FrameEvidence::None);
        let sends = "copyfileobj @/usr/lib/python3.11/shutil.py";
        assert_eq!(read(&["send", sends, REQUEST, SERVER]), FrameEvidence::None);
    }

    #[test]
    fn methods_have_one_name_whatever_the_compiler() {
        for (name, plain) in [
            (
                "<std::sys::sync::mutex::futex::Mutex>::lock_contended",
                "std::sys::sync::mutex::futex::Mutex::lock_contended",
            ),
            ("<app::A as core::fmt::Debug>::fmt", "<app::A as core::fmt::Debug>::fmt"),
            ("runtime.stopm", "runtime.stopm"),
        ] {
            assert_eq!(without_brackets(name), plain);
        }
    }

    #[test]
    fn arguments_and_parts_do_not_count() {
        for (name, plain) in [
            ("ObjectMonitor::enter(JavaThread*)", "ObjectMonitor::enter"),
            ("LockAcquireExtended.part.0", "LockAcquireExtended"),
            ("runtime.stopm", "runtime.stopm"),
            (
                "node::(anonymous namespace)::PlatformWorkerThread(void*)",
                "node::(anonymous namespace)::PlatformWorkerThread",
            ),
        ] {
            assert_eq!(plain_name(name), plain);
        }
    }
}
