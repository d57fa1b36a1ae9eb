//! What is found out about the waits of a recording before any span is built.

use crate::{
    blame::{ConnectionSide, ConnectionSides, Reason, WakeSource},
    timeline::{ThreadIndex, WaitIndex},
};
use offwake_recording::{
    ThreadRef,
    units::{Nanos, Timestamp},
};

use super::{
    SpanInput, SpanStatus,
    exchange::{Exchanges, Leg},
    exits::ThreadExits,
    pieces::WaitPieces,
    thread_waits::ThreadWaits,
};

/// What was found out about the waits of a recording.
pub(super) struct Findings<'a> {
    pub(super) evidence: SpanInput<'a>,
    pub(super) sides: ConnectionSides<'a>,
    pub(super) exits: ThreadExits<'a>,
    pub(super) pieces: WaitPieces,
    pub(super) exchanges: Exchanges,
    /// The waits that can be spans. The last piece of a wait stands for all of them.
    pub(super) span_waits: ThreadWaits,
    /// The waits that are too short to be spans, and are no requests.
    pub(super) short_waits: ThreadWaits,
}

impl<'a> Findings<'a> {
    pub(super) fn new(evidence: SpanInput<'a>, shortest: Nanos) -> Self {
        let sides = ConnectionSides::new(evidence.recording);
        let ends = ThreadExits::new(evidence);
        let pieces = WaitPieces::new(evidence);
        let exchanges = Exchanges::find(evidence, &pieces, &sides, &ends);
        let is_wait = |wait| evidence.blocked_time(wait) > Nanos(0) && !pieces.is_continued(wait);
        let is_span = |wait| {
            is_wait(wait) && (exchanges.is_answered(wait) || pieces.blocked_time(wait) >= shortest)
        };
        let long = ThreadWaits::new(evidence, is_span);
        let short = ThreadWaits::new(evidence, |wait| is_wait(wait) && !is_span(wait));
        Self {
            evidence,
            sides,
            exits: ends,
            pieces,
            exchanges,
            span_waits: long,
            short_waits: short,
        }
    }

    /// Returns the end of a connection that a wait was on.
    pub(super) fn side(&self, wait: WaitIndex) -> ConnectionSide {
        self.evidence.side(&self.sides, wait)
    }

    /// Returns whether the wait's waker had been asked by the one that waited.
    pub(super) fn is_request(&self, wait: WaitIndex) -> bool {
        self.exchanges.is_answered(wait)
    }

    /// Returns what was done for a wait: the legs of a request, else whatever its waker did
    /// meanwhile.
    pub(super) fn legs(&self, wait: WaitIndex) -> Vec<Leg> {
        if self.is_request(wait) {
            return self.exchanges.legs(self.evidence, wait, self.pieces.start(wait));
        }
        let (Some(place), Some(thread)) =
            (self.evidence.interval(wait), self.evidence.waker_thread(wait))
        else {
            return Vec::new();
        };
        vec![Leg { thread, from: self.pieces.start(wait), to: place.to, ended: wait }]
    }

    /// Returns when the span of a wait begins.
    pub(super) fn span_start(&self, wait: WaitIndex) -> Timestamp {
        let from = self.pieces.start(wait);
        self.exchanges.asked_at(wait).map_or(from, |asked| asked.min(from))
    }

    /// Returns how a wait ended.
    pub(super) fn span_status(&self, wait: WaitIndex) -> SpanStatus {
        match (self.evidence.wake_source)(wait) {
            WakeSource::Task(_) => self.exits.waker_exit_status(wait).unwrap_or(SpanStatus::Ok),
            WakeSource::Unknown(Reason::StillBlocked) => SpanStatus::Unfinished,
            WakeSource::Unknown(_) => SpanStatus::Lost,
            WakeSource::External(_) | WakeSource::Interrupt(_) => SpanStatus::Ok,
        }
    }

    /// Returns the thread that a wait was for: the one that ended it, else the one that was asked.
    pub(super) fn waiting_on(&self, wait: WaitIndex) -> Option<ThreadRef> {
        self.evidence.waker_task(wait).or_else(|| {
            let leg = self.legs(wait).pop()?;
            let thread = self.evidence.thread(leg.thread)?;
            Some(ThreadRef { tid: thread.tid, tgid: thread.tgid })
        })
    }

    /// Returns whether a thread belongs to the target.
    pub(super) fn is_target(&self, thread: Option<ThreadIndex>) -> bool {
        let thread = thread.and_then(|thread| self.evidence.thread(thread));
        thread.is_some_and(|thread| thread.in_target)
    }
}
