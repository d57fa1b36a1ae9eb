//! Wakes for nothing: a condition is broadcast whenever anything changes, and whoever waits for something
//! else sleeps again.
//!
//! ```text
//! waiter  --+-- blocked --+#+-- blocked --+#+-- blocked ----+##########
//!           |             ^ F broadcasts  ^ F broadcasts    ^ S broadcasts
//!           '---------------- S was waited for -------------'
//! ```
//!
//! Who takes what it was woken for does something with it. Who wakes from a broadcast, wakes nobody but
//! who waits for the condition's lock, and sleeps again in the same place within 200 us of CPU time has
//! only looked. That is not said of a thread that is woken alone: its wake was meant for it, however
//! little it does. Nor is it where the thread never did more than look; nor of whom a thread has woken that
//! waits for the same condition itself: at a barrier, whoever comes last wakes all others, and has kept
//! them waiting, even if there is next to nothing to do until the next time.
//!
//! Where the last piece has not ended, it is not known who will end it.
//!
//! What shows a broadcast: a call that may wake many threads (glibc, musl, Rust); Python's
//! `notify_all`, which wakes one after the other; and of the JVM's monitors that one waiter wakes the
//! next as it leaves the monitor
//! ([`ObjectMonitor::exit`](https://github.com/openjdk/jdk/blob/jdk-21%2B35/src/hotspot/share/runtime/objectMonitor.cpp)).
//! What a place in the code does shows it, too ([`super::wakes_in_turn`], [`super::passed_on`]).

use std::collections::{HashMap, HashSet};

use offwake_recording::{
    Call, End, Recording, StackRef, StackTable, Waiter,
    units::{Nanos, StackId, Tgid, Tid, Timestamp},
};
use rayon::prelude::*;

use crate::timeline::{State, Thread, Timeline, WaitIndex};

use super::{
    cause::{Cause, syscalls},
    condition_calls::ConditionCalls,
    frame_evidence::plain_name,
    locks::FutexKey,
    passed_on::{PassedOn, find_passed_on, find_wait_before},
    pattern_analysis::PatternAnalysis,
    timed_retries::is_same_wait,
    wakes_by_waker::{WakesByWaker, find_processes, find_wakes_within},
    wakes_in_turn::{MAX_BETWEEN, find_broadcasting_places},
};

/// The most CPU time between two waits for the thread to have only looked: to take a lock, compare, and
/// let go of it. Python needs some 150 us.
pub(super) const MAX_CPU_TIME: Nanos = Nanos(200_000);

/// How a wake on a condition was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConditionWake {
    /// By a call that wakes whoever waits for the condition.
    Broadcast,
    /// By a thread that left a monitor of the JVM's, of one that waited for the monitor's condition.
    ByMonitorExit,
    /// In another way.
    Other,
}

/// The least CPU time after which a thread has certainly done more than look.
const MUCH_CPU_TIME: Nanos = Nanos(1_000_000);

/// For how many pieces that a thread was woken for nothing it must have got what it waited for once, where it
/// does little then.
const PIECES_FOR_ONE_GOT: usize = 32;

/// How often a thread must have been woken for nothing first, and have got what it waited for then.
const MIN_GOT: usize = 3;

/// Waits that broadcasts ended.
#[derive(Debug, Default)]
pub(super) struct Broadcasts {
    /// The last piece of each wait that a broadcast ended for nothing, and that was begun anew. It may not
    /// have ended.
    last_pieces: HashMap<WaitIndex, WaitIndex>,
    /// The waits that another waiter ended, which let go of the condition's lock.
    passed_on: PassedOn,
}

