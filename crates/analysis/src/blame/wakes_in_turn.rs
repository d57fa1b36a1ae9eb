//! Broadcasts that wake one waiter after the other, by a call for each: Ruby's `ConditionVariable`,
//! `Atomics.notify` of V8, and whatever else keeps a list of its waiters.
//!
//! ```text
//! F   -- wakes A, wakes B, wakes C --------   from one place in its code, without a sleep in between
//! A   .. blocked ..|#....
//! B   .. blocked ...........|#....
//! C   .. blocked ....................|#....   nobody who waits in these places is left behind
//! ```
//!
//! Each call wakes one thread, as a call does that was meant for it. Two things tell them apart: mostly,
//! where such a place wakes anybody, it wakes several at once; and it leaves nobody behind who waits
//! where those waited. A loop that hands out jobs leaves whoever there is no job for.

use std::collections::{HashMap, HashSet};

use offwake_recording::{
    End, Recording, StackRef, WaitRow,
    units::{Nanos, StackId, Tgid, Tid, Timestamp},
};

use crate::timeline::{Timeline, WaitIndex, WakeUse, wake_use};

use super::{cause::Cause, passed_on::PassedOn, pattern_analysis::PatternAnalysis};

/// How often a place must have woken several threads, to be no accident.
const MIN_OF_SEVERAL: u32 = 3;
/// The most CPU time between two wakes of a round: a call takes some 5 us.
pub(super) const MAX_BETWEEN: Nanos = Nanos(100_000);
/// Of how many rounds one may leave somebody behind: a stack that was not recognised, a wake that was lost.
/// Of the broadcasts of Ruby, V8 and Rust one in seventy did at most; of places that hand out jobs, nine
/// of ten.
const ROUNDS_FOR_ONE_LEFT: u32 = 16;

/// A place in the code of a process.
type Place = (Tgid, StackId);

/// What the waits of a pattern tell: from where their threads were woken, and where they waited.
#[derive(Clone, Copy)]
struct WokenFrom {
    waker: Tid,
    from: StackId,
    waiter: Tid,
    waited: StackId,
    process: Tgid,
}

/// A thread's wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wake {
    at: Timestamp,
    waiter: Tid,
    /// The waiter that made it, having been woken itself.
    passed_on_by: Option<Tid>,
}

/// How often a place in the code woke anybody.
#[derive(Clone, Default)]
struct Rounds {
    all: u32,
    /// Those that woke more threads than one.
    of_several: u32,
    /// Those of them in which no waiter woke the next.
    without_passing_on: u32,
    /// Those after which somebody still waited where they woke others.
    left_behind: u32,
    /// How often each thread was the first of several.
    first: HashMap<Tid, u32>,
}

impl Rounds {
    fn count(&mut self, round: &[Wake], is_left_behind: bool) {
        self.all += 1;
        self.left_behind += u32::from(is_left_behind);
        if let [first, _, ..] = round {
            let is_passed_on = round.iter().any(|wake| wake.passed_on_by.is_some());
            self.of_several += 1;
            self.without_passing_on += u32::from(!is_passed_on);
            *self.first.entry(first.waiter).or_default() += 1;
        }
    }

    fn are_broadcasts(&self) -> bool {
        let first_often = self.first.values().filter(|&&count| count >= MIN_OF_SEVERAL).count();
        self.of_several >= MIN_OF_SEVERAL
            && self.of_several >= self.all.div_ceil(2)
            && self.left_behind <= self.all / ROUNDS_FOR_ONE_LEFT
            && (self.without_passing_on >= MIN_OF_SEVERAL || first_often > 1)
    }
}

/// The waits in one place, in the order in which they began.
#[derive(Default)]
struct WaitsInPlace {
    /// When each began, and when the last ended of those up to it.
    begun: Vec<(Timestamp, Timestamp)>,
}

impl WaitsInPlace {
    fn sort(&mut self) {
        self.begun.sort_unstable();
        let mut latest = Timestamp(0);
        for (_, end) in &mut self.begun {
            latest = latest.max(*end);
            *end = latest;
        }
    }

