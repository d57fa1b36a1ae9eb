//! Waits that were cut short by a signal.

use offwake_recording::{Frame, Recording, StackRef, Wake, WakeContext};

use super::cause::{Cause, matches_any, syscalls};

/// The functions through which a signal wakes a thread, in Linux 5.10 to 6.18.
const WAKE_UP: &[&str] = &["signal_wake_up_state", "signal_wake_up", "complete_signal"];

const SEND: &[&str] =
    &["kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal"];

/// Returns whether a task, or a timer of the thread's own (`alarm`), ended a wait only by sending a
/// signal, and the wait was not for a signal.
pub(super) fn is_signal_only(recording: &Recording, wake: &Wake, cause: Cause) -> bool {
    // A child that ends tells its parent by a signal first, if the parent catches it:
    // https://github.com/torvalds/linux/blob/v6.12/kernel/signal.c#L2251
    if matches!(cause, Cause::Signal | Cause::Stopped | Cause::Child) {
        return false;
    }
    if wake.context != WakeContext::Task {
        return wake.context == WakeContext::TimerSignal;
    }
    match wake.kernel_stack {
        StackRef::Id(id) => (recording.stacks.frames_of(id).flat_map(Frame::names))
            .any(|function| matches_any(WAKE_UP, function)),
        // Without a stack the syscall has to do.
        StackRef::NotTaken | StackRef::Failed => {
            let name = wake.syscall.as_ref().and_then(syscalls::name);
            name.is_some_and(|name| SEND.contains(&name))
        }
    }
}
