//! Tells waits of threads that have nothing to do from waits in the middle of something.

use offwake_recording::{Recording, ThreadKind, Wait, WakeContext};

use super::{
    ConnectionSide, External, IdleHint, WakeSource,
    cause::{self, Cause, syscalls},
    frame_evidence::FrameEvidence,
    locks::FutexWait,
    room::WokenFor,
    wake_source::PatternWakeSource,
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

/// The functions in which a program waits for the kernel's next request to it, in Linux 6.1 to 6.18:
/// it serves a filesystem.
const REQUEST_LOOPS: &[&str] = &["fuse_dev_do_read"];

/// Decides whether the waits of one pattern are idle.
pub(super) fn idle_hint(
    recording: &Recording,
    wait: &Wait,
    cause: Cause,
    source: Option<PatternWakeSource>,
    (side, woken_for): (ConnectionSide, WokenFor),
    evidence: FrameEvidence,
) -> IdleHint {
    let is_for_others = !matches!(
        cause,
        Cause::Disk
            | Cause::PageFault
            | Cause::Memory
            | Cause::KernelLock
            | Cause::FileLock
            | Cause::Throttled
    );
    match evidence {
        FrameEvidence::WorkerLoop if is_for_others => return IdleHint::Idle,
        FrameEvidence::Lock(_)
        | FrameEvidence::Sleep
        | FrameEvidence::Request
        | FrameEvidence::NameLookup
        | FrameEvidence::Safepoint
        | FrameEvidence::Output
        | FrameEvidence::OwnCoroutine => return IdleHint::Busy,
        FrameEvidence::WorkerLoop | FrameEvidence::None => {}
    }
    let is_idle = wait.state.letter() == 'I'
        || waits_in_work_loop(recording, wait)
        || waits_for_kernels_request(recording, wait)
        || waits_in_accept(wait)
        // Whoever watches files has nothing to do until one of them changes.
        || cause == Cause::Inotify
        || (cause == Cause::Poll && was_cut_short_by_alarm(wait))
        || (woken_for != WokenFor::Room && waits_for_request(wait, cause, source, side))
        || matches!(
            (cause, source),
            (
                Cause::Poll | Cause::Futex | Cause::SysvSem | Cause::Mqueue,
                Some(PatternWakeSource::Known(WakeSource::External(External::Timer)))
            )
        );
    if is_idle {
        IdleHint::Idle
    } else if waits_for_hand_over(wait, cause) || (cause == Cause::Child && cause::polls(wait)) {
        IdleHint::SameAsWaker
    } else {
        IdleHint::Busy
    }
}

/// Returns whether a thread waits for whatever another one hands over: on a condition variable, a
/// semaphore, a pipe. A thread that waits for a lock has something to do, however idle the lock's
/// holder may be.
fn waits_for_hand_over(wait: &Wait, cause: Cause) -> bool {
    match cause {
        Cause::Futex => {
            FutexWait::from_wait(wait, cause).is_some_and(|word| !word.looks_like_lock())
        }
        Cause::Pipe | Cause::Eventfd | Cause::SysvMsg | Cause::Mqueue => waits_to_read(wait),
        _ => false,
    }
}

/// Returns whether a signal from a timer of the thread's own ended a wait: an event loop's way to do
/// something now and then.
fn was_cut_short_by_alarm(wait: &Wait) -> bool {
    wait.wake.is_some_and(|wake| wake.context == WakeContext::TimerSignal)
}

/// Returns whether a kernel thread waits for its next work item.
pub(super) fn waits_in_work_loop(recording: &Recording, wait: &Wait) -> bool {
    wait.kind == ThreadKind::Kernel
        && cause::kernel_frame(&recording.stacks, wait.kernel_stack)
            .is_some_and(|function| cause::matches_any(WORK_LOOPS, function))
}

/// Returns whether a program waits for the next request of the kernel's, whose filesystem it serves.
fn waits_for_kernels_request(recording: &Recording, wait: &Wait) -> bool {
    cause::kernel_frame(&recording.stacks, wait.kernel_stack)
        .is_some_and(|function| cause::matches_any(REQUEST_LOOPS, function))
}

/// Returns whether a wait is for the next request of the client of a connection.
fn waits_for_request(
    wait: &Wait,
    cause: Cause,
    source: Option<PatternWakeSource>,
    side: ConnectionSide,
) -> bool {
    side == ConnectionSide::Serving
        && match (cause, source) {
            (Cause::Socket, _) => waits_to_read(wait),
            (
                Cause::Poll | Cause::IoUring,
                Some(
                    PatternWakeSource::Known(WakeSource::Task(_)) | PatternWakeSource::Softirqd(_),
                ),
            ) => true,
            _ => false,
        }
}

/// Returns whether a thread waited to read, and not until it could write.
fn waits_to_read(wait: &Wait) -> bool {
    wait.syscall.as_ref().and_then(syscalls::name).is_some_and(syscalls::reads)
}

fn waits_in_accept(wait: &Wait) -> bool {
    let name = wait.syscall.as_ref().and_then(syscalls::name);
    matches!(name, Some("accept" | "accept4"))
}
