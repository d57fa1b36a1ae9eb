//! Waits in which a thread that serves others waits for its next piece of work: in an event loop,
//! in a thread pool, in a kernel worker.
//!
//! What such a thread did before says nothing about the work that came next:
//!
//! ```text
//! loop  ..poll..[ works for B ]..poll..[ works for A ]..poll..
//!                                ^ from here on it is about A
//! ```

use offwake_recording::{
    FileKind, Recording, ThreadKind, Wait, Wake,
    units::{Nanos, Timestamp},
};

use crate::timeline::WaitIndex;

use super::{
    Blame, ConnectionSide, WakeSource,
    cause::{self, Cause, WokenThrough, syscalls, woken_through},
    frame_evidence::FrameEvidence,
    idle,
    locks::FutexWait,
    room::WokenFor,
    sleep_length::CALL_TO_SWITCH,
    wake_source::PatternWakeSource,
};

/// Whether a thread waited for its next piece of work, and where that came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkWait {
    /// The thread was in the middle of something.
    No,
    /// A work item came to a kernel thread.
    KernelWork,
    /// Another thread of the process handed a job to a thread of a pool.
    HandedOver,
    /// An event loop got something from another thread of its own process.
    OwnProcess,
    /// An event loop got a request of a client.
    Request,
    /// An event loop got an answer of a server.
    Answer,
    /// An event loop got something through a connection whose ends can't be told apart.
    Unclear,
    /// A thread that passes on what comes, now to one thread, now to another, got something.
    PassedOn,
    /// A timeout of the event loop's own, or an event from outside of every thread.
    External,
}

impl WorkWait {
    /// Decides it for the waits of one pattern.
    pub(super) fn from_wait(
        recording: &Recording,
        wait: &Wait,
        cause: Cause,
        source: Option<PatternWakeSource>,
        side: ConnectionSide,
        evidence: FrameEvidence,
    ) -> Self {
        if idle::waits_in_work_loop(recording, wait) {
            return Self::KernelWork;
        }
        let is_event_loop = is_event_loop(wait, cause, evidence);
        let waker = match source {
            Some(PatternWakeSource::Known(WakeSource::Task(waker))) => waker,
            Some(PatternWakeSource::Known(WakeSource::External(_) | WakeSource::Interrupt(_)))
                if is_event_loop =>
            {
                return Self::External;
            }
            // Whoever sent the packet, it came through the loop's socket, as if the sender had made the
            // wake.
            Some(PatternWakeSource::Softirqd(_)) if is_event_loop => {
                return match side {
                    ConnectionSide::Serving => Self::Request,
                    ConnectionSide::Asking => Self::Answer,
                    ConnectionSide::Unknown => Self::Unclear,
                };
            }
            _ => return Self::No,
        };
        let is_own_process = waker.tgid == wait.tgid;
        if is_loop_ended_by_child(wait, cause, evidence) {
            return Self::Unclear;
        }
        match (is_own_process, is_event_loop) {
            (true, _) if evidence == FrameEvidence::WorkerLoop => Self::HandedOver,
            (true, true) => Self::OwnProcess,
            (false, true) => match side {
                ConnectionSide::Serving => Self::Request,
                ConnectionSide::Asking => Self::Answer,
                ConnectionSide::Unknown if wait.wake.is_some_and(|wake| is_by_message(&wake)) => {
                    Self::Unclear
                }
                ConnectionSide::Unknown => Self::No,
            },
            (_, false) => Self::No,
        }
    }

    /// Returns whether an event loop waited, of which other processes ask something, or a thread that
    /// passes on what they have to say.
    pub(super) fn is_among_processes(self) -> bool {
        matches!(
            self,
            Self::OwnProcess | Self::Request | Self::Answer | Self::Unclear | Self::PassedOn
        )
    }
}

/// Returns whether the end of a child cut the wait of an event loop short. For whom the loop had made
/// it is not known.
fn is_loop_ended_by_child(wait: &Wait, cause: Cause, evidence: FrameEvidence) -> bool {
    cause == Cause::Child && cause::polls(wait) && is_event_loop(wait, Cause::Poll, evidence)
}

/// Returns whether a thread waits for any of several files. Who waits for an answer or a lock, or
/// for one file alone, does so in the middle of something.
pub(super) fn is_event_loop(wait: &Wait, cause: Cause, evidence: FrameEvidence) -> bool {
    matches!(cause, Cause::Poll | Cause::IoUring)
        && matches!(evidence, FrameEvidence::None | FrameEvidence::WorkerLoop)
        && cause::waits_for_any(wait)
}

/// How much later than a timer event loops wake for it where a timeout counts whole milliseconds:
/// they round up.
const MILLISECOND_ROUNDING: Nanos = Nanos(2_000_000);

