//! Wakes of Java's that say little: `notifyAll` and `signalAll` for a thread that waits alone look like
//! `notify` and `signal`.
//!
//! ```text
//! waiter  --+-- blocked --+#+-- blocked --+#+-- blocked ----+##########
//!           |             ^ F notifies    ^ F notifies      ^ S notifies
//! ```
//!
//! The waiter may want what S brings, look each time that F announces something else, and sleep again: it then
//! waits for S all along. Or it may take from F what is done in no time: it then waits for F first. The JVM
//! wakes threads as their notifier lets go of the monitor
//! ([`ObjectMonitor::exit`](https://github.com/openjdk/jdk/blob/jdk-21%2B35/src/hotspot/share/runtime/objectMonitor.cpp))
//! or of the lock, when nothing tells any more which of the calls it was. So nobody is blamed for a piece
//! whose waker has the thread hardly ever do more than look, while others, in the same place, have it
//! do more.
//!
//! The JVM compiles what waits meanwhile, which takes the waiter's time and wakes a compiler's thread, and gives
//! the place another stack. So stacks of which one begins where the other ends are one place ([`find_places`]).

use std::collections::{HashMap, HashSet};

use offwake_recording::{
    Recording,
    units::{Nanos, StackId, Tid, Timestamp},
};
use rayon::prelude::*;

use crate::timeline::{State, Thread, Timeline, WaitIndex};

use super::{
    broadcasts::{FunctionReader, MAX_CPU_TIME},
    frame_evidence::FrameEvidence,
    notified_places::{Notifier, Place, find_notifier, find_places},
    pattern_analysis::PatternAnalysis,
    timed_retries::is_same_wait,
    wakes_by_waker::{WakesByWaker, find_processes, find_wakes_within},
};

/// The JVM's compiler: where its threads wait for what is to be compiled, and where others hand it to them.
const COMPILER: [&str; 2] = ["CompileQueue::get", "CompileBroker::compile_method_base"];

/// How a thread of the JVM's waits for a condition, and how it is woken from that.
const NOTIFICATIONS: &[(&str, &str)] = &[
    ("ObjectMonitor::wait", "ObjectMonitor::ExitEpilog"),
    ("ObjectMonitor::wait", "ObjectMonitor::exit_epilog"),
    ("Unsafe_Park", "Unsafe_Unpark"),
];

/// How often a thread must have done more than look after wakes of others: once may be by chance.
const MIN_GOT: usize = 2;

/// For how many wakes after which a thread only looks it may do more once: it is interrupted now and then. Of 1,357
/// looks on an idle virtual machine, 7 to 12 % took longer than [`MAX_CPU_TIME`], where most took 20 us.
const LOOKS_FOR_ONE_ACCIDENT: usize = 4;

/// The waits that were ended for nothing, or for little: nobody knows.
#[derive(Debug, Default)]
pub(super) struct LoneNotifies(HashSet<WaitIndex>);

/// What a thread did after a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It slept again in the same place, and woke nobody but who waits for a lock.
    OnlyLooked,
    More,
}

/// What a thread did after the wakes that one thread made.
#[derive(Clone, Copy, Debug, Default)]
struct Outcomes {
    looked: usize,
    more: usize,
}

impl LoneNotifies {
    pub(super) fn new(
        recording: &Recording,
        timeline: &Timeline,
        patterns: &[PatternAnalysis],
    ) -> Self {
        let waits = &recording.waits;
        let mut reader = FunctionReader::default();
        let notifiers: Vec<Option<Notifier>> = (waits.patterns().iter().zip(patterns))
            .map(|((_, pattern), analysis)| match analysis.evidence {
                FrameEvidence::None => {
                    find_notifier(recording, pattern, analysis, &mut reader, NOTIFICATIONS)
                }
                _ => None,
            })
            .collect();
        let processes = find_processes(recording, &notifiers, Option::is_some);
        if processes.is_empty() {
            return Self::default();
        }
        let by_waker = find_wakes_within(&processes, recording, patterns);
        let has_to_do_with_compiler = (waits.patterns().iter())
            .map(|(_, pattern)| {
                let waiter = &waits.waiters()[pattern.waiter];
                let mut has =
                    |name| reader.has_function(&recording.stacks, waiter.user_stack, name);
                processes.contains(&waiter.tgid) && COMPILER.into_iter().any(&mut has)
            })
            .collect();
        let search = Search { recording, patterns, notifiers, has_to_do_with_compiler, by_waker };
        let find = |thread: &Thread| match processes.contains(&thread.tgid) {
            true => search.find_unclear(thread),
            false => Vec::new(),
        };
        Self(timeline.threads.par_iter().flat_map_iter(find).collect())
    }

    /// Returns whether nothing tells if what ended a wait was meant for its thread.
    pub(super) fn is_unclear(&self, wait: WaitIndex) -> bool {
        self.0.contains(&wait)
    }
}

/// Finds those after whose wakes a thread hardly ever does more than look in a place where others have it do
/// more.
fn find_unclear_notifiers(of_place: &HashMap<Tid, Outcomes>) -> Vec<Tid> {
    let gives = |it: &Outcomes| it.more >= MIN_GOT && it.more >= it.looked;
    (of_place.iter())
        .filter(|(notifier, own)| {
            let mut others = of_place.iter().filter(|(other, _)| other != notifier);
            own.hardly_gives() && others.any(|(_, it)| gives(it))
        })
        .map(|(&notifier, _)| notifier)
        .collect()
}

impl Outcomes {
    /// Returns whether the thread hardly ever did more than look.
    fn hardly_gives(self) -> bool {
        self.more * LOOKS_FOR_ONE_ACCIDENT <= self.looked
    }
}

