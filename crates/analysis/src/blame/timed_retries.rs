//! Waits with a timeout that were begun anew when it was over, or after a signal: one wait in several
//! pieces.
//!
//! Python's GIL is asked for every 5 ms, PostgreSQL looks for deadlocks after a second, by an alarm,
//! and goes on waiting. A timer ends all pieces but the last, or a signal cuts them short, and who
//! ends the last one is who was waited for.
//!
//! ```text
//! waiter  --+-- blocked --+##+-- blocked --+##+-- blocked ----+--
//!           |             ^timer           ^timer             ^ wake by X
//!           '---------------- X was waited for ---------------'
//! ```

use std::{cell::OnceCell, collections::HashMap};

use offwake_recording::{
    FileId, Recording, StackRef,
    units::{Nanos, Tgid},
};
use rayon::prelude::*;

use crate::timeline::{State, Thread, Timeline, WaitIndex};

use super::{
    External, Reason, WakeSource, cause::Cause, frame_evidence::FrameEvidence,
    pattern_analysis::PatternAnalysis, wake_source::PatternWakeSource,
};

/// The most CPU time between two pieces: enough to look for a deadlock, not to do any work.
const MAX_CPU_TIME: Nanos = Nanos(500_000);

/// The last piece of each wait that a timer or a signal ended and that was begun anew.
#[derive(Debug, Default)]
pub(super) struct TimedRetries(HashMap<WaitIndex, WaitIndex>);

impl TimedRetries {
    pub(super) fn new(
        recording: &Recording,
        timeline: &Timeline,
        patterns: &[PatternAnalysis],
    ) -> Self {
        let is_timed = |pattern: &PatternAnalysis| {
            let is_cut_short = matches!(
                pattern.source,
                Some(PatternWakeSource::Known(
                    WakeSource::External(External::Timer) | WakeSource::Unknown(Reason::Signal)
                ))
            );
            let is_question = match pattern.evidence {
                // Each sleep is whole: who had the lock meanwhile is known for each.
                FrameEvidence::Lock(lock) => !lock.is_polled(),
                FrameEvidence::Request | FrameEvidence::NameLookup | FrameEvidence::Output => true,
                // An event loop, or the reader of a queue, waits for everybody: who comes after a
                // timer was not waited for.
                FrameEvidence::None | FrameEvidence::OwnCoroutine => {
                    !matches!(pattern.cause, Cause::Poll | Cause::IoUring | Cause::Mqueue)
                }
                FrameEvidence::Sleep | FrameEvidence::WorkerLoop | FrameEvidence::Safepoint => {
                    false
                }
            };
            is_cut_short && pattern.cause != Cause::Timer && is_question
        };
        // Of a loop that one process alone asks, that process was waited for. PostgreSQL leaves the alarm
        // for its search for deadlocks running: it strikes in the session's next wait for its client.
        let is_cut_short_loop = |pattern: &PatternAnalysis| {
            pattern.cause == Cause::Poll
                && pattern.source
                    == Some(PatternWakeSource::Known(WakeSource::Unknown(Reason::Signal)))
        };
        if !patterns.iter().any(|pattern| is_timed(pattern) || is_cut_short_loop(pattern)) {
            return Self::default();
        }
        let rows = recording.waits.rows();
        let of_thread = |thread: &Thread| {
            let mut last_pieces = HashMap::new();
            let mut next: Option<WaitIndex> = None;
            let mut cpu_time = Nanos(0);
            let enders = OnceCell::new();
            let is_ended_by_one_process = |wait: WaitIndex| {
                let enders: &Enders =
                    enders.get_or_init(|| Enders::new(recording, thread, patterns));
                enders.is_one_process(recording, wait)
            };
            for interval in thread.track.iter().rev() {
                match interval.state {
                    State::OnCpu => cpu_time += interval.to.since(interval.from),
                    State::Runnable(_) | State::Throttled(_) => {}
                    State::Lost | State::Summed(_) => next = None,
                    State::Blocked(wait) => {
                        let Some(row) = rows.get(wait.0 as usize) else { continue };
                        let pattern = patterns.get(row.pattern.index());
                        let goes_on = next.filter(|next| {
                            cpu_time <= MAX_CPU_TIME
                                && is_same_wait(recording, wait, *next)
                                && pattern.is_some_and(|pattern| {
                                    is_timed(pattern)
                                        || is_cut_short_loop(pattern)
                                            && is_ended_by_one_process(wait)
                                })
                        });
                        if let Some(next) = goes_on {
                            let last = last_pieces.get(&next).copied().unwrap_or(next);
                            last_pieces.insert(wait, last);
                        }
                        next = Some(wait);
                        cpu_time = Nanos(0);
                    }
                }
            }
            last_pieces
        };
        Self(timeline.threads.par_iter().flat_map_iter(of_thread).collect())
    }

