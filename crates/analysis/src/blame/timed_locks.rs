//! Locks of Java's that a thread tries to get for a while at a time: who held one when, and so whom the thread
//! waited for.
//!
//! Such a lock has no address: each thread waits on a word of its own. Who lets go of it wakes the first in line,
//! and a thread whose time is up goes to the end of the line:
//!
//! ```text
//! waiter     --| tries ..|#| tries ..|#| tries ..........^ wake by B
//! A          #### has it ########| lets go, wakes B
//! B          sleeps .......| waits ..^#### has it #######| lets go
//! blame of the waiter    A       |         B             |
//! ```
//!
//! B ended the wait; what it did before it stood in line itself has nothing to do with it. That the threads hand
//! round what the waiter wants, too, is known by the places in which those that end its waits wait themselves: it
//! wakes somebody there at other times, and so do those that wait there. A server waits for whom it asks in a place
//! of its own, and no client of the server's ever wakes anybody there.

use std::collections::{HashMap, HashSet};

use offwake_recording::{
    Recording,
    units::{StackId, Tgid, Tid, Timestamp},
};

use crate::timeline::{Timeline, WaitIndex, WakeUse, wake_use};

use super::{
    broadcasts::FunctionReader,
    locks::Release,
    notified_places::{Notifier, Place, find_notifier, find_places},
    pattern_analysis::PatternAnalysis,
    timed_retries::TimedRetries,
};

/// How a thread of Java's waits for a lock of its library, and how it is woken.
const PARKS: &[(&str, &str)] = &[("Unsafe_Park", "Unsafe_Unpark")];

/// The releases of the locks for which threads waited in several pieces.
#[derive(Debug, Default)]
pub(super) struct TimedLocks {
    /// Those before the end of each wait, in the order of time, by its last piece.
    releases: HashMap<WaitIndex, Vec<Release>>,
}

/// A wait that ended as another thread handed something over.
#[derive(Clone, Copy)]
struct HandOver {
    wait: WaitIndex,
    waiter: Tid,
    notifier: Notifier,
    from: Timestamp,
    at: Timestamp,
}

impl TimedLocks {
    pub(super) fn new(
        recording: &Recording,
        timeline: &Timeline,
        patterns: &[PatternAnalysis],
        retries: &TimedRetries,
    ) -> Self {
        if retries.pieces().next().is_none() {
            return Self::default();
        }
        let mut reader = FunctionReader::default();
        let notifiers: Vec<Option<Notifier>> = (recording.waits.patterns().iter().zip(patterns))
            .map(|((_, pattern), analysis)| {
                find_notifier(recording, pattern, analysis, &mut reader, PARKS)
            })
            .collect();
        let mut tries: HashMap<WaitIndex, Vec<(Timestamp, Timestamp)>> = HashMap::new();
        let row_of = |wait: WaitIndex| recording.waits.rows().get(wait.0 as usize);
        for (piece, last) in retries.pieces() {
            let is_handed_over = row_of(last)
                .and_then(|row| notifiers.get(row.pattern.index()))
                .is_some_and(Option::is_some);
            if is_handed_over && let Some(blocked) = timeline.blocked_interval(piece) {
                tries.entry(last).or_default().push((blocked.from, blocked.to));
            }
        }
        if tries.is_empty() {
            return Self::default();
        }
        let processes: HashSet<Tgid> = (tries.keys())
            .filter_map(|&last| Some(recording.waits.waiter(row_of(last)?).tgid))
            .collect();
        let circles = Circles::new(recording, &notifiers, &processes);
        let mut locks: HashMap<(Tid, StackId), Vec<HandOver>> = HashMap::new();
        let mut releases = HashMap::new();
        for (last, mut tries) in tries {
            let Some(blocked) = timeline.blocked_interval(last) else { continue };
            let Some(own) = circles.by_wait.get(&last) else { continue };
            let (waiter, place) = (own.waiter, circles.place(own));
            let of_lock =
                locks.entry((waiter, place)).or_insert_with(|| circles.find_lock(waiter, place));
            tries.push((blocked.from, blocked.to));
            tries.sort_unstable();
            let inside = find_releases(of_lock, &tries, own.at);
            if !inside.is_empty() {
                releases.insert(last, inside);
            }
        }
        Self { releases }
    }

    /// Returns the releases after `from` and before `to` of the lock that a thread waited for in several pieces, of
    /// which this is the last; none if it is no such wait.
    pub(super) fn between(&self, last: WaitIndex, from: Timestamp, to: Timestamp) -> &[Release] {
        let releases = self.releases.get(&last).map_or([].as_slice(), Vec::as_slice);
        let first = releases.partition_point(|release| release.at <= from);
        let end = releases.partition_point(|release| release.at < to);
        releases.get(first..end).unwrap_or_default()
    }
}

/// Who hands something over to whom, and where.
struct Circles {
    /// What each thread got, in the order of time.
    got: HashMap<Tid, Vec<HandOver>>,
    by_wait: HashMap<WaitIndex, HandOver>,
    /// The first known stack of each stack's place.
    places: HashMap<StackId, StackId>,
    /// Who waits in each place, and who wakes them there.
    users: HashMap<StackId, Users>,
}

