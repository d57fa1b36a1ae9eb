//! Broadcasts that one waiter passes on to the next: `Condition.signalAll` of Java puts all waiters into the
//! lock's queue and wakes none. Whoever lets go of the lock wakes the first in that queue, which looks, lets
//! go of the lock as it sleeps again, and so wakes the next one.
//!
//! ```text
//! F   -- lets go of the lock, wakes A --------------------
//! A   .. blocked ............|# wakes B ..................   waits where B does
//! B   .. blocked ................|# wakes C ..............
//! C   .. blocked ....................|####################   was woken by F, in effect
//! ```

use std::collections::{HashMap, HashSet};

use offwake_recording::{
    Recording, StackRef,
    units::{Nanos, StackId, Tid, Timestamp},
};

use crate::timeline::{State, Timeline, WaitIndex, WakeUse, wake_use};

use super::{cause::Cause, frame_evidence::FrameEvidence, pattern_analysis::PatternAnalysis};

/// The wakes that are followed at most from one waiter to the one before.
const MAX_PASSED_ON: usize = 64;

/// Of waits, the one of the thread that ended them, if it had just waited in the same place and been woken
/// itself.
#[derive(Debug, Default)]
pub(super) struct PassedOn(HashMap<WaitIndex, WaitIndex>);

impl PassedOn {
    pub(super) fn insert(&mut self, wait: WaitIndex, earlier: WaitIndex) {
        self.0.insert(wait, earlier);
    }

    /// Keeps the chains whose first waits are so.
    pub(super) fn retain_firsts(&mut self, is_kept: impl Fn(WaitIndex) -> bool) {
        let kept = self.0.keys().copied().filter(|&wait| is_kept(self.first(wait)));
        let kept: HashSet<WaitIndex> = kept.collect();
        self.0.retain(|wait, _| kept.contains(wait));
    }

    /// Returns the wait of the thread that ended a wait, if it passed on what had ended that.
    pub(super) fn earlier(&self, wait: WaitIndex) -> Option<WaitIndex> {
        self.0.get(&wait).copied()
    }

    /// Returns the first wait of a chain: the one whose waker passed nothing on.
    pub(super) fn first(&self, wait: WaitIndex) -> WaitIndex {
        let mut first = wait;
        for _ in 0..MAX_PASSED_ON {
            let Some(earlier) = self.earlier(first) else { break };
            first = earlier;
        }
        first
    }
}

/// Finds the wait that a thread had come out of as it made a wake, with at most so much CPU time in
/// between, but for waits on locks.
pub(super) fn find_wait_before(
    timeline: &Timeline,
    (waker, at): (Tid, Timestamp),
    max_cpu_time: Nanos,
    is_on_lock: impl Fn(WaitIndex) -> bool,
) -> Option<WaitIndex> {
    let track = &timeline.thread(timeline.find_thread(waker, at)?)?.track;
    let end = track.count_begun_before(at, track.len());
    let mut cpu_time = Nanos(0);
    for interval in (0..end).rev().filter_map(|place| track.get(place)) {
        match interval.state {
            State::OnCpu => cpu_time += interval.to.min(at).since(interval.from),
            State::Runnable(_) | State::Throttled(_) => {}
            State::Blocked(earlier) if is_on_lock(earlier) => {}
            State::Blocked(earlier) => return (cpu_time <= max_cpu_time).then_some(earlier),
            State::Lost | State::Summed(_) => return None,
        }
        if cpu_time > max_cpu_time {
            return None;
        }
    }
    None
}

/// Finds the waits that a thread ended which had just been woken out of the same place in the code. Workers
/// of a pool that wake each other hand jobs out.
pub(super) fn find_passed_on(
    recording: &Recording,
    timeline: &Timeline,
    patterns: &[PatternAnalysis],
    max_cpu_time: Nanos,
) -> PassedOn {
    let waits = &recording.waits;
    let places: Vec<Option<(Tid, Tid, StackId)>> = (waits.patterns().iter().zip(patterns))
        .map(|((_, pattern), analysis)| {
            if analysis.cause != Cause::Futex || analysis.evidence != FrameEvidence::None {
                return None;
            }
            if analysis.is_on_lock() {
                return None;
            }
            let waiter = &waits.waiters()[pattern.waiter];
            let waker = analysis.waker().filter(|waker| waker.tgid == waiter.tgid)?;
            let StackRef::Id(stack) = waiter.user_stack else { return None };
            Some((waiter.tid, waker.tid, stack))
        })
        .collect();
    let waited: HashSet<(Tid, StackId)> =
        places.iter().flatten().map(|&(waiter, _, stack)| (waiter, stack)).collect();
    let mut passed_on = PassedOn::default();
    let is_on_lock = |wait: WaitIndex| {
        let row = waits.rows().get(wait.0 as usize);
        let pattern = row.and_then(|row| patterns.get(row.pattern.index()));
        pattern.is_some_and(PatternAnalysis::is_on_lock)
    };
    for (row, n) in waits.rows().iter().zip(0..) {
        let place = places.get(row.pattern.index()).copied().flatten();
        let Some((_, waker, stack)) =
            place.filter(|&(_, waker, stack)| waited.contains(&(waker, stack)))
        else {
            continue;
        };
        let Some(at) = row.woken_at().filter(|_| wake_use(row) != WakeUse::Stale) else { continue };
        let earlier = find_wait_before(timeline, (waker, at), max_cpu_time, is_on_lock);
        let is_same_place = |wait: &WaitIndex| {
            let row = waits.rows().get(wait.0 as usize);
            row.is_some_and(|row| waits.waiter(row).user_stack == StackRef::Id(stack))
        };
        if let Some(earlier) = earlier.filter(is_same_place) {
            passed_on.insert(WaitIndex(n), earlier);
        }
    }
    passed_on
}