impl Broadcasts {
    pub(super) fn new(
        recording: &Recording,
        timeline: &Timeline,
        patterns: &[PatternAnalysis],
    ) -> Self {
        let mut passed_on = find_passed_on(recording, timeline, patterns, MAX_BETWEEN);
        let in_turn = find_broadcasting_places(recording, timeline, patterns, &passed_on);
        let wakes = read_condition_wakes(recording, patterns, &in_turn);
        let waits = &recording.waits;
        let processes = find_processes(recording, &wakes, |wake| *wake != ConditionWake::Other);
        if processes.is_empty() {
            return Self::default();
        }
        let by_waker = find_wakes_within(&processes, recording, patterns);
        let places = find_places(&processes, recording, patterns);
        let is_broadcast = |wake: &ConditionWake| *wake == ConditionWake::Broadcast;
        let broadcast = (0..).zip(&wakes).filter(|(_, wake)| is_broadcast(wake)).map(|it| it.0);
        let calls = ConditionCalls::new(recording, &broadcast.collect());
        let mut search = Search {
            recording,
            timeline,
            patterns,
            wakes,
            calls,
            by_waker,
            places,
            passed_on: PassedOn::default(),
        };
        // A call that wakes all leaves nobody to be woken by others.
        passed_on.retain_firsts(|first| {
            let row = waits.rows().get(first.0 as usize);
            let place = row.and_then(|row| {
                Some((waits.waiter(row).tgid, waits.waker(row)?.user_stack))
            });
            matches!(place, Some((process, StackRef::Id(from))) if in_turn.contains(&(process, from)))
        });
        let all = (0..waits.rows().len() as u32).into_par_iter().map(WaitIndex);
        let of_monitors: Vec<(WaitIndex, WaitIndex)> =
            all.filter_map(|wait| Some((wait, search.find_waiter_that_passed_on(wait)?))).collect();
        of_monitors.into_iter().for_each(|(wait, earlier)| passed_on.insert(wait, earlier));
        search.passed_on = passed_on;
        let find = |thread: &Thread| match processes.contains(&thread.tgid) {
            true => search.find_last_pieces(thread),
            false => HashMap::new(),
        };
        let last_pieces = timeline.threads.par_iter().flat_map_iter(find).collect();
        Self { last_pieces, passed_on: search.passed_on }
    }

    /// Returns the last piece of a wait, if a broadcast ended this one for nothing.
    pub(super) fn last_piece(&self, wait: WaitIndex) -> Option<WaitIndex> {
        self.last_pieces.get(&wait).copied()
    }

    /// Returns the wait whose waker also ended this one: the wait itself, unless another waiter of the
    /// same monitor was woken first and passed the monitor on.
    ///
    /// ```text
    /// F   ---- notifies both --+----------
    /// B   ..... blocked .......|-#-+......   wakes A as it leaves the monitor
    /// A   ..... blocked ...........|--####   was notified by F
    /// ```
    pub(super) fn first_notified(&self, wait: WaitIndex) -> WaitIndex {
        self.passed_on.first(wait)
    }
}

/// Finds how the waits of each pattern were ended.
fn read_condition_wakes(
    recording: &Recording,
    patterns: &[PatternAnalysis],
    in_turn: &HashSet<(Tgid, StackId)>,
) -> Vec<ConditionWake> {
    let waits = &recording.waits;
    let mut reader = FunctionReader::default();
    (waits.patterns().iter().zip(patterns))
        .map(|((_, pattern), analysis)| {
            let Some((waker, call)) = pattern.wake else { return ConditionWake::Other };
            let is_by_thread = analysis.cause == Cause::Futex && analysis.waker().is_some();
            if !is_by_thread || analysis.is_on_lock() {
                return ConditionWake::Other;
            }
            let (waiter, process) = {
                let waiter = &waits.waiters()[pattern.waiter];
                (waiter.user_stack, waiter.tgid)
            };
            let waker = waits.wakers()[waker].user_stack;
            let wakes_in_turn =
                || matches!(waker, StackRef::Id(place) if in_turn.contains(&(process, place)));
            let mut has = |stack, function| reader.has_function(&recording.stacks, stack, function);
            let is_broadcast = wakes_many(&waits.calls()[call])
                || wakes_in_turn()
                || has(waker, "Condition.notify_all");
            if is_broadcast {
                return ConditionWake::Broadcast;
            }
            let is_by_exit =
                has(waiter, "ObjectMonitor::wait") && has(waker, "ObjectMonitor::ExitEpilog");
            if is_by_exit { ConditionWake::ByMonitorExit } else { ConditionWake::Other }
        })
        .collect()
}

