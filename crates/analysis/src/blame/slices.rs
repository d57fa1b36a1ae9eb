//! What a thread that serves others was set to work by.
//!
//! ```text
//! A     --asks--+========= waits ===========
//! loop  ..poll..[ its slice: works for A ]..poll..
//! ```

use offwake_recording::units::Timestamp;

use crate::timeline::{State, ThreadIndex, WaitIndex};

use super::{Blame, IdleHint, WakeSource, pattern_analysis::PatternAnalysis, work_waits::WorkWait};

/// The number of intervals that are gone through to find what a thread was set to work by.
pub(super) const MAX_SLICE_INTERVALS: usize = 256;

/// What set a thread to work.
#[derive(Clone, Copy, Debug)]
pub(super) struct SliceStart {
    /// The thread that did.
    pub(super) giver: ThreadIndex,
    pub(super) at: Timestamp,
    pub(super) origin: SliceOrigin,
    /// What the thread had waited for.
    pub(super) waited_for: WorkWait,
}

/// Whose work a slice may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SliceOrigin {
    /// The giver's own.
    Giver,
    /// That of whoever had set the giver to work, which is in the same process.
    BeforeGiver,
}

impl Blame<'_> {
    /// Finds what last set a thread to work that is awake at `at`.
    pub(super) fn find_slice_start(
        &self,
        thread: ThreadIndex,
        at: Timestamp,
    ) -> Option<SliceStart> {
        let (wait, pattern) = self.find_slice_wait(thread, at)?;
        let WakeSource::Task(_) = self.wake_source(wait) else { return None };
        let (giver, at) = self.recorded_waker_thread(wait)?;
        let is_passed_on = matches!(pattern.work_wait, WorkWait::HandedOver | WorkWait::OwnProcess);
        let origin = match is_passed_on && pattern.mailbox.is_none() {
            true => SliceOrigin::BeforeGiver,
            false => SliceOrigin::Giver,
        };
        Some(SliceStart { giver, at, origin, waited_for: pattern.work_wait })
    }

    /// Returns whether a thread that comes out of a wait begins something new.
    pub(crate) fn waits_for_work(&self, wait: WaitIndex) -> bool {
        self.pattern(wait).is_some_and(|(_, pattern)| begins_slice(pattern))
    }

    /// Finds the wait that a thread came out of when it was last set to work, which is awake at `at`.
    pub(super) fn find_slice_wait(
        &self,
        thread: ThreadIndex,
        at: Timestamp,
    ) -> Option<(WaitIndex, &PatternAnalysis)> {
        let track = &self.timeline.thread(thread)?.track;
        let end = track.count_begun_before(at, track.len());
        (end.saturating_sub(MAX_SLICE_INTERVALS)..end).rev().find_map(|place| {
            let interval = track.get(place)?;
            let State::Blocked(wait) = interval.state else { return None };
            let (_, pattern) = self.pattern(wait)?;
            begins_slice(pattern).then_some((wait, pattern))
        })
    }
}

/// Returns whether a thread that comes out of a wait begins something new.
pub(super) fn begins_slice(pattern: &PatternAnalysis) -> bool {
    pattern.work_wait != WorkWait::No || pattern.idle_hint == IdleHint::Idle
}