    /// Returns each piece that another one follows, and the last piece of its wait.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (WaitIndex, WaitIndex)> + '_ {
        self.0.iter().map(|(&piece, &last)| (piece, last))
    }

    /// Returns the last piece of a wait, if a timer or a signal ended this one.
    pub(super) fn last_piece(&self, wait: WaitIndex) -> Option<WaitIndex> {
        self.0.get(&wait).copied()
    }
}

/// Who ended the waits of one thread in each of its places, signals and timers apart.
struct Enders(HashMap<(StackRef, Option<FileId>), Ender>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ender {
    Process(Tgid),
    /// Several processes, or none: a device, or nobody who is known.
    Others,
}

impl Enders {
    fn new(recording: &Recording, thread: &Thread, patterns: &[PatternAnalysis]) -> Self {
        let rows = recording.waits.rows();
        let mut enders = HashMap::new();
        for interval in thread.track.iter() {
            let State::Blocked(wait) = interval.state else { continue };
            let Some(row) = rows.get(wait.0 as usize) else { continue };
            let source = patterns.get(row.pattern.index()).and_then(|pattern| pattern.source);
            let ender = match source {
                Some(PatternWakeSource::Known(
                    WakeSource::External(External::Timer) | WakeSource::Unknown(Reason::Signal),
                )) => continue,
                Some(PatternWakeSource::Known(WakeSource::Task(waker))) => {
                    Ender::Process(waker.tgid)
                }
                // The window ended first.
                None => continue,
                Some(_) => Ender::Others,
            };
            let waiter = recording.waits.waiter(row);
            let place = enders.entry((waiter.user_stack, waiter.file)).or_insert(ender);
            if *place != ender {
                *place = Ender::Others;
            }
        }
        Self(enders)
    }

    fn is_one_process(&self, recording: &Recording, wait: WaitIndex) -> bool {
        let Some(row) = recording.waits.rows().get(wait.0 as usize) else { return false };
        let waiter = recording.waits.waiter(row);
        let ender = self.0.get(&(waiter.user_stack, waiter.file));
        matches!(ender, Some(Ender::Process(process)) if *process != waiter.tgid)
    }
}

/// Returns whether two waits were in the same place of the program, for the same thing.
pub(super) fn is_same_wait(recording: &Recording, one: WaitIndex, other: WaitIndex) -> bool {
    let rows = recording.waits.rows();
    let waiter = |wait: WaitIndex| Some(recording.waits.waiter(rows.get(wait.0 as usize)?));
    let (Some(one), Some(other)) = (waiter(one), waiter(other)) else { return false };
    // A timer reads a thread's kernel stack later than whoever wakes it, so its last frames differ.
    // Where the user half is not known, only the kernel's can tell places apart.
    let is_user_half_known = matches!(one.user_stack, StackRef::Id(_));
    (one.user_stack, one.file, one.state) == (other.user_stack, other.file, other.state)
        && (is_user_half_known || one.kernel_stack == other.kernel_stack)
}