    /// Returns whether any wait went on throughout.
    fn has_any_throughout(&self, from: Timestamp, to: Timestamp) -> bool {
        let count = self.begun.partition_point(|&(begun, _)| begun < from);
        let last = count.checked_sub(1).and_then(|last| self.begun.get(last));
        last.is_some_and(|&(_, end)| end > to)
    }
}

/// Finds the places in the code of processes that wake all waiters in turn. Waits on locks are not looked
/// at: a lock is handed to one.
pub(super) fn find_broadcasting_places(
    recording: &Recording,
    timeline: &Timeline,
    patterns: &[PatternAnalysis],
    passed_on: &PassedOn,
) -> HashSet<Place> {
    let (waits, opened) = (&recording.waits, recording.meta.window.start);
    let mut woken_from = read_patterns(recording, patterns);
    keep_places_in_question(&mut woken_from);
    let mut wakes: HashMap<(Tid, Place), Vec<Wake>> = HashMap::new();
    let mut waited: HashMap<Place, HashSet<Place>> = HashMap::new();
    if woken_from.iter().all(Option::is_none) {
        return HashSet::new();
    }
    let woken_in = |row: &WaitRow| woken_from.get(row.pattern.index()).copied().flatten();
    for (row, n) in waits.rows().iter().zip(0..) {
        let Some(woken) = woken_in(row).filter(|_| wake_use(row) != WakeUse::Stale) else {
            continue;
        };
        // What threads did before the window opened is not known.
        let Some(at) = row.woken_at().filter(|&at| at >= opened) else { continue };
        let first = waits.rows().get(passed_on.first(WaitIndex(n)).0 as usize);
        let Some(first) = first.and_then(woken_in) else { continue };
        let passed_on_by = passed_on.earlier(WaitIndex(n)).map(|_| woken.waker);
        let place = (first.process, first.from);
        let wake = Wake { at, waiter: woken.waiter, passed_on_by };
        wakes.entry((first.waker, place)).or_default().push(wake);
        waited.entry(place).or_default().insert((woken.process, woken.waited));
    }
    let in_places = collect_waits(recording, patterns, waited.values().flatten());
    let mut rounds: HashMap<Place, Rounds> = HashMap::new();
    for ((waker, place), mut wakes) in wakes {
        wakes.sort_unstable();
        let counted = rounds.entry(place).or_default();
        let places = waited.get(&place).into_iter().flatten();
        let waits: Vec<&WaitsInPlace> = places.filter_map(|place| in_places.get(place)).collect();
        for round in find_rounds(timeline, waker, &wakes) {
            let (Some(first), Some(last)) = (round.first(), round.last()) else { continue };
            let is_left = waits.iter().any(|waits| waits.has_any_throughout(first.at, last.at));
            counted.count(round, is_left);
        }
    }
    rounds.into_iter().filter(|(_, rounds)| rounds.are_broadcasts()).map(|it| it.0).collect()
}

/// Reads what the waits of each pattern tell, if a thread of the same process ended them by a futex.
fn read_patterns(recording: &Recording, patterns: &[PatternAnalysis]) -> Vec<Option<WokenFrom>> {
    let waits = &recording.waits;
    (waits.patterns().iter().zip(patterns))
        .map(|((_, pattern), analysis)| {
            if analysis.cause != Cause::Futex || analysis.is_on_lock() {
                return None;
            }
            let waiter = &waits.waiters()[pattern.waiter];
            let waker = analysis.waker().filter(|waker| waker.tgid == waiter.tgid)?;
            let StackRef::Id(from) = waits.wakers()[pattern.wake?.0].user_stack else {
                return None;
            };
            let StackRef::Id(waited) = waiter.user_stack else { return None };
            let (process, waiter) = (waiter.tgid, waiter.tid);
            Some(WokenFrom { waker: waker.tid, from, waiter, waited, process })
        })
        .collect()
}

