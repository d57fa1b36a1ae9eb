//! On whose behalf a loop asked for something.

use std::cell::OnceCell;

use offwake_recording::units::Timestamp;

use crate::timeline::ThreadIndex;

use super::{
    super::{
        process_wakes::Ask,
        slices::{SliceOrigin, SliceStart},
    },
    Leg, TimeRange, Walker,
};

/// The number of hand-overs that are followed from one thread of a process to the next.
const MAX_HAND_OVERS: usize = 8;

/// The waiter that asks are looked for of, and what is the same for all of them.
pub(super) struct Behalf<'w, 'b> {
    walker: &'w Walker<'b>,
    /// The thread that serves the waiter.
    server: ThreadIndex,
    rest: TimeRange,
    awake_since: Timestamp,
    is_request_seen: OnceCell<bool>,
}

impl Behalf<'_, '_> {
    /// Returns since when the waiter had been awake before: what was asked for it earlier is answered.
    pub(super) fn awake_since(&self) -> Timestamp {
        self.awake_since
    }

    /// Returns whether something was asked for on behalf of a thread of the chain: the thread that
    /// asked had been set to work by that one. A request that comes while the loop is awake sets
    /// nobody to work: then the thread that asked must have been awake when the wait began.
    ///
    /// ```text
    /// A     --ask--+===== waits ====
    /// loop  ..[ B ... asks U ]..poll
    /// ```
    ///
    /// `begun` says what had set the thread that asked to work.
    pub(super) fn includes(&self, ask: &Ask, begun: impl FnOnce() -> Option<SliceStart>) -> bool {
        let threads = &self.walker.threads;
        if ask.at < self.awake_since || threads.is_waiter(ask.callee) {
            return false;
        }
        let begun = begun().and_then(|begun| self.walker.follow_hand_overs(begun));
        begun.is_some_and(|begun| {
            threads.is_waiter(begun.giver)
                || (begun.at <= self.rest.from && !self.is_request_seen())
        })
    }

    fn is_request_seen(&self) -> bool {
        let find = || self.walker.requests_of_waiters(self.server, self.rest).next().is_some();
        *self.is_request_seen.get_or_init(find)
    }
}

impl<'b> Walker<'b> {
    /// Returns whose asks count for the time that is walked, which is that up to the end of `rest`.
    pub(super) fn behalf_of_waiter(&self, rest: TimeRange, leg: &Leg) -> Behalf<'_, 'b> {
        Behalf {
            walker: self,
            server: leg.thread,
            rest,
            awake_since: self.find_awake_since(rest.from),
            is_request_seen: OnceCell::new(),
        }
    }

    /// Finds what a thread was set to work by that is awake at `at`, back to another process or to one that
    /// waits for it.
    pub(super) fn find_slice_start(
        &self,
        thread: ThreadIndex,
        at: Timestamp,
    ) -> Option<SliceStart> {
        self.follow_hand_overs(self.blame.find_slice_start(thread, at)?)
    }

    /// The same from what its slice begins with.
    fn follow_hand_overs(&self, mut begun: SliceStart) -> Option<SliceStart> {
        let is_start = |begun: &SliceStart| {
            begun.origin == SliceOrigin::Giver || self.threads.is_waiter(begun.giver)
        };
        for _ in 1..MAX_HAND_OVERS {
            if is_start(&begun) {
                break;
            }
            begun = self.blame.find_slice_start(begun.giver, begun.at)?;
        }
        is_start(&begun).then_some(begun)
    }
}
