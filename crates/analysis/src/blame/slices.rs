//! What a thread that serves others was set to work by.
//!
//! ```text
//! A     --asks--+========= waits ===========
//! loop  ..poll..[ its slice: works for A ]..poll..
//! ```

use offwake_recording::{Begin, units::Timestamp};

use crate::timeline::{Interval, RunnableSince, State, ThreadIndex, WaitIndex, WakeUse, wake_use};

use super::{
    Blame, IdleHint, WakeSource, pattern_analysis::PatternAnalysis, wake_source::PatternWakeSource,
    work_waits::WorkWait,
};

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
        let (giver, at) = self.find_giver(wait, pattern)?;
        let is_passed_on = matches!(pattern.work_wait, WorkWait::HandedOver | WorkWait::OwnProcess);
        let origin = match is_passed_on && pattern.mailbox.is_none() {
            true => SliceOrigin::BeforeGiver,
            false => SliceOrigin::Giver,
        };
        Some(SliceStart { giver, at, origin, waited_for: pattern.work_wait })
    }

    /// Finds the thread that ended a wait for work, and when it did. If `ksoftirqd` delivered what came,
    /// that is the thread which had sent it.
    fn find_giver(
        &self,
        wait: WaitIndex,
        pattern: &PatternAnalysis,
    ) -> Option<(ThreadIndex, Timestamp)> {
        let WakeSource::Task(_) = self.wake_source(wait) else { return None };
        let (thread, at) = self.recorded_waker_thread(wait)?;
        match pattern.source {
            Some(PatternWakeSource::Softirqd(_)) => {
                let (sender, _) = self.recorded_waker_thread(self.find_delivery(wait)?)?;
                Some((sender, at))
            }
            _ => Some((thread, at)),
        }
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
            let wait = self.wait_ended_by(track.get(place)?)?;
            let (_, pattern) = self.pattern(wait)?;
            begins_slice(pattern).then_some((wait, pattern))
        })
    }

    /// Returns the wait that a thread came out of with an interval: that in which it was blocked, or one that
    /// was over before it had left the CPU.
    ///
    /// ```text
    /// normal     --+-- blocked --+-- runnable --+--     the first of the two
    /// early    wake x-+-- runnable -------------+--     that one
    /// ```
    pub(super) fn wait_ended_by(&self, interval: Interval) -> Option<WaitIndex> {
        match interval.state {
            State::Blocked(wait) => Some(wait),
            State::Runnable(RunnableSince::Woken(wait)) => {
                self.early_wake_of(wait).is_some().then_some(wait)
            }
            State::Runnable(RunnableSince::Preempted(_))
            | State::OnCpu
            | State::Throttled(_)
            | State::Lost
            | State::Summed(_) => None,
        }
    }

    /// Returns when a wait's blocked part ended, or when the wake came where it has none.
    pub(super) fn end_of_blocked_part(&self, wait: WaitIndex) -> Option<Timestamp> {
        let blocked = self.timeline.blocked_interval(wait).map(|blocked| blocked.to);
        blocked.or_else(|| self.early_wake_of(wait))
    }

    /// Returns when a wait was ended that was over before its thread had left the CPU.
    pub(super) fn early_wake_of(&self, wait: WaitIndex) -> Option<Timestamp> {
        let row = self.recording.waits.rows().get(wait.0 as usize)?;
        let is_early = row.begin() != Begin::Newborn && wake_use(row) == WakeUse::Early;
        is_early.then(|| row.woken_at()).flatten()
    }
}

/// Returns whether a thread that comes out of a wait begins something new.
pub(super) fn begins_slice(pattern: &PatternAnalysis) -> bool {
    pattern.work_wait != WorkWait::No || pattern.idle_hint == IdleHint::Idle
}
