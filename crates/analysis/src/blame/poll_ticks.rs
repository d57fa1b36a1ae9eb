//! Polls of a loop that looks around after each timeout, finds nothing, and polls again.
//!
//! PostgreSQL's walreceiver polls for 100 ms at most: for data from the primary, and for a word from the
//! process that applies them. Who waits for its answer waits for that process, and not for the timeouts
//! on the way.
//!
//! ```text
//! client  --+------------------- waits for the loop -------------------+##
//! loop    --+-- polls, 100 ms --+#+-- polls, 100 ms --+#+-- polls --+##^
//!           |                   ^ timeout             ^ timeout     ^ wake by X
//!           '------------------- X was waited for ------------------'
//! ```
//!
//! A loop with something to do at a certain time polls until then, and for less time the nearer it is. So
//! this holds where every poll in one place has the same timeout, whatever ended the one before. What such a
//! loop does at a timeout, it does by the clock: a poll counts for itself if the loop then wakes anybody,
//! or takes more CPU time than to look. And whoever ends the last poll had what the loop needed only if the loop
//! then wakes somebody.
//!
//! ```text
//! loop    --+-- polls, 100 ms --+#+-- polls, 100 ms --+##     it asks X at the timeout: the first poll
//!           |                   ^ timeout, wakes X    ^ X     is a sleep, the second a wait for X
//! ```
//!
//! It holds for waits on chains alone: to the loop itself, whoever comes after a timeout was not waited for, as
//! it had nothing to do. And only where the waits of all threads were recorded, each by itself.

use std::collections::{HashMap, HashSet};

use offwake_recording::{
    FileId, Recording, Scope, StackRef,
    units::{Nanos, Tid, Timestamp},
};
use rayon::prelude::*;

use crate::timeline::{State, Thread, Timeline, WaitIndex};

use super::{
    External, WakeSource, cause::Cause, frame_evidence::FrameEvidence,
    pattern_analysis::PatternAnalysis, timed_retries::is_same_wait, wake_source::PatternWakeSource,
    work_waits::read_loop_timeout,
};

/// The most CPU time between two polls: enough to look at a few flags, and to make a new epoll.
const MAX_CPU_TIME: Nanos = Nanos(500_000);

/// The fewest polls that show whether a timeout is always the same.
const MIN_POLLS: usize = 4;

/// The last poll of each row of them.
#[derive(Debug, Default)]
pub(super) struct PollTicks(HashMap<WaitIndex, WaitIndex>);

impl PollTicks {
    pub(super) fn new(
        recording: &Recording,
        timeline: &Timeline,
        patterns: &[PatternAnalysis],
    ) -> Self {
        // Of some threads, nobody saw whether the loop woke them.
        if recording.meta.scope != Scope::Machine || !recording.summed.is_empty() {
            return Self::default();
        }
        let waits = &recording.waits;
        let ticking: HashSet<Tid> = (waits.patterns().iter().zip(patterns))
            .filter(|(_, analysis)| is_tick(analysis))
            .map(|((_, pattern), _)| waits.waiters()[pattern.waiter].tid)
            .collect();
        if ticking.is_empty() {
            return Self::default();
        }
        let wakes = find_wakes_by(&ticking, recording, patterns);
        let of_thread = |thread: &Thread| match ticking.contains(&thread.tid) {
            true => {
                let wakes = wakes.get(&thread.tid).map_or(&[][..], Vec::as_slice);
                find_last_polls(thread, wakes, recording, patterns)
            }
            false => HashMap::new(),
        };
        Self(timeline.threads.par_iter().flat_map_iter(of_thread).collect())
    }

    /// Returns the last poll of the row that this one begins or goes on with.
    pub(super) fn last_poll(&self, wait: WaitIndex) -> Option<WaitIndex> {
        self.0.get(&wait).copied()
    }
}

/// Whether a timeout ends a poll of a loop that waits for anything.
fn is_tick(pattern: &PatternAnalysis) -> bool {
    let is_timeout =
        pattern.source == Some(PatternWakeSource::Known(WakeSource::External(External::Timer)));
    let is_loop = matches!(
        pattern.evidence,
        FrameEvidence::None | FrameEvidence::OwnCoroutine | FrameEvidence::WorkerLoop
    );
    is_timeout && is_loop && pattern.cause == Cause::Poll
}

