//! Waits of threads that have nothing to do, by who ends them.

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

/// What the waits of one pattern are for.
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

/// Whether a thread takes whatever another one hands it: on a condition, a semaphore, a pipe. Who
/// waits for a lock has something to do, however idle the holder may be.
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

/// Whether a wait is for what the asking end of a connection sends next.
///
/// The thread's own socket tells which end it has. Behind `epoll` and its kin that of the waker does:
/// the other end is the thread's.
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

/// Whether a thread waited to read, not for room to write.
fn reads(wait: &Wait) -> bool {
    wait.syscall.as_ref().and_then(syscalls::name).is_some_and(syscalls::reads)
}

fn accepts(wait: &Wait) -> bool {
    let name = wait.syscall.as_ref().and_then(syscalls::name);
    matches!(name, Some("accept" | "accept4"))
}
