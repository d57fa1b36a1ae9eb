//! Who held the lock of an interpreter (Python's GIL) when a thread's time to wait for it was up.
//!
//! `take_gil` waits for 5 ms at a time, and then asks the holder to let go. The holder does so within
//! microseconds, often before the other is back asleep, and no wake tells who that was. But it goes to
//! sleep itself, at the latest until the other has the lock
//! ([`FORCE_SWITCHING`](https://github.com/python/cpython/blob/v3.11.2/Python/ceval_gil.h#L193)), and
//! whoever has the lock now wakes it:
//!
//! ```text
//! waiter  ---- blocked ----+## takes the lock ## wakes the other ##|-- blocked --
//!                          ^ timer                    |
//! holder  ████ on-CPU, with the lock ████|- blocked --^
//! ```
//!
//! One thread at a time runs the interpreter's code. So whoever went to sleep in that time ran it
//! until then, or asked for the lock in vain as well; the latter was asleep when the timer struck.

use std::collections::HashMap;

use offwake_recording::{
    Recording,
    units::{Nanos, Timestamp},
};

use crate::timeline::{State, ThreadIndex, Timeline, Track, WaitIndex};

use super::{
    External, WakeSource,
    frame_evidence::FrameEvidence,
    pattern_analysis::PatternAnalysis,
    wake_source::PatternWakeSource,
    wakes_by_waker::{WakesByWaker, find_processes, find_wakes_within},
};

/// The longest wait for a lock that is part of taking the interpreter's: that lock has a mutex of its
/// own.
const LONGEST_MUTEX_WAIT: Nanos = Nanos(1_000_000);

/// The threads that held an interpreter's lock at the ends of waits that a timer ended.
#[derive(Debug, Default)]
pub(super) struct InterpreterLockHolders(HashMap<WaitIndex, ThreadIndex>);

impl InterpreterLockHolders {
    pub(super) fn new(
        recording: &Recording,
        timeline: &Timeline,
        patterns: &[PatternAnalysis],
    ) -> Self {
        let processes = find_processes(recording, patterns, is_timed_out);
        if processes.is_empty() {
            return Self::default();
        }
        let search = Search {
            recording,
            timeline,
            patterns,
            wakes: find_wakes_within(&processes, recording, patterns),
        };
        let mut holders = HashMap::new();
        for (thread, n) in timeline.threads.iter().zip(0..) {
            let Some(wakes) = search.wakes.get(&thread.tid) else { continue };
            for place in 0..thread.track.len() {
                let wait = thread.track.get(place).and_then(|interval| match interval.state {
                    State::Blocked(wait) => Some(wait),
                    _ => None,
                });
                if let Some(wait) = wait
                    && search.analysis(wait).is_some_and(is_timed_out)
                    && let Some(holder) =
                        search.find_holder(ThreadIndex(n), &thread.track, place, wakes)
                {
                    holders.insert(wait, holder);
                }
            }
        }
        Self(holders)
    }

    /// Returns the thread that held the lock as a timer ended this wait for it.
    pub(super) fn holder(&self, wait: WaitIndex) -> Option<ThreadIndex> {
        self.0.get(&wait).copied()
    }
}

struct Search<'a> {
    recording: &'a Recording,
    timeline: &'a Timeline,
    patterns: &'a [PatternAnalysis],
    wakes: WakesByWaker,
}

impl Search<'_> {
    fn analysis(&self, wait: WaitIndex) -> Option<&PatternAnalysis> {
        let row = self.recording.waits.rows().get(wait.0 as usize)?;
        self.patterns.get(row.pattern.index())
    }

    /// Finds who held the lock at the end of the wait at this place of a thread's track. None if
    /// several threads may have.
    fn find_holder(
        &self,
        thread: ThreadIndex,
        track: &Track,
        place: usize,
        wakes: &[(Timestamp, WaitIndex)],
    ) -> Option<ThreadIndex> {
        let timed_out = track.get(place)?.to;
        let slept_again = self.next_sleep(track, place);
        let first = wakes.partition_point(|&(at, _)| at < timed_out);
        let woken = wakes.get(first..)?.iter().take_while(|&&(at, _)| at <= slept_again);
        let mut holder = None;
        for &(_, wait) in woken {
            let Some(slept) = self.timeline.blocked_interval(wait) else { continue };
            let may_have_held = slept.thread != thread
                && slept.from >= timed_out
                && !self.is_blocked_at(slept.thread, timed_out);
            if !may_have_held || holder == Some(slept.thread) {
                continue;
            }
            if holder.is_some() {
                return None;
            }
            holder = Some(slept.thread);
        }
        holder
    }

    /// Returns when a thread next went to sleep, other than to take the lock's own mutex.
    fn next_sleep(&self, track: &Track, place: usize) -> Timestamp {
        let later = (place + 1..track.len()).map_while(|place| track.get(place));
        let mut sleeps = later.filter(|interval| match interval.state {
            State::Blocked(wait) => {
                let is_mutex = self.analysis(wait).is_some_and(|analysis| {
                    matches!(analysis.evidence, FrameEvidence::Lock(_)) && !is_timed_out(analysis)
                });
                !is_mutex || interval.to.since(interval.from) > LONGEST_MUTEX_WAIT
            }
            State::Lost | State::Summed(_) => true,
            State::OnCpu | State::Runnable(_) | State::Throttled(_) => false,
        });
        sleeps.next().map_or(track.end(), |interval| interval.from)
    }

    fn is_blocked_at(&self, thread: ThreadIndex, at: Timestamp) -> bool {
        let Some(life) = self.timeline.thread(thread) else { return true };
        let interval = life.track.index_at(at).and_then(|place| life.track.get(place));
        interval.is_none_or(|interval| {
            matches!(interval.state, State::Blocked(_) | State::Lost | State::Summed(_))
        })
    }
}

/// Returns whether waits were for an interpreter's lock, and a timer ended them.
fn is_timed_out(analysis: &PatternAnalysis) -> bool {
    matches!(analysis.evidence, FrameEvidence::Lock(name) if name.is_of_interpreter())
        && matches!(
            analysis.source,
            Some(PatternWakeSource::Known(WakeSource::External(External::Timer)))
        )
}
