//! Tells waits of threads that have nothing to do from waits in the middle of something.

use offwake_recording::{FileId, OpenFile, Recording, SocketRole, ThreadKind, Wait};

use super::{
    Ender, External, Stance,
    cause::{self, Cause, syscalls},
    ender::Source,
    locks::LockWord,
};

/// The functions in which kernel threads wait for their next work, in Linux 6.1 to 6.18.
const WORK_LOOPS: &[&str] = &[
    "worker_thread",
    "rescuer_thread",
    "kthread_worker_fn",
    "smpboot_thread_fn",
    "kthreadd",
    "kjournald2",
    "kswapd_try_to_sleep",
    "kcompactd",
    "khugepaged",
    "ksmd",
    "oom_reaper",
    "kauditd_thread",
    "rcu_gp_kthread",
    "rcu_tasks_kthread",
    "rcu_nocb_gp_kthread",
    "rcu_nocb_cb_kthread",
    "io_wq_worker",
    "io_sq_thread",
    "irq_thread",
    "xfsaild",
];

/// Decides whether the waits of one pattern are idle.
pub(super) fn stance(
    recording: &Recording,
    wait: &Wait,
    cause: Cause,
    source: Option<Source>,
) -> Stance {
    let is_idle = wait.state.letter() == 'I'
        || waits_for_work(recording, wait)
        || accepts(wait)
        || serves(recording, wait, cause, source)
        || matches!(
            (cause, source),
            (Cause::Poll | Cause::Futex, Some(Source::Ender(Ender::External(External::Timer))))
        );
    if is_idle {
        Stance::Idle
    } else if is_fed(wait, cause) {
        Stance::Fed
    } else {
        Stance::Busy
    }
}

/// Returns whether a thread waits for whatever another one hands over: on a condition variable, a
/// semaphore, a pipe. A thread that waits for a lock has something to do, however idle the lock's
/// holder may be.
fn is_fed(wait: &Wait, cause: Cause) -> bool {
    match cause {
        Cause::Futex => LockWord::of(wait, cause).is_some_and(|word| !word.is_like_a_lock()),
        Cause::Pipe | Cause::Eventfd => reads(wait),
        _ => false,
    }
}

fn waits_for_work(recording: &Recording, wait: &Wait) -> bool {
    wait.kind == ThreadKind::Kernel
        && cause::kernel_frame(&recording.stacks, wait.kernel_stack)
            .is_some_and(|function| cause::is_one_of(WORK_LOOPS, function))
}

/// Returns whether a wait is for the next request of the client of a connection.
///
/// The thread's own socket tells which end it has. Behind `epoll` and the like the waker's socket
/// tells: the thread has the other end.
fn serves(recording: &Recording, wait: &Wait, cause: Cause, source: Option<Source>) -> bool {
    let role = |file: Option<FileId>| match recording.files.files.get(&file?)? {
        OpenFile::Socket(socket) => socket.role,
        OpenFile::Named(_) => None,
    };
    let comes = || wait.wake?.syscall.as_ref().and_then(syscalls::name);
    match (cause, source) {
        // Somebody new.
        (Cause::Poll, Some(Source::Ender(Ender::Task(_)))) if comes() == Some("connect") => true,
        (Cause::Socket, _) => role(wait.file) == Some(SocketRole::Serving) && reads(wait),
        (Cause::Poll, Some(Source::Ender(Ender::Task(_)) | Source::Softirqd(_))) => {
            role(wait.wake.and_then(|wake| wake.file)) == Some(SocketRole::Asking)
        }
        _ => false,
    }
}

/// Returns whether a thread waited to read, and not until it could write.
fn reads(wait: &Wait) -> bool {
    wait.syscall.as_ref().and_then(syscalls::name).is_some_and(syscalls::reads)
}

fn accepts(wait: &Wait) -> bool {
    let name = wait.syscall.as_ref().and_then(syscalls::name);
    matches!(name, Some("accept" | "accept4"))
}
