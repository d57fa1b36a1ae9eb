//! Readers-writer locks: who lets go last need not have held the lock for all of the time before.
//!
//! Readers share such a lock, and the GNU C library lets more of them in while a writer waits. Nothing
//! shows when a reader takes it. What shows is when it can't have had it: as a writer gets the lock, no
//! reader has it. Who sleeps just then sleeps without the lock, and so does whoever sleeps in the same
//! place of the program:
//!
//! ```text
//! writer    -- waits --^ has it       ---------------- waits ---------------^ has it
//! one       ...........| lets go      ---- has the lock ----+
//! reader    ------ pauses ------+     ------ pauses ------+##### has it #####| lets go
//!                      ^ nobody has it                    ^ not before this
//! ```

use std::collections::{HashMap, HashSet};

use offwake_recording::{
    Recording, StackRef,
    units::{Nanos, StackId, Tgid, Timestamp},
};

use crate::timeline::{State, ThreadIndex, WaitIndex, WakeUse, wake_use};

use super::{
    Blame, FrameEvidence, LockName,
    locks::{FutexKey, FutexWait},
    pattern_analysis::PatternAnalysis,
};

/// How long before a writer got the lock a thread must have gone to sleep to have slept without it. The
/// last reader lets go a moment before it wakes the writer, and musl lets others in between.
const MIN_ASLEEP: Nanos = Nanos(200_000);

/// Where threads sleep without a readers-writer lock, by their user stacks, for each such lock.
#[derive(Debug, Default)]
pub(super) struct SharedLocks(HashMap<FutexKey, HashSet<StackId>>);

impl SharedLocks {
    pub(super) fn new(recording: &Recording, patterns: &[PatternAnalysis]) -> Self {
        let waits = &recording.waits;
        let mut got_by_writers: HashMap<FutexKey, Vec<Timestamp>> = HashMap::new();
        for row in waits.rows() {
            let key = patterns.get(row.pattern.index()).and_then(lock_got_by_writer);
            if let (Some(key), Some(at)) = (key, row.woken_at())
                && wake_use(row) != WakeUse::Stale
            {
                got_by_writers.entry(key).or_default().push(at);
            }
        }
        if got_by_writers.is_empty() {
            return Self::default();
        }
        let mut by_process: HashMap<Option<Tgid>, Vec<(FutexKey, Vec<Timestamp>)>> = HashMap::new();
        for (key, mut times) in got_by_writers {
            times.sort_unstable();
            by_process.entry(key.process()).or_default().push((key, times));
        }
        let mut places: HashMap<FutexKey, HashSet<StackId>> = HashMap::new();
        for row in waits.rows() {
            let waiter = waits.waiter(row);
            let (StackRef::Id(stack), Some(end)) = (waiter.user_stack, row.woken_at()) else {
                continue;
            };
            if patterns.get(row.pattern.index()).is_none_or(PatternAnalysis::is_on_lock) {
                continue;
            }
            let of_process = [Some(waiter.tgid), None].map(|process| by_process.get(&process));
            for (key, times) in of_process.into_iter().flatten().flatten() {
                let next = times.partition_point(|&at| at < row.off + MIN_ASLEEP);
                if times.get(next).is_some_and(|&at| at < end) {
                    places.entry(*key).or_default().insert(stack);
                }
            }
        }
        Self(places)
    }

    fn is_slept_without(&self, key: FutexKey, stack: StackRef) -> bool {
        let StackRef::Id(stack) = stack else { return false };
        self.0.get(&key).is_some_and(|places| places.contains(&stack))
    }
}

/// Returns the lock that the waits of a pattern end with, if they are a writer's and it was let go of.
fn lock_got_by_writer(pattern: &PatternAnalysis) -> Option<FutexKey> {
    let is_writer = pattern.evidence == FrameEvidence::Lock(LockName::Write);
    pattern.lock.filter(|_| is_writer).and_then(FutexWait::released)
}

impl Blame<'_> {
    /// Returns since when, in `from..to`, the thread that ended a wait may have held the lock that the
    /// wait was for.
    pub(super) fn find_start_of_hold(
        &self,
        released: WaitIndex,
        (from, to): (Timestamp, Timestamp),
    ) -> Timestamp {
        let slept_without_it = || {
            let key = lock_got_by_writer(self.pattern(released)?.1)?;
            let (holder, _) = self.recorded_waker_thread(released)?;
            self.find_last_sleep_without(key, holder, (from, to))
        };
        slept_without_it().unwrap_or(from)
    }

    fn find_last_sleep_without(
        &self,
        key: FutexKey,
        thread: ThreadIndex,
        (from, to): (Timestamp, Timestamp),
    ) -> Option<Timestamp> {
        let track = &self.timeline.thread(thread)?.track;
        let end = track.count_begun_before(to, track.len());
        (0..end)
            .rev()
            .map_while(|place| track.get(place).filter(|interval| interval.to > from))
            .find_map(|interval| {
                let State::Blocked(wait) = interval.state else { return None };
                let row = self.recording.waits.rows().get(wait.0 as usize)?;
                let stack = self.recording.waits.waiter(row).user_stack;
                self.shared_locks.is_slept_without(key, stack).then_some(interval.to.min(to))
            })
    }
}