/// Returns when some threads woke anybody, each in order of time.
fn find_wakes_by(
    threads: &HashSet<Tid>,
    recording: &Recording,
    patterns: &[PatternAnalysis],
) -> HashMap<Tid, Vec<Timestamp>> {
    let mut wakes: HashMap<Tid, Vec<Timestamp>> = HashMap::new();
    for row in recording.waits.rows() {
        let waker = patterns.get(row.pattern.index()).and_then(PatternAnalysis::waker);
        let waker = waker.filter(|waker| threads.contains(&waker.tid));
        if let (Some(waker), Some(at)) = (waker, row.woken_at()) {
            wakes.entry(waker.tid).or_default().push(at);
        }
    }
    wakes.values_mut().for_each(|wakes| wakes.sort_unstable());
    wakes
}

fn find_last_polls(
    thread: &Thread,
    wakes: &[Timestamp],
    recording: &Recording,
    patterns: &[PatternAnalysis],
) -> HashMap<WaitIndex, WaitIndex> {
    let places = Places::new(thread, recording);
    let analysis = |wait: WaitIndex| {
        let row = recording.waits.rows().get(wait.0 as usize)?;
        patterns.get(row.pattern.index())
    };
    let has_woken = |from: Timestamp, to: Timestamp| {
        wakes.get(wakes.partition_point(|&at| at < from)).is_some_and(|&at| at < to)
    };
    let mut last_polls = HashMap::new();
    let mut next: Option<NextWait> = None;
    let (mut cpu_time, mut until) = (Nanos(0), Timestamp(u64::MAX));
    for interval in thread.track.iter().rev() {
        match interval.state {
            State::OnCpu => cpu_time += interval.to.since(interval.from),
            State::Runnable(_) | State::Throttled(_) => {}
            State::Lost | State::Summed(_) => (next, until) = (None, interval.from),
            State::Blocked(wait) => {
                let has_only_looked = |next: &NextWait| {
                    cpu_time <= MAX_CPU_TIME
                        && is_same_wait(recording, wait, next.wait)
                        && !has_woken(interval.to, next.from)
                };
                let goes_on = next.filter(|next| {
                    analysis(wait).is_some_and(is_tick)
                        && has_only_looked(next)
                        && places.has_one_timeout(wait, recording)
                });
                let last = goes_on.and_then(|next| match last_polls.get(&next.wait) {
                    Some(&last) => Some(last),
                    None => (analysis(next.wait).and_then(PatternAnalysis::waker))
                        .filter(|_| has_woken(next.to, next.until))
                        .map(|_| next.wait),
                });
                if let Some(last) = last {
                    last_polls.insert(wait, last);
                }
                next = Some(NextWait { wait, from: interval.from, to: interval.to, until });
                (cpu_time, until) = (Nanos(0), interval.from);
            }
        }
    }
    last_polls
}

/// The wait after another one.
#[derive(Clone, Copy)]
struct NextWait {
    wait: WaitIndex,
    from: Timestamp,
    to: Timestamp,
    /// When the thread next waits after that.
    until: Timestamp,
}

/// Where a thread polls.
type Place = (StackRef, Option<FileId>);

/// With which timeouts a thread polls in each of its places.
struct Places(HashMap<Place, Timeouts>);

struct Timeouts {
    /// None if they differ, or if a poll has none.
    only: Option<Nanos>,
    polls: usize,
}

impl Places {
    fn new(thread: &Thread, recording: &Recording) -> Self {
        let mut places: HashMap<Place, Timeouts> = HashMap::new();
        for interval in thread.track.iter() {
            let State::Blocked(wait) = interval.state else { continue };
            let Some((place, timeout)) = find_place(wait, recording) else { continue };
            let known = places.entry(place).or_insert(Timeouts { only: timeout, polls: 0 });
            known.polls += 1;
            known.only = known.only.filter(|_| known.only == timeout);
        }
        Self(places)
    }

    fn has_one_timeout(&self, wait: WaitIndex, recording: &Recording) -> bool {
        let known = find_place(wait, recording).and_then(|(place, _)| self.0.get(&place));
        known.is_some_and(|known| known.only.is_some() && known.polls >= MIN_POLLS)
    }
}

fn find_place(wait: WaitIndex, recording: &Recording) -> Option<(Place, Option<Nanos>)> {
    let wait = recording.waits.get(wait.0 as usize)?;
    // Without the user half, all places of a thread look alike.
    let is_known = matches!(wait.user_stack, StackRef::Id(_));
    is_known.then(|| ((wait.user_stack, wait.file), read_loop_timeout(&wait)))
}