/// Returns whether a call wakes more threads than one
/// ([futex(2)](https://man7.org/linux/man-pages/man2/futex.2.html): `FUTEX_WAKE`, `FUTEX_REQUEUE`,
/// `FUTEX_CMP_REQUEUE` and `FUTEX_WAKE_BITSET`).
pub(super) fn wakes_many(call: &Call) -> bool {
    const COMMAND: u64 = 0x7f;
    let Some(syscall) = &call.syscall else { return false };
    let [_, op, woken, requeued, ..] = syscall.args;
    let is_many = |number: u64| number as u32 > 1;
    match (syscalls::name(syscall), op & COMMAND) {
        (Some("futex" | "futex_time64"), 1 | 10) => is_many(woken),
        (Some("futex" | "futex_time64"), 3 | 4) => is_many(woken) || requeued as u32 > 0,
        // https://github.com/torvalds/linux/blob/v6.12/kernel/futex/syscalls.c: the address, a mask,
        // and the number.
        (Some("futex_wake"), _) => is_many(woken),
        _ => false,
    }
}

/// Where a thread waits for a condition.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Stack(StackId),
    Condition(FutexKey),
}

/// Returns where a pattern's waits are.
fn places_of(waiter: &Waiter, analysis: &PatternAnalysis) -> impl Iterator<Item = Place> + use<> {
    let stack = match waiter.user_stack {
        StackRef::Id(stack) => Some(Place::Stack(stack)),
        StackRef::NotTaken | StackRef::Failed => None,
    };
    let condition = analysis.lock.map(|futex| Place::Condition(futex.condition()));
    [stack, condition].into_iter().flatten()
}

/// Finds where each thread of these processes waits on futexes.
fn find_places(
    processes: &HashSet<Tgid>,
    recording: &Recording,
    patterns: &[PatternAnalysis],
) -> HashSet<(Tid, Place)> {
    let waits = &recording.waits;
    (waits.patterns().iter().zip(patterns))
        .map(|((_, pattern), analysis)| (&waits.waiters()[pattern.waiter], analysis))
        .filter(|(waiter, analysis)| {
            analysis.cause == Cause::Futex && processes.contains(&waiter.tgid)
        })
        .flat_map(|(waiter, analysis)| places_of(waiter, analysis).map(|place| (waiter.tid, place)))
        .collect()
}