struct Search<'a> {
    recording: &'a Recording,
    patterns: &'a [PatternAnalysis],
    /// Where the waits of each pattern are, and who ended them.
    notifiers: Vec<Option<Notifier>>,
    /// Whether the waits of each pattern are for the JVM's compiler, or of it for work.
    has_to_do_with_compiler: Vec<bool>,
    by_waker: WakesByWaker,
}

impl Search<'_> {
    fn find_unclear(&self, thread: &Thread) -> Vec<WaitIndex> {
        let blocked = thread.track.iter().filter_map(|interval| match interval.state {
            State::Blocked(wait) => self.notifier(wait),
            _ => None,
        });
        let places = find_places(&blocked.collect::<Vec<_>>());
        let outcomes = self.find_outcomes(thread, &places);
        let mut by_notifier: HashMap<Place, HashMap<Tid, Outcomes>> = HashMap::new();
        for &(_, (place, notifier), outcome) in &outcomes {
            let of_place = by_notifier.entry(place).or_default();
            let counted = of_place.entry(notifier).or_default();
            match outcome {
                Outcome::OnlyLooked => counted.looked += 1,
                Outcome::More => counted.more += 1,
            }
        }
        // Not all stacks of a place are known to be of one: who is not believed with one is not with the others,
        // unless the thread does more there.
        let unclear: HashSet<Tid> = by_notifier.values().flat_map(find_unclear_notifiers).collect();
        let hardly_gives = |notifier: &Tid| {
            let everywhere = by_notifier.values().filter_map(|of_place| of_place.get(notifier));
            let sum = everywhere.fold(Outcomes::default(), |sum, it| Outcomes {
                looked: sum.looked + it.looked,
                more: sum.more + it.more,
            });
            sum.hardly_gives()
        };
        let unclear: HashSet<Tid> = unclear.into_iter().filter(hardly_gives).collect();
        (outcomes.iter())
            .filter(|(_, (_, notifier), outcome)| {
                *outcome == Outcome::OnlyLooked && unclear.contains(notifier)
            })
            .map(|&(wait, ..)| wait)
            .collect()
    }

    /// Finds what a thread did after each wait for a condition.
    fn find_outcomes(
        &self,
        thread: &Thread,
        places: &HashMap<StackId, Place>,
    ) -> Vec<(WaitIndex, (Place, Tid), Outcome)> {
        let mut outcomes = Vec::new();
        let mut next: Option<(WaitIndex, Timestamp)> = None;
        let mut cpu_time = Nanos(0);
        for interval in thread.track.iter().rev() {
            match interval.state {
                State::OnCpu => cpu_time += interval.to.since(interval.from),
                State::Runnable(_) | State::Throttled(_) => {}
                State::Lost | State::Summed(_) => (next, cpu_time) = (None, Nanos(0)),
                // The condition's own lock is taken before the thread looks, and what it is about to run may
                // have to be compiled.
                State::Blocked(wait) if self.is_on_lock(wait) || self.is_for_compiler(wait) => {}
                State::Blocked(wait) => {
                    let notified = self
                        .notifier(wait)
                        .and_then(|notifier| Some((*places.get(&notifier.stack)?, notifier.tid)));
                    let around = (wait, interval.to);
                    let outcome = self.outcome(thread, places, around, next, cpu_time);
                    if let Some((notified, outcome)) = notified.zip(outcome) {
                        outcomes.push((wait, notified, outcome));
                    }
                    next = Some((wait, interval.from));
                    cpu_time = Nanos(0);
                }
            }
        }
        outcomes
    }

    /// Decides what a thread did between a wait's end and its next wait. Nothing is known if neither what it
    /// did nor the next wait was seen.
    fn outcome(
        &self,
        thread: &Thread,
        places: &HashMap<StackId, Place>,
        (wait, from): (WaitIndex, Timestamp),
        next: Option<(WaitIndex, Timestamp)>,
        cpu_time: Nanos,
    ) -> Option<Outcome> {
        if cpu_time > MAX_CPU_TIME {
            return Some(Outcome::More);
        }
        let (next, to) = next?;
        let place = |wait| places.get(&self.notifier(wait)?.stack);
        let is_same_place = is_same_wait(self.recording, wait, next)
            || place(wait).is_some_and(|own| place(next) == Some(own));
        let has_only_looked = is_same_place && !self.wakes_waiter(thread, (from, to));
        Some(if has_only_looked { Outcome::OnlyLooked } else { Outcome::More })
    }

    /// Returns whether a thread woke anybody who waited for anything but a lock, or for something to compile.
    fn wakes_waiter(&self, thread: &Thread, (from, to): (Timestamp, Timestamp)) -> bool {
        let wakes = self.by_waker.get(&thread.tid).map_or([].as_slice(), Vec::as_slice);
        let first = wakes.partition_point(|&(at, _)| at < from);
        let woken = wakes.iter().skip(first).take_while(|&&(at, _)| at <= to);
        woken.into_iter().any(|&(_, woken)| !self.is_on_lock(woken) && !self.is_for_compiler(woken))
    }

    fn pattern(&self, wait: WaitIndex) -> Option<usize> {
        Some(self.recording.waits.rows().get(wait.0 as usize)?.pattern.index())
    }

    fn notifier(&self, wait: WaitIndex) -> Option<Notifier> {
        self.notifiers.get(self.pattern(wait)?).copied()?
    }

    fn is_for_compiler(&self, wait: WaitIndex) -> bool {
        let index = self.pattern(wait);
        index.and_then(|index| self.has_to_do_with_compiler.get(index)).is_some_and(|it| *it)
    }

    fn is_on_lock(&self, wait: WaitIndex) -> bool {
        let pattern = self.pattern(wait).and_then(|index| self.patterns.get(index));
        pattern.is_some_and(PatternAnalysis::is_on_lock)
    }
}
