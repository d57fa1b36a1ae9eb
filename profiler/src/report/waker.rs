//! What a wake's context is called.

use crate::recording::{SystemVector, WakeContext};

use super::{WaitEntry, WakerKind, in_words};

/// The names of `/proc/softirqs`, by number.
const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

/// Which kind of context it is. An interrupt is one, whether a device or the machine itself made it.
pub(super) fn kind(context: WakeContext) -> WakerKind {
    match context {
        WakeContext::Task => WakerKind::Task,
        WakeContext::Softirq(_) => WakerKind::Softirq,
        WakeContext::Hardirq(_) | WakeContext::Hrtimer | WakeContext::System(_) => {
            WakerKind::Hardirq
        }
    }
}

/// Which one it is.
pub(crate) fn vector(context: WakeContext) -> Option<String> {
    match context {
        WakeContext::Task => None,
        WakeContext::Softirq(number) => Some(
            SOFTIRQS
                .get(usize::from(number))
                .map_or_else(|| format!("softirq {number}"), |&name| name.to_owned()),
        ),
        WakeContext::Hardirq(number) => Some(format!("irq {number}")),
        WakeContext::Hrtimer => Some("hrtimer".to_owned()),
        WakeContext::System(SystemVector::Unknown) => Some("unknown".to_owned()),
        WakeContext::System(SystemVector::LocalTimer) => Some("local_timer".to_owned()),
        WakeContext::System(SystemVector::CallFunction) => Some("call_function".to_owned()),
        WakeContext::System(SystemVector::IrqWork) => Some("irq_work".to_owned()),
        WakeContext::System(SystemVector::Idle) => Some("idle".to_owned()),
    }
}

/// Who ended a wait, in words.
pub(super) fn in_words(wait: &WaitEntry) -> String {
    match &wait.waker {
        None => "nobody seen".to_owned(),
        Some(waker) => match (waker.kind, &waker.comm, waker.tid, &waker.vector) {
            (WakerKind::Task, Some(comm), Some(tid), _) => {
                in_words::thread(comm, tid, waker.container.as_deref())
            }
            (_, _, _, Some(vector)) => format!("interrupt ({vector})"),
            _ => "interrupt".to_owned(),
        },
    }
}