/// How late the clock may be that event loops reckon with: libevent's is `CLOCK_MONOTONIC_COARSE`, which goes on
/// with each tick of the kernel's.
const COARSE_CLOCK: Nanos = Nanos(4_000_000);

/// A timeout that an event loop waited with.
struct LoopTimeout {
    length: Nanos,
    /// How long before the timeout ends the loop's timer may have been due.
    rounding: Nanos,
}

impl LoopTimeout {
    fn from_wait(wait: &Wait) -> Option<Self> {
        let syscall = wait.syscall.as_ref()?;
        let milliseconds = match syscalls::name(syscall)? {
            "epoll_wait" | "epoll_pwait" => syscall.args[3],
            "poll" => syscall.args[2],
            // ppoll, epoll_pwait2: nanoseconds, which nothing has to be rounded to.
            _ => return Some(Self { length: wait.timeout?, rounding: CALL_TO_SWITCH }),
        };
        // A negative number means no timeout; the upper half of the register is not part of it.
        let milliseconds = u64::try_from(milliseconds as i32).ok()?;
        Some(Self { length: Nanos(milliseconds * 1_000_000), rounding: MILLISECOND_ROUNDING })
    }
}

/// Returns the timeout that an event loop waits with, if it has one.
pub(super) fn read_loop_timeout(wait: &Wait) -> Option<Nanos> {
    LoopTimeout::from_wait(wait).map(|timeout| timeout.length)
}

impl Blame<'_> {
    /// Returns whether a timeout that an event loop waited with was over at `at`, or would have been
    /// but for rounding: the timer was due then, whatever had woken the loop before.
    pub(super) fn is_timer_due(&self, wait: WaitIndex, at: Timestamp) -> bool {
        let wait = self.recording.waits.get(wait.0 as usize);
        wait.is_some_and(|wait| {
            LoopTimeout::from_wait(&wait)
                .is_some_and(|timeout| wait.off + timeout.length <= at + timeout.rounding)
        })
    }
}

impl Blame<'_> {
    /// Returns whether the timeout that an event loop waited with was over at `at`, give or take how it is rounded and
    /// what the loop took for the time.
    pub(super) fn is_timer_due_at(&self, wait: WaitIndex, at: Timestamp) -> bool {
        let wait = self.recording.waits.get(wait.0 as usize);
        let due = wait.and_then(|wait| {
            let timeout = LoopTimeout::from_wait(&wait)?;
            Some((wait.off + timeout.length, timeout.rounding + COARSE_CLOCK))
        });
        due.is_some_and(|(due, tolerance)| at <= due + tolerance && due <= at + tolerance)
    }
}

/// Returns whether a wake was made by sending something through a socket, as far as it can be told:
/// the files behind an `io_uring` are not recorded.
fn is_by_message(wake: &Wake) -> bool {
    wake.current_kind == ThreadKind::User
        && matches!(
            woken_through(wake),
            Some(WokenThrough::File { file: Some(file), .. })
                if matches!(file.kind, FileKind::Socket | FileKind::Anonymous)
        )
}

/// What a thread that waits expects of the one that ends its wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Expects {
    /// An answer, or something to be handed over: what the other does for anybody else does not
    /// matter.
    Answer,
    /// That the other comes to a certain point: lets go of a lock, exits. Whatever it waits for on
    /// its way there is waited for.
    Progress,
}

impl Expects {
    /// Decides it for the waits of one pattern.
    pub(super) fn from_wait(
        wait: &Wait,
        cause: Cause,
        evidence: FrameEvidence,
        (futex, woken_for): (Option<FutexWait>, WokenFor),
    ) -> Self {
        // Whatever the other one did before it read was in the way, for whomever that was.
        if woken_for == WokenFor::Room {
            return Self::Progress;
        }
        let is_by_signal = || {
            let call = wait.wake.as_ref().and_then(|wake| wake.syscall.as_ref());
            matches!(call.and_then(syscalls::name), Some("kill" | "tkill" | "tgkill"))
        };
        let is_answer = match cause {
            Cause::Futex => futex.is_some_and(|futex| !futex.looks_like_lock()),
            Cause::Socket
            | Cause::Pipe
            | Cause::Eventfd
            | Cause::Mqueue
            | Cause::SysvMsg
            | Cause::Signal
            | Cause::Inotify => true,
            // PostgreSQL's latches are set by signals, by whoever lets go of a lock.
            Cause::Poll | Cause::IoUring => !is_by_signal(),
            _ => false,
        };
        if is_answer && !evidence.is_lock() { Self::Answer } else { Self::Progress }
    }
}
