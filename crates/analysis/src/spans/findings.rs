//! What is found out about the waits of a recording before any span is built.

use crate::{
    blame::{Reason, WakeSource},
    timeline::{ThreadIndex, WaitIndex},
};
use offwake_recording::{
    ThreadRef,
    units::{Nanos, Timestamp},
};

use super::{
    Evidence, SpanStatus,
    ends::Ends,
    exchange::{Exchanges, Leg},
    lanes::Lanes,
    pieces::Pieces,
    sides::Sides,
};

/// What was found out about the waits of a recording.
pub(super) struct Findings<'a> {
    pub(super) evidence: Evidence<'a>,
    pub(super) sides: Sides<'a>,
    pub(super) ends: Ends<'a>,
    pub(super) pieces: Pieces,
    pub(super) exchanges: Exchanges,
    /// The waits that can be spans. The last piece of a wait stands for all of them.
    pub(super) long: Lanes<'a>,
    /// The waits that are too short to be spans, and are no requests.
    pub(super) short: Lanes<'a>,
}

impl<'a> Findings<'a> {
    pub(super) fn of(evidence: Evidence<'a>, shortest: Nanos) -> Self {
        let sides = Sides::of(evidence);
        let ends = Ends::of(evidence);
        let pieces = Pieces::of(evidence);
        let exchanges = Exchanges::find(evidence, &pieces, &sides, &ends);
        let is_wait = |wait| evidence.blocked(wait) > Nanos(0) && !pieces.goes_on(wait);
        let is_span = |wait| {
            is_wait(wait) && (exchanges.is_answered(wait) || pieces.blocked(wait) >= shortest)
        };
        let long = Lanes::of(evidence, is_span);
        let short = Lanes::of(evidence, |wait| is_wait(wait) && !is_span(wait));
        Self { evidence, sides, ends, pieces, exchanges, long, short }
    }

    /// Returns whether the wait's waker had been asked by the one that waited.
    pub(super) fn is_request(&self, wait: WaitIndex) -> bool {
        self.exchanges.is_answered(wait)
    }

    /// Returns what was done for a wait: the legs of a request, else whatever its waker did
    /// meanwhile.
    pub(super) fn parts(&self, wait: WaitIndex) -> Vec<Leg> {
        if self.is_request(wait) {
            return self.exchanges.legs(self.evidence, wait, self.pieces.from(wait));
        }
        let (Some(place), Some(thread)) = (self.evidence.place(wait), self.evidence.waker(wait))
        else {
            return Vec::new();
        };
        vec![Leg { thread, from: self.pieces.from(wait), to: place.to, ended: wait }]
    }

    /// Returns when the span of a wait begins.
    pub(super) fn beginning(&self, wait: WaitIndex) -> Timestamp {
        let from = self.pieces.from(wait);
        self.exchanges.asked_at(wait).map_or(from, |asked| asked.min(from))
    }

    /// Returns how a wait ended.
    pub(super) fn status(&self, wait: WaitIndex) -> SpanStatus {
        match (self.evidence.ender)(wait) {
            WakeSource::Task(_) => self.ends.of_waker(wait).unwrap_or(SpanStatus::Ok),
            WakeSource::Unknown(Reason::StillBlocked) => SpanStatus::Unfinished,
            WakeSource::Unknown(_) => SpanStatus::Lost,
            WakeSource::External(_) | WakeSource::Interrupt(_) => SpanStatus::Ok,
        }
    }

    /// Returns the thread that a wait was for: the one that ended it, else the one that was asked.
    pub(super) fn waiting_on(&self, wait: WaitIndex) -> Option<ThreadRef> {
        self.evidence.task(wait).or_else(|| {
            let leg = self.parts(wait).pop()?;
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
