//! Who had the lock on a file that a thread asks for now and then, while it sleeps in between.
//!
//! SQLite asks for its lock, is refused, sleeps for up to 100 ms, and asks again. The kernel half records
//! each refusal with the process that had the lock, when that one gave it back, and who took it next:
//!
//! ```text
//! waiter  #+---------------- sleeps -----------------+#
//!         ^ refused: A has it                         ^ asks again
//! A       ------ has the lock ------+
//! B                                 |      +------- has the lock ------
//! blame    |  what A did meanwhile  |timer | what B did |
//! ```
//!
//! While nobody has the lock, the sleep is the waiter's own: it would have the lock if it asked.

use std::collections::HashMap;

use offwake_recording::{
    FileLockEvent, FileLockEventKind, Recording,
    units::{Tgid, Tid, Timestamp},
};

use crate::timeline::{State, Thread, ThreadIndex, Timeline, WaitIndex};

use super::{
    frame_evidence::FrameEvidence, pattern_analysis::PatternAnalysis,
    polled_file_locks::find_refusals,
};

/// A part of a sleep in which somebody had the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// A thread whose waits were recorded.
    pub(super) thread: ThreadIndex,
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
}

/// The sleeps of threads that had just been refused a lock, each with the parts, in order of time, of which
/// it is known who had the lock.
#[derive(Debug, Default)]
pub(super) struct RefusedLocks(HashMap<WaitIndex, Vec<Held>>);

/// A file, by its device and its number there.
type File = (u32, u64);

impl RefusedLocks {
    pub(super) fn new(
        recording: &Recording,
        timeline: &Timeline,
        patterns: &[PatternAnalysis],
    ) -> Self {
        if recording.file_lock_events.is_empty() {
            return Self::default();
        }
        let refusals = find_refusals(recording);
        let mut events: HashMap<File, Vec<&FileLockEvent>> = HashMap::new();
        for event in &recording.file_lock_events {
            events.entry((event.device, event.inode)).or_default().push(event);
        }
        let search = Search { timeline, events, threads: find_threads(recording, timeline) };
        let mut locks = HashMap::new();
        for thread in &timeline.threads {
            let Some(refusals) = refusals.get(&thread.tid) else { continue };
            for sleep in find_sleeps(thread, refusals, recording, patterns) {
                let held = search.find_holders(&sleep);
                if !held.is_empty() {
                    locks.insert(sleep.wait, held);
                }
            }
        }
        Self(locks)
    }

    /// Returns the parts of a wait of which it is known who had the lock that its thread had just been
    /// refused. None if there are none.
    pub(super) fn holders(&self, wait: WaitIndex) -> Option<&[Held]> {
        self.0.get(&wait).map(Vec::as_slice)
    }
}

/// A thread's sleep between two requests for a lock.
struct Sleep<'a> {
    wait: WaitIndex,
    from: Timestamp,
    to: Timestamp,
    /// The request before it.
    refusal: &'a FileLockEvent,
}

fn find_sleeps<'a>(
    thread: &Thread,
    refusals: &[&'a FileLockEvent],
    recording: &Recording,
    patterns: &[PatternAnalysis],
) -> Vec<Sleep<'a>> {
    let is_between_requests = |wait: WaitIndex| {
        let row = recording.waits.rows().get(wait.0 as usize);
        let pattern = row.and_then(|row| patterns.get(row.pattern.index()));
        pattern
            .is_some_and(|it| matches!(it.evidence, FrameEvidence::Lock(lock) if lock.is_polled()))
    };
    let mut sleeps = Vec::new();
    let mut awake_since = thread.from;
    for interval in thread.track.iter() {
        match interval.state {
            State::OnCpu | State::Runnable(_) | State::Throttled(_) => {}
            State::Lost | State::Summed(_) => awake_since = interval.to,
            State::Blocked(wait) => {
                let before = refusals.partition_point(|refusal| refusal.at <= interval.from);
                let last = before.checked_sub(1).and_then(|last| refusals.get(last));
                let last = last.filter(|refusal| refusal.at >= awake_since);
                if let Some(&refusal) = last.filter(|_| is_between_requests(wait)) {
                    let (from, to) = (interval.from, interval.to);
                    sleeps.push(Sleep { wait, from, to, refusal });
                }
                awake_since = interval.to;
            }
        }
    }
    sleeps
}

