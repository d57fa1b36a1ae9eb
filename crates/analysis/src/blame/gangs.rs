//! Gangs: threads that sleep on one word until another thread has work for any of them.
//!
//! The threads of a garbage collector are one. They sleep on one semaphore, and whoever takes a job of a
//! phase, the last one to finish wakes the thread that began the phase
//! ([`SemaphoreGangTaskDispatcher`](https://github.com/openjdk/jdk/blob/jdk-17%2B35/src/hotspot/share/gc/shared/workgroup.cpp)):
//!
//! ```text
//! leader  ##- blocked ---##- blocked ---##
//!          | wakes both  ^|             ^
//! U       .+#############.+####.........|.    U and B sleep on one word
//! B       .+####...........+############'.
//! ```
//!
//! A member that gets its next job as it reports the last one looks like a client that asks again as it is
//! answered. It is none: a wake on a word on which several sleep reaches any of them, so it answers nobody
//! in particular. That does not hold for a broadcast, which reaches whoever was meant; nor for a word that
//! different threads sleep on at different times, as memory is used again.

use std::collections::{HashMap, HashSet};

use offwake_recording::{
    Recording,
    units::{Tid, Timestamp},
};

use super::{broadcasts::wakes_many, cause::Cause, pattern_analysis::PatternAnalysis};

/// The members of each thread's gang.
#[derive(Debug, Default)]
pub(super) struct Gangs {
    members: HashMap<Tid, HashSet<Tid>>,
}

/// A word in the memory of a process, and the thread of that process which wakes others there.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Word {
    leader: Tid,
    address: u64,
}

/// A sleep: from when until when, and whose.
type Sleep = (Timestamp, Timestamp, Tid);

impl Gangs {
    pub(super) fn new(recording: &Recording, patterns: &[PatternAnalysis]) -> Self {
        let waits = &recording.waits;
        let words = find_words(recording, patterns);
        if words.iter().all(Option::is_none) {
            return Self::default();
        }
        let mut sleeps: HashMap<Word, Vec<Sleep>> = HashMap::new();
        for row in waits.rows() {
            if let (Some(Some(word)), Some(until)) =
                (words.get(row.pattern.index()), row.woken_at())
            {
                sleeps.entry(*word).or_default().push((row.off, until, waits.waiter(row).tid));
            }
        }
        let mut members: HashMap<Tid, HashSet<Tid>> = HashMap::new();
        for (word, mut sleeps) in sleeps {
            let together = find_asleep_together(&mut sleeps);
            if !together.is_empty() {
                members.entry(word.leader).or_default().extend(together);
            }
        }
        Self { members }
    }

    /// Returns whether `leaders` wake `thread` as one of their gang.
    pub(super) fn has_member(&self, leaders: &HashSet<Tid>, thread: Tid) -> bool {
        let mut gangs = leaders.iter().filter_map(|leader| self.members.get(leader));
        gangs.any(|members| members.contains(&thread))
    }
}

/// Returns for each pattern the word that its waits are on. None if its waker wakes no other thread
/// there, or several at once.
fn find_words(recording: &Recording, patterns: &[PatternAnalysis]) -> Vec<Option<Word>> {
    let waits = &recording.waits;
    let mut sleepers: HashMap<Word, HashSet<Tid>> = HashMap::new();
    let mut broadcast = HashSet::new();
    let words: Vec<_> = (waits.patterns().iter().zip(patterns))
        .map(|((_, pattern), analysis)| {
            let waiter = &waits.waiters()[pattern.waiter];
            let waker = analysis.waker().filter(|waker| waker.tgid == waiter.tgid)?;
            let call = (analysis.cause == Cause::Futex && !analysis.is_on_lock())
                .then(|| waits.calls()[pattern.call].syscall)??;
            let word = Word { leader: waker.tid, address: call.args[0] };
            sleepers.entry(word).or_default().insert(waiter.tid);
            if pattern.wake.is_some_and(|(_, call)| wakes_many(&waits.calls()[call])) {
                broadcast.insert(word);
            }
            Some(word)
        })
        .collect();
    let is_shared = |word: &Word| {
        !broadcast.contains(word) && sleepers.get(word).is_some_and(|sleepers| sleepers.len() > 1)
    };
    words.into_iter().map(|word| word.filter(is_shared)).collect()
}

/// Returns whose sleeps overlap with those of another thread.
fn find_asleep_together(sleeps: &mut [Sleep]) -> HashSet<Tid> {
    sleeps.sort_unstable();
    let mut together = HashSet::new();
    let mut longest: Option<Sleep> = None;
    for &(from, until, tid) in &*sleeps {
        if let Some((_, end, other)) = longest
            && from < end
            && other != tid
        {
            together.extend([tid, other]);
        }
        if longest.is_none_or(|(_, end, _)| end < until) {
            longest = Some((from, until, tid));
        }
    }
    together
}
