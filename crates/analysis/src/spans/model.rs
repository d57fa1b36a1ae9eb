//! The types of spans, traces and links.

use std::sync::Arc;

use offwake_recording::{
    ThreadRef,
    units::{Nanos, Tgid, Tid, Timestamp},
};
use serde::Serialize;
use strum::IntoStaticStr;

use crate::{blame::cause::Cause, timeline::StateTimes};

use super::{LeftOut, SpanId, SpanLimits, TraceId};

/// All spans of a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Spans {
    /// A parent comes before its children; traces are in the order of their beginnings.
    pub spans: Vec<Span>,
    /// How far requests were followed.
    pub limits: SpanLimits,
    /// What is not among them.
    pub left_out: LeftOut,
}

/// One thread's part in a request, or one of its waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The trace that it belongs to.
    pub trace_id: TraceId,
    /// Its name in there.
    pub span_id: SpanId,
    /// The span that it is a part of; none for the first of a trace.
    pub parent_span_id: Option<SpanId>,
    /// The thread.
    pub tid: Tid,
    /// The thread's process.
    pub pid: Tgid,
    /// The thread's name at the time. It comes from another program, and may contain anything but
    /// NUL.
    pub comm: Arc<str>,
    /// When it began, inside the window.
    pub started_at: Timestamp,
    /// When it ended, inside the window.
    pub ended_at: Timestamp,
    /// How the thread's time divides; adds up to the span.
    pub times: StateTimes,
    /// The thread that ended the wait; none for a server's span, and if no thread did.
    pub waiting_on: Option<ThreadRef>,
    /// The spans that have it as their parent, in order of time.
    pub children: Vec<SpanId>,
    /// The span's side of a request.
    pub kind: SpanKind,
    /// The span's name: of a request, the frame that asked; of what was done for another thread,
    /// the frame that ended the wait, else the thread; of any other wait, its cause.
    pub name: Arc<str>,
    /// What the wait was on; none for a span that is no wait.
    pub cause: Option<Cause>,
    /// The frame that the wait was seen in.
    pub frame: Option<Arc<str>>,
    /// The object that the wait was on, as text.
    pub waited_on: Option<Arc<str>>,
    /// The innermost range that the thread's program marked, and that the thread was in at the middle of the
    /// span.
    pub marker: Option<Arc<str>>,
    /// How the span ended.
    pub status: SpanStatus,
    /// Spans that are related otherwise than as parent and child.
    pub links: Vec<SpanLink>,
}

impl Span {
    /// Returns the time that the span's thread spent on a CPU.
    #[must_use]
    pub fn self_time(&self) -> Nanos {
        self.times.on_cpu
    }

    /// Returns the rest of the span's time.
    #[must_use]
    pub fn wait_time(&self) -> Nanos {
        self.ended_at.since(self.started_at) - self.times.on_cpu
    }
}

/// A span's side of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SpanKind {
    /// A thread asked another, and waited for the answer.
    Client,
    /// A thread was asked.
    Server,
    /// A wait with nobody asked, or what a thread did that another waited for without asking.
    Internal,
}

impl SpanKind {
    /// Returns the name in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// How a span ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum SpanStatus {
    /// The answer came, or the wait was over.
    Ok,
    /// The thread that was asked ended instead of an answer, with this code; none if that was lost.
    Exited(Option<u8>),
    /// The thread that was asked was killed by a fault of its own, with this signal.
    Crashed(u8),
    /// The thread that was asked was killed by this signal.
    Killed(u8),
    /// The span had not ended when the window did.
    Unfinished,
    /// The record of the end was lost.
    Lost,
}

impl SpanStatus {
    /// The end of a thread, from its status as `wait4` gives it
    /// ([`bits/waitstatus.h`](https://sourceware.org/git/?p=glibc.git;a=blob;f=bits/waitstatus.h;hb=glibc-2.40)).
    #[must_use]
    pub fn from_exit_status(status: u32) -> Self {
        /// SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS: what a program does to itself.
        const FAULTS: [u8; 7] = [4, 5, 6, 7, 8, 11, 31];
        match (status & 0x7f) as u8 {
            0 => Self::Exited(Some((status >> 8) as u8)),
            signal if FAULTS.contains(&signal) => Self::Crashed(signal),
            signal => Self::Killed(signal),
        }
    }

    /// Returns the name in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns what the thread that was asked exited with.
    #[must_use]
    pub fn exit_code(self) -> Option<u8> {
        match self {
            Self::Exited(code) => code,
            _ => None,
        }
    }

    /// Returns the signal that killed the thread that was asked.
    #[must_use]
    pub fn signal(self) -> Option<u8> {
        match self {
            Self::Crashed(signal) | Self::Killed(signal) => Some(signal),
            _ => None,
        }
    }
}

/// A tie to a span, in the same trace or in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SpanLink {
    /// The linked span's trace.
    pub trace_id: TraceId,
    /// Its name in there.
    pub span_id: SpanId,
    /// What ties them.
    pub kind: LinkKind,
}

/// What ties two spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkKind {
    /// The linked span is the request, which came from another process.
    RequestedBy,
    /// The linked span handed the request on.
    HandedOnBy,
    /// The linked span ended the wait, and nobody had asked it to.
    EndedBy,
    /// The linked span is the program's own: what the thread said that it was doing.
    Program,
}

#[cfg(test)]
mod tests {
    use super::SpanStatus;

    #[test]
    fn the_end_of_a_thread_is_read_as_wait4_gives_it() {
        for (status, expected) in [
            (0, SpanStatus::Exited(Some(0))),
            (0x0300, SpanStatus::Exited(Some(3))),
            (9, SpanStatus::Killed(9)),
            (15, SpanStatus::Killed(15)),
            (11, SpanStatus::Crashed(11)),
            // With a core dump.
            (0x86, SpanStatus::Crashed(6)),
        ] {
            assert_eq!(SpanStatus::from_exit_status(status), expected, "{status:#x}");
        }
    }
}