#[derive(Default)]
struct Users {
    waiters: HashSet<Tid>,
    notifiers: HashSet<Tid>,
}

impl Circles {
    fn new(
        recording: &Recording,
        notifiers: &[Option<Notifier>],
        processes: &HashSet<Tgid>,
    ) -> Self {
        let waits = &recording.waits;
        let mut circles = Self {
            got: HashMap::new(),
            by_wait: HashMap::new(),
            places: HashMap::new(),
            users: HashMap::new(),
        };
        for (row, n) in waits.rows().iter().zip(0..) {
            let waiter = waits.waiter(row);
            if !processes.contains(&waiter.tgid) || wake_use(row) == WakeUse::Stale {
                continue;
            }
            let notifier = notifiers.get(row.pattern.index()).copied().flatten();
            if let (Some(notifier), Some(at)) = (notifier, row.woken_at()) {
                let (wait, from) = (WaitIndex(n), row.off);
                let hand_over = HandOver { wait, waiter: waiter.tid, notifier, from, at };
                circles.got.entry(waiter.tid).or_default().push(hand_over);
                circles.by_wait.insert(wait, hand_over);
            }
        }
        circles.got.values_mut().for_each(|got| got.sort_unstable_by_key(|it| it.at));
        circles.unite_places();
        for it in circles.by_wait.values() {
            let users = circles.users.entry(circles.place(it)).or_default();
            users.waiters.insert(it.waiter);
            users.notifiers.insert(it.notifier.tid);
        }
        circles
    }

    /// What one thread shows to be one place is one for all.
    fn unite_places(&mut self) {
        for got in self.got.values() {
            let notifiers: Vec<Notifier> = got.iter().map(|it| it.notifier).collect();
            for (stack, Place(first)) in find_places(&notifiers) {
                let (one, other) = (self.first_stack(stack), self.first_stack(first));
                if one != other {
                    self.places.insert(one.max(other), one.min(other));
                }
            }
        }
    }

    fn first_stack(&self, stack: StackId) -> StackId {
        let mut first = stack;
        while let Some(&before) = self.places.get(&first) {
            first = before;
        }
        first
    }

    fn place(&self, it: &HandOver) -> StackId {
        self.first_stack(it.notifier.stack)
    }

    fn got_by(&self, tid: Tid) -> &[HandOver] {
        self.got.get(&tid).map_or(&[], Vec::as_slice)
    }

    /// Finds how a lock was handed on that a thread gets in this place, in the order of time; nothing if it is
    /// not known for a lock.
    fn find_lock(&self, own: Tid, place: StackId) -> Vec<HandOver> {
        let in_place = self.got_by(own).iter().filter(|it| self.place(it) == place);
        let givers: HashSet<Tid> = in_place.map(|it| it.notifier.tid).collect();
        let is_of_lock = |(_, users): &(&StackId, &Users)| {
            users.notifiers.contains(&own) && !users.waiters.is_disjoint(&givers)
        };
        let of_lock: HashMap<StackId, &Users> =
            self.users.iter().filter(is_of_lock).map(|(&place, users)| (place, users)).collect();
        let waiters = of_lock.values().flat_map(|users| &users.waiters).copied();
        let holders: HashSet<Tid> = waiters.chain(givers.iter().copied()).collect();
        let is_in_line = |it: &&HandOver| of_lock.contains_key(&self.place(it));
        // Of one that waits for others alone it is not known where it stands in line.
        let has_known_line = |&giver: &Tid| {
            let got = self.got_by(giver);
            got.is_empty() || got.iter().any(|it| is_in_line(&it))
        };
        if !givers.iter().all(has_known_line) {
            return Vec::new();
        }
        let got = holders.iter().filter(|&&holder| holder != own).flat_map(|&it| self.got_by(it));
        let mut all: Vec<HandOver> = got
            .filter(|it| is_in_line(it) && holders.contains(&it.notifier.tid))
            .copied()
            .collect();
        all.sort_unstable_by_key(|it| (it.at, it.wait));
        all
    }
}

/// Finds the releases of a lock while a thread tried to get it at these times, until it was woken.
fn find_releases(
    of_lock: &[HandOver],
    tries: &[(Timestamp, Timestamp)],
    woken: Timestamp,
) -> Vec<Release> {
    let Some(&(from, _)) = tries.first() else { return Vec::new() };
    let begin = of_lock.partition_point(|it| it.at <= from);
    let inside = of_lock.iter().skip(begin).take_while(|it| it.at < woken);
    let of_lock = inside.filter(|it| !is_behind(it, tries));
    of_lock.map(|it| Release { at: it.at, wait: it.wait }).collect()
}

/// Returns whether a thread was woken while another one had stood in line before it: then it was woken for something
/// else.
fn is_behind(woken: &HandOver, tries: &[(Timestamp, Timestamp)]) -> bool {
    let begun = tries.partition_point(|&(from, _)| from < woken.at);
    let current = begun.checked_sub(1).and_then(|index| tries.get(index));
    current.is_some_and(|&(from, to)| from < woken.from && woken.at < to)
}
