//! Names of wake contexts, and descriptions of wakers.

use std::collections::BTreeMap;

use offwake_recording::{InterruptInfo, SystemVector, WakeContext};

use crate::{blame::Reason, text, words};

use super::{BlameEntry, WaitEntry, WakerEntry, WakerKind, describe};

/// The names of `/proc/softirqs`, by number.
const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

/// Returns the kind of an interrupt's wake. An interrupt is one, whether a device or the machine
/// itself made it, and also as it ends, in the context of the task that it had stopped.
pub(super) fn interrupt_kind(context: WakeContext) -> WakerKind {
    match context {
        WakeContext::Softirq(_) => WakerKind::Softirq,
        WakeContext::Task
        | WakeContext::Hardirq(_)
        | WakeContext::Hrtimer
        | WakeContext::TimerSignal
        | WakeContext::System(_) => WakerKind::Hardirq,
    }
}

/// Returns the name of the interrupt or softirq of a wake's context.
pub(crate) fn vector_name(context: WakeContext) -> Option<String> {
    match context {
        WakeContext::Task => None,
        WakeContext::Softirq(number) => Some(
            SOFTIRQS
                .get(usize::from(number))
                .map_or_else(|| format!("softirq {number}"), |&name| name.to_owned()),
        ),
        WakeContext::Hardirq(number) => Some(format!("irq {number}")),
        WakeContext::Hrtimer | WakeContext::TimerSignal => Some("hrtimer".to_owned()),
        WakeContext::System(SystemVector::Unknown) => Some("unknown".to_owned()),
        WakeContext::System(SystemVector::LocalTimer) => Some("local_timer".to_owned()),
        WakeContext::System(SystemVector::CallFunction) => Some("call_function".to_owned()),
        WakeContext::System(SystemVector::IrqWork) => Some("irq_work".to_owned()),
        WakeContext::System(SystemVector::Idle) => Some("idle".to_owned()),
    }
}

/// Returns the name of the handler of a device's interrupt.
pub(super) fn device_name(
    interrupts: &BTreeMap<u16, InterruptInfo>,
    context: WakeContext,
) -> Option<String> {
    let WakeContext::Hardirq(number) = context else { return None };
    let handlers = &interrupts.get(&number)?.handlers;
    (!handlers.is_empty()).then(|| handlers.clone())
}

/// Describes an interrupt.
pub(super) fn describe_interrupt(waker: &WakerEntry) -> String {
    match (&waker.vector, &waker.device) {
        (Some(vector), Some(device)) => format!("interrupt ({vector} {})", text::terminal(device)),
        (Some(vector), None) => format!("interrupt ({vector})"),
        (None, _) => "interrupt".to_owned(),
    }
}

/// Describes who woke a thread.
pub(crate) fn describe_waker(wait: &WaitEntry) -> String {
    match &wait.waker {
        None => describe_no_waker(wait).to_owned(),
        Some(waker) => match (waker.kind, &waker.comm, waker.tid) {
            (WakerKind::Task, Some(comm), Some(tid)) => {
                describe::thread(comm, tid, waker.container.as_deref())
            }
            _ => describe_interrupt(waker),
        },
    }
}

/// Returns what is said in place of the waker of waits that have none.
pub(super) fn describe_no_waker(wait: &WaitEntry) -> &'static str {
    let is_open = |part: &BlameEntry| part.reason == Some(Reason::StillBlocked);
    match (wait.blame.iter().any(is_open), wait.blame.iter().all(is_open)) {
        (true, true) => words::STILL_WAITING,
        (true, false) => "waker unknown or still waiting",
        (false, _) => words::WAKER_UNKNOWN,
    }
}