/// Looks for functions in user stacks, in each once.
#[derive(Default)]
pub(super) struct FunctionReader(HashMap<(StackId, &'static str), bool>);

impl FunctionReader {
    pub(super) fn has_function(
        &mut self,
        stacks: &StackTable,
        stack: StackRef,
        name: &'static str,
    ) -> bool {
        let StackRef::Id(id) = stack else { return false };
        *self.0.entry((id, name)).or_insert_with(|| {
            let mut functions = stacks.frames_of(id).flat_map(|frame| &frame.functions);
            functions.any(|function| plain_name(&function.name) == name)
        })
    }
}

/// The piece of a wait that comes after the one that is looked at.
#[derive(Clone, Copy)]
struct NextPiece {
    wait: WaitIndex,
    from: Timestamp,
    /// The last piece, if the thread did something after it or is in it as the recording ends.
    last: Option<WaitIndex>,
}

struct Search<'a> {
    recording: &'a Recording,
    timeline: &'a Timeline,
    patterns: &'a [PatternAnalysis],
    wakes: Vec<ConditionWake>,
    by_waker: WakesByWaker,
    /// Where each thread waits.
    places: HashSet<(Tid, Place)>,
    calls: ConditionCalls,
    /// As in [`Broadcasts`].
    passed_on: PassedOn,
}

impl Search<'_> {
    fn pattern(&self, wait: WaitIndex) -> Option<(usize, &PatternAnalysis)> {
        let index = self.recording.waits.rows().get(wait.0 as usize)?.pattern.index();
        Some((index, self.patterns.get(index)?))
    }

    fn is_on_lock(&self, wait: WaitIndex) -> bool {
        self.pattern(wait).is_some_and(|(_, pattern)| pattern.is_on_lock())
    }

    /// Returns whether a thread that was woken from a condition can't go on before such a wait is over.
    fn is_on_way_back(&self, wait: WaitIndex) -> bool {
        self.pattern(wait).is_some_and(|(index, pattern)| {
            pattern.is_on_lock() || self.calls.are_on_way_back(index)
        })
    }

    fn condition_wake(&self, wait: WaitIndex) -> ConditionWake {
        let wake = self.pattern(wait).and_then(|(index, _)| self.wakes.get(index));
        wake.copied().unwrap_or(ConditionWake::Other)
    }

    fn has_not_ended(&self, wait: WaitIndex) -> bool {
        let row = self.recording.waits.rows().get(wait.0 as usize);
        row.is_some_and(|row| row.end() == End::StillOff)
    }

    /// Finds the last pieces of a thread's waits. That a wait goes on as the recording ends is believed of
    /// a thread that has waited for the same before and has done more than look in the end, often enough
    /// to be no accident, and once after as many pieces: a thread that is woken for little each time
    /// takes longer now and then.
    fn find_last_pieces(&self, thread: &Thread) -> HashMap<WaitIndex, WaitIndex> {
        let (mut last_pieces, worked) = self.find_all_last_pieces(thread);
        self.drop_accidents(&mut last_pieces, &worked);
        let open = last_pieces.values().copied().find(|&last| self.has_not_ended(last));
        if let Some(open) = open {
            let mut pieces: HashMap<WaitIndex, usize> = HashMap::new();
            for &last in last_pieces.values() {
                *pieces.entry(last).or_default() += 1;
            }
            let of_open = pieces.remove(&open).unwrap_or(0);
            pieces.retain(|&last, _| is_same_wait(self.recording, last, open));
            let is_usual = pieces.values().any(|&of_one| of_one >= of_open);
            if pieces.len() < MIN_GOT || !is_usual {
                last_pieces.retain(|_, last| *last != open);
            }
        }
        last_pieces
    }

    /// Drops the pieces of waits after which the thread did little more than look, where it seldom did: it
    /// may only ever look, and have been interrupted once, or have its own code compiled.
    fn drop_accidents(
        &self,
        last_pieces: &mut HashMap<WaitIndex, WaitIndex>,
        worked: &HashMap<WaitIndex, Nanos>,
    ) {
        let waits = &self.recording.waits;
        let place = |wait: WaitIndex| {
            waits.rows().get(wait.0 as usize).map(|row| waits.waiter(row).user_stack)
        };
        let count = |waits: &mut dyn Iterator<Item = WaitIndex>| {
            let mut counts: HashMap<Option<StackRef>, usize> = HashMap::new();
            waits.for_each(|wait| *counts.entry(place(wait)).or_default() += 1);
            counts
        };
        let got = count(&mut worked.keys().copied());
        let pieces = count(&mut last_pieces.keys().copied());
        last_pieces.retain(|_, last| {
            let of = |counts: &HashMap<_, usize>| counts.get(&place(*last)).copied().unwrap_or(0);
            let is_usual = of(&got) >= MIN_GOT && of(&got) * PIECES_FOR_ONE_GOT >= of(&pieces);
            worked.get(last).is_none_or(|&time| time >= MUCH_CPU_TIME || is_usual)
        });
    }

    /// Finds the last piece of each wait of a thread's, and for how long it was on a CPU after such pieces.
    fn find_all_last_pieces(
        &self,
        thread: &Thread,
    ) -> (HashMap<WaitIndex, WaitIndex>, HashMap<WaitIndex, Nanos>) {
        let (mut last_pieces, mut worked) = (HashMap::new(), HashMap::new());
        let mut next: Option<NextPiece> = None;
        let mut cpu_time = Nanos(0);
        for interval in thread.track.iter().rev() {
            match interval.state {
                State::OnCpu => cpu_time += interval.to.since(interval.from),
                State::Runnable(_) | State::Throttled(_) => {}
                State::Lost | State::Summed(_) => (next, cpu_time) = (None, Nanos(0)),
                State::Blocked(wait) => {
                    // The condition's own lock is taken before the thread looks.
                    if self.is_on_way_back(wait) {
                        continue;
                    }
                    let has_only_looked = next.is_some_and(|next| {
                        cpu_time <= MAX_CPU_TIME
                            && is_same_wait(self.recording, wait, next.wait)
                            && self.was_woken_for_nothing(thread, wait, (interval.to, next.from))
                    });
                    let last = match next {
                        Some(next) if has_only_looked => next.last,
                        Some(_) => Some(wait),
                        None => {
                            (cpu_time > MAX_CPU_TIME || self.has_not_ended(wait)).then_some(wait)
                        }
                    };
                    if last == Some(wait) && !self.has_not_ended(wait) {
                        worked.insert(wait, cpu_time);
                    }
                    if let Some(last) = last.filter(|&last| last != wait) {
                        last_pieces.insert(wait, last);
                    }
                    next = Some(NextPiece { wait, from: interval.from, last });
                    cpu_time = Nanos(0);
                }
            }
        }
        (last_pieces, worked)
    }

    /// Returns whether a wait was ended by a broadcast, and its thread woke nobody afterwards who waited
    /// for what it had done.
    fn was_woken_for_nothing(
        &self,
        thread: &Thread,
        wait: WaitIndex,
        (from, to): (Timestamp, Timestamp),
    ) -> bool {
        let woken = self.wakes_of(thread, (from, to));
        let is_passed_on = |&(_, next): &(Timestamp, WaitIndex)| {
            self.is_by_monitor_exit(next) || self.passed_on.earlier(next) == Some(wait)
        };
        let is_broadcast = match self.condition_wake(wait) {
            ConditionWake::Broadcast => true,
            ConditionWake::ByMonitorExit => {
                woken.iter().any(is_passed_on) || self.passed_on.earlier(wait).is_some()
            }
            ConditionWake::Other => self.passed_on.earlier(wait).is_some(),
        };
        is_broadcast
            && !self.waits_with_its_waker(wait)
            && woken.iter().all(|woken| self.lets_go_of_lock(woken.1) || is_passed_on(woken))
    }

    /// Returns whether the thread that ended a wait let go of a lock: of one that was waited for, or of
    /// what it held as it went to sleep.
    fn lets_go_of_lock(&self, woken: WaitIndex) -> bool {
        let is_by_sleeper = |(index, _): (usize, &_)| self.calls.are_ended_by_sleeper(index);
        self.is_on_way_back(woken) || self.pattern(woken).is_some_and(is_by_sleeper)
    }

    /// Returns whether who ended a wait waits for the same condition at other times.
    fn waits_with_its_waker(&self, wait: WaitIndex) -> bool {
        let waits = &self.recording.waits;
        let wait = self.passed_on.first(wait);
        let row = waits.rows().get(wait.0 as usize);
        let pattern = self.pattern(wait).map(|(_, pattern)| pattern);
        let Some((row, pattern)) = row.zip(pattern) else { return false };
        let Some(waker) = waits.waker(row) else { return false };
        places_of(waits.waiter(row), pattern)
            .any(|place| self.places.contains(&(waker.current.tid, place)))
    }

    fn is_by_monitor_exit(&self, wait: WaitIndex) -> bool {
        self.condition_wake(wait) == ConditionWake::ByMonitorExit
    }

    /// Returns the wakes that a thread made.
    fn wakes_of(
        &self,
        thread: &Thread,
        (from, to): (Timestamp, Timestamp),
    ) -> &[(Timestamp, WaitIndex)] {
        let wakes = self.by_waker.get(&thread.tid).map_or([].as_slice(), Vec::as_slice);
        let first = wakes.partition_point(|&(at, _)| at < from);
        let end = wakes.partition_point(|&(at, _)| at <= to);
        wakes.get(first..end).unwrap_or_default()
    }

    /// Finds the wait of whoever ended a wait as it left a monitor, if it had just waited for that
    /// monitor's condition itself.
    fn find_waiter_that_passed_on(&self, wait: WaitIndex) -> Option<WaitIndex> {
        if !self.is_by_monitor_exit(wait) {
            return None;
        }
        let waits = &self.recording.waits;
        let row = waits.rows().get(wait.0 as usize)?;
        let (waker, at) = (waits.waker(row)?.current.tid, row.woken_at()?);
        let is_on_lock = |wait| self.is_on_lock(wait);
        find_wait_before(self.timeline, (waker, at), MAX_CPU_TIME, is_on_lock)
            .filter(|&earlier| self.is_by_monitor_exit(earlier))
    }
}