/// Finds the threads of the processes that had locks.
fn find_threads(recording: &Recording, timeline: &Timeline) -> HashMap<Tgid, Vec<ThreadIndex>> {
    let holders = recording.file_lock_events.iter().filter_map(|event| event.holder);
    let mut threads: HashMap<Tgid, Vec<ThreadIndex>> =
        holders.map(|holder| (holder, Vec::new())).collect();
    for (thread, n) in timeline.threads.iter().zip(0..) {
        if let Some(threads) = threads.get_mut(&thread.tgid) {
            threads.push(ThreadIndex(n));
        }
    }
    threads
}

/// Who has a lock.
#[derive(Clone, Copy)]
struct Holder {
    process: Tgid,
    /// The thread that took it, if that was seen.
    tid: Option<Tid>,
    since: Timestamp,
}

struct Search<'a> {
    timeline: &'a Timeline,
    /// What happened to the locks on each file, in order of time.
    events: HashMap<File, Vec<&'a FileLockEvent>>,
    /// The threads of each process that had a lock.
    threads: HashMap<Tgid, Vec<ThreadIndex>>,
}

impl Search<'_> {
    /// Finds who had the lock from a thread's request on, for as long as it then slept.
    fn find_holders(&self, sleep: &Sleep<'_>) -> Vec<Held> {
        let Sleep { refusal, .. } = sleep;
        let mut held = Vec::new();
        let Some(events) = self.events.get(&(refusal.device, refusal.inode)) else { return held };
        let begin = events.partition_point(|event| event.at < refusal.at);
        let mut holder =
            (refusal.holder).map(|process| Holder { process, tid: None, since: refusal.at });
        for event in events.get(begin..).unwrap_or_default() {
            let has_it = holder.is_some_and(|holder| event.holder == Some(holder.process));
            let next = match event.kind {
                // It has the lock still, or somebody else has it, which was not seen to take it.
                FileLockEventKind::Refused if has_it || event.holder.is_none() => continue,
                FileLockEventKind::Refused => event.holder,
                FileLockEventKind::Acquired if has_it => continue,
                FileLockEventKind::Acquired => event.holder,
                FileLockEventKind::Released if has_it => None,
                FileLockEventKind::Released => continue,
            };
            let released_by = (event.kind == FileLockEventKind::Released).then_some(event.tid);
            held.extend(holder.and_then(|it| self.find_part(sleep, it, event.at, released_by)));
            let taken_by = (event.kind == FileLockEventKind::Acquired).then_some(event.tid);
            holder = next.map(|process| Holder { process, tid: taken_by, since: event.at });
            if event.at >= sleep.to {
                return held;
            }
        }
        held.extend(holder.and_then(|it| self.find_part(sleep, it, sleep.to, None)));
        held
    }

    /// Finds the part of a sleep in which somebody had the lock, until a moment. None if its thread is not known.
    fn find_part(
        &self,
        sleep: &Sleep<'_>,
        holder: Holder,
        until: Timestamp,
        released_by: Option<Tid>,
    ) -> Option<Held> {
        let (from, to) = (holder.since.max(sleep.from), until.min(sleep.to));
        let tid = released_by.or(holder.tid);
        let thread = self.find_living(holder.process, holder.since, tid)?;
        (from < to).then_some(Held { thread, from, to })
    }

    /// Finds a thread of a process that lived at a moment: the one with this tid, or the only one.
    fn find_living(&self, process: Tgid, at: Timestamp, tid: Option<Tid>) -> Option<ThreadIndex> {
        let threads = self.threads.get(&process)?;
        let mut living = threads.iter().copied().filter(|&index| {
            self.timeline.thread(index).is_some_and(|thread| {
                thread.from <= at && at <= thread.until && tid.is_none_or(|tid| thread.tid == tid)
            })
        });
        let thread = living.next().filter(|_| living.next().is_none());
        thread.filter(|&thread| self.timeline.are_waits_recorded(thread))
    }
}