/// Leaves out what was woken from places that wake one thread alone, or only threads that no other thread
/// wakes: who always wakes a thread is waited for all along.
fn keep_places_in_question(woken_from: &mut [Option<WokenFrom>]) {
    let mut wakers: HashMap<(Tid, StackId), HashSet<Tid>> = HashMap::new();
    let mut woken: HashMap<Place, HashSet<Tid>> = HashMap::new();
    let waiting: HashSet<(Tid, StackId)> =
        woken_from.iter().flatten().map(|it| (it.waiter, it.waited)).collect();
    // Who waits there too may pass on what others did.
    let passes_on = |it: &WokenFrom| waiting.contains(&(it.waker, it.waited));
    for it in woken_from.iter().flatten() {
        wakers.entry((it.waiter, it.waited)).or_default().insert(it.waker);
        woken.entry((it.process, it.from)).or_default().insert(it.waiter);
    }
    let is_of_several =
        |it: &WokenFrom| wakers.get(&(it.waiter, it.waited)).is_some_and(|wakers| wakers.len() > 1);
    let in_question: HashSet<Place> = (woken_from.iter().flatten())
        .filter(|it| is_of_several(it))
        .map(|it| (it.process, it.from))
        .filter(|place| woken.get(place).is_some_and(|woken| woken.len() > 1))
        .collect();
    for it in woken_from {
        *it = it.filter(|it| in_question.contains(&(it.process, it.from)) || passes_on(it));
    }
}

/// Collects the waits on futexes in these places, whoever ended them.
fn collect_waits<'a>(
    recording: &Recording,
    patterns: &[PatternAnalysis],
    places: impl Iterator<Item = &'a Place>,
) -> HashMap<Place, WaitsInPlace> {
    let waits = &recording.waits;
    let mut collected: HashMap<Place, WaitsInPlace> =
        places.map(|&place| (place, WaitsInPlace::default())).collect();
    let place_of: Vec<Option<Place>> = (waits.patterns().iter().zip(patterns))
        .map(|((_, pattern), analysis)| {
            let waiter = &waits.waiters()[pattern.waiter];
            let StackRef::Id(stack) = waiter.user_stack else { return None };
            let place = (waiter.tgid, stack);
            (analysis.cause == Cause::Futex && collected.contains_key(&place)).then_some(place)
        })
        .collect();
    for row in waits.rows() {
        let place = place_of.get(row.pattern.index()).copied().flatten();
        if let Some(waits) = place.and_then(|place| collected.get_mut(&place)) {
            waits.begun.push((row.off, end_of(row)));
        }
    }
    collected.values_mut().for_each(WaitsInPlace::sort);
    collected
}

fn end_of(row: &WaitRow) -> Timestamp {
    match row.end() {
        End::StillOff => Timestamp(u64::MAX),
        _ => row.woken_at().unwrap_or(row.on),
    }
}

/// Divides the wakes that a thread made from one place into rounds: it wakes one thread right after the
/// other, and none twice.
fn find_rounds<'w>(timeline: &Timeline, waker: Tid, wakes: &'w [Wake]) -> Vec<&'w [Wake]> {
    let mut rounds = Vec::new();
    let mut rest = wakes;
    let mut count = 0;
    while let Some(&Wake { at, .. }) = rest.get(count) {
        count += 1;
        let round = rest.get(..count).unwrap_or_default();
        let has_woken = |waiter: Tid| round.iter().any(|wake| wake.waiter == waiter);
        let goes_on = rest.get(count).is_some_and(|next| {
            let follows = || match next.passed_on_by {
                Some(waiter) => has_woken(waiter),
                None => follows_at_once(timeline, waker, (at, next.at)),
            };
            !has_woken(next.waiter) && follows()
        });
        if !goes_on {
            rounds.push(round);
            rest = rest.get(count..).unwrap_or_default();
            count = 0;
        }
    }
    rounds
}

/// Returns whether a thread did next to nothing between two moments, and did not sleep.
fn follows_at_once(timeline: &Timeline, tid: Tid, (from, to): (Timestamp, Timestamp)) -> bool {
    let thread = timeline.find_thread(tid, from).and_then(|index| timeline.thread(index));
    thread.is_some_and(|thread| {
        let times = thread.track.times_between(from, to);
        times.on_cpu <= MAX_BETWEEN && times.blocked == Nanos(0) && times.lost == Nanos(0)
    })
}
