//! The words for who woke a thread, and for what a thread waited: the same in every view.

use crate::blame::Reason;

/// What is said in place of a waker of a wait that had not ended when the window did.
pub const STILL_WAITING: &str = "still waiting";
/// What is said of data that came by a timer of TCP's own.
pub const TCP_TIMER: &str = "held back by TCP (delayed ACK or retransmission)";
/// What is said in place of a waker that is not known.
pub const WAKER_UNKNOWN: &str = "waker unknown";

/// Returns `waker unknown (no wakeup)`.
pub fn waker_unknown(reason: Reason) -> String {
    format!("{WAKER_UNKNOWN} ({})", reason.name().replace('_', " "))
}

/// Returns in words why it is not known what a wait's time was spent on: `still waiting`,
/// `waker unknown (no wakeup)`, `depth limit`.
pub fn unknown(reason: Reason) -> String {
    match reason {
        Reason::StillBlocked => STILL_WAITING.to_owned(),
        Reason::Signal => "interrupted by a signal".to_owned(),
        Reason::Lost => "records were lost".to_owned(),
        Reason::ShortWaits => "short waits, summed up".to_owned(),
        Reason::Stopped => "stopped or frozen".to_owned(),
        Reason::HolderUnknown => "not known who held the lock".to_owned(),
        Reason::UnclearWake => "may have been woken for nothing".to_owned(),
        Reason::EventLoop => "its event loop served others".to_owned(),
        Reason::TcpTimer => TCP_TIMER.to_owned(),
        Reason::NoWakeup | Reason::BeforeWindow | Reason::LocalSoftirq | Reason::Interrupt => {
            waker_unknown(reason)
        }
        Reason::DepthLimit
        | Reason::FanOutLimit
        | Reason::NodeLimit
        | Reason::Cycle
        | Reason::NotRecorded
        | Reason::NotYetCreated
        | Reason::ReportLimit => reason.name().replace('_', " "),
    }
}

/// Returns `woken by web 7`. What stands in place of wakers, `still waiting`, stays as it is.
pub fn woken_by(wakers: &str) -> String {
    match is_waker(wakers) {
        true => format!("woken by {wakers}"),
        false => wakers.to_owned(),
    }
}

/// Returns whether a text names a waker, and is not what is said in place of one. In lists, wakers
/// come first.
pub fn is_waker(text: &str) -> bool {
    !text.starts_with(STILL_WAITING) && !text.starts_with(WAKER_UNKNOWN)
}

/// Returns `for a CPU, held by web 7`.
pub fn for_a_cpu(holder: Option<&str>) -> String {
    match holder {
        Some(holder) => format!("for a CPU, held by {holder}"),
        None => "for a CPU".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::blame::Reason;

    use super::{unknown, woken_by};

    #[test]
    fn a_wait_without_a_known_waker_is_still_waiting_or_says_why() {
        assert_eq!(unknown(Reason::StillBlocked), "still waiting");
        assert_eq!(unknown(Reason::NoWakeup), "waker unknown (no wakeup)");
        assert_eq!(unknown(Reason::DepthLimit), "depth limit");
        assert_eq!(woken_by("web 7"), "woken by web 7");
        assert_eq!(woken_by("waker unknown"), "waker unknown");
        assert_eq!(woken_by("still waiting"), "still waiting");
    }
}
