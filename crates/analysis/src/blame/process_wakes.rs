//! The wakes between the processes of event loops and others: who asked whom, and who answered.
//!
//! ```text
//! loop    --send on F-----------------------..poll..[
//!              | a wake: the ask                   ^ a wake: the answer
//! server  .....[ works                       ------+
//! ```
//!
//! A send that wakes nobody leaves no record: the server was awake.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::OnceLock,
};

use offwake_recording::{
    Pattern, Recording,
    units::{Tgid, Timestamp},
};

use crate::timeline::{ThreadIndex, WaitIndex};

use super::{
    ConnectionSide, FrameEvidence,
    cause::Cause,
    connection_sides::ready_or_named,
    open_asks::{KnownAsk, OpenAsks},
    pattern_analysis::PatternAnalysis,
    wake_source::PatternWakeSource,
    work_waits::WorkWait,
};

/// How many wakes are gone through in search of one: an ask is among the newest of them, unless
/// very many are under way at once.
pub(super) const MAX_SEARCHED: usize = 4_096;

/// How many wakes to either side of an ask are compared with it: most clients show within a few
/// answers that they are clients.
const MAX_COMPARED: usize = 16;

/// One wake of a thread of a process by a thread of another.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessWake {
    pub(super) at: Timestamp,
    /// The wait that it ended.
    pub(super) wait: WaitIndex,
}

/// The wakes by the threads of a process.
#[derive(Debug, Default)]
pub(super) struct WakesByProcess {
    /// By the process of the woken, in the order of time.
    pub(super) by_woken: BTreeMap<Tgid, Vec<ProcessWake>>,
    /// What was asked with them; made when it is needed first.
    pub(super) asks: OnceLock<OpenAsks>,
}

/// The wakes between processes of which one has an event loop.
#[derive(Debug, Default)]
pub(super) struct ProcessWakes {
    /// By the waker's process.
    pub(super) wakes: HashMap<Tgid, WakesByProcess>,
    /// The processes with loops that only ever served their clients.
    serving_alone: HashSet<Tgid>,
    /// Who answers each process with a loop.
    pub(super) answering: HashMap<Tgid, Answering>,
}

/// Who answers a process with a loop.
#[derive(Debug, Default)]
pub(super) struct Answering {
    /// Of each pattern that answers end, the last wait: by then the thread that ended it is known.
    pub(super) last_of_patterns: Vec<WaitIndex>,
    /// The threads that ended these; found when they are needed first.
    pub(super) threads: OnceLock<Vec<ThreadIndex>>,
}

impl ProcessWakes {
    pub(super) fn new(recording: &Recording, patterns: &[PatternAnalysis]) -> Self {
        let waits = &recording.waits;
        let with_analysis = || waits.patterns().iter().map(|(_, pattern)| pattern).zip(patterns);
        let with_loops: HashSet<Tgid> = with_analysis()
            .filter(|(_, analysis)| analysis.work_wait.is_among_processes())
            .map(|(pattern, _)| waits.waiters()[pattern.waiter].tgid)
            .collect();
        if with_loops.is_empty() {
            return Self::default();
        }
        let processes: Vec<Option<(Tgid, Tgid)>> = with_analysis()
            .map(|(pattern, analysis)| {
                let waker = analysis.waker()?.tgid;
                let woken = waits.waiters()[pattern.waiter].tgid;
                let is_kept = match waker == woken {
                    true => with_loops.contains(&woken) && is_handed_job(analysis),
                    false => with_loops.contains(&waker) || with_loops.contains(&woken),
                };
                is_kept.then_some((waker, woken))
            })
            .collect();
        let mut wakes: HashMap<Tgid, WakesByProcess> = HashMap::new();
        for (row, n) in waits.rows().iter().zip(0..) {
            let between = processes.get(row.pattern.index()).copied().flatten();
            if let (Some((waker, woken)), Some(at)) = (between, row.woken_at()) {
                let of_pair = wakes.entry(waker).or_default().by_woken.entry(woken).or_default();
                of_pair.push(ProcessWake { at, wait: WaitIndex(n) });
            }
        }
        for of_pair in wakes.values_mut().flat_map(|by_process| by_process.by_woken.values_mut()) {
            of_pair.sort_unstable_by_key(|wake| (wake.at, wake.wait));
        }
        let asking = find_askers(&with_loops, recording, patterns);
        let serving_alone = with_loops.difference(&asking).copied().collect();
        let answering = find_answers(recording, patterns);
        Self { wakes, serving_alone, answering }
    }

    /// Returns whether a process with a loop was seen to do nothing but serve its clients: nobody else
    /// woke it, and it woke nobody else.
    pub(super) fn serves_alone(&self, process: Tgid) -> bool {
        self.serving_alone.contains(&process)
    }

    /// Returns the wakes in `from..to`, the newest first.
    pub(super) fn newest_first(
        &self,
        (waker, woken): (Tgid, Tgid),
        (from, to): (Timestamp, Timestamp),
    ) -> impl Iterator<Item = ProcessWake> + '_ {
        let all = self.between((waker, woken));
        let end = all.partition_point(|wake| wake.at < to);
        let until_to = all.get(..end).unwrap_or_default();
        until_to.iter().rev().take(MAX_SEARCHED).take_while(move |wake| wake.at >= from).copied()
    }

    /// Returns the last few wakes before `at`, and the first few since.
    pub(super) fn around(&self, pair: (Tgid, Tgid), at: Timestamp) -> &[ProcessWake] {
        let all = self.between(pair);
        let place = all.partition_point(|wake| wake.at < at);
        let end = place.saturating_add(MAX_COMPARED).min(all.len());
        all.get(place.saturating_sub(MAX_COMPARED)..end).unwrap_or_default()
    }

    /// Returns the wakes of one process by another; by itself, if its threads hand each other jobs.
    pub(super) fn between(&self, (waker, woken): (Tgid, Tgid)) -> &[ProcessWake] {
        let of_pair = self.wakes.get(&waker).and_then(|all| all.by_woken.get(&woken));
        of_pair.map_or(&[], Vec::as_slice)
    }

    /// Returns whether an ask of a process is one of those that are gone through of all before `to`.
    pub(super) fn is_among_newest(&self, process: Tgid, known: &KnownAsk, to: Timestamp) -> bool {
        let later = known.later_wakes as usize;
        later < MAX_SEARCHED || {
            let all = self.between((process, known.callee));
            let end = all.partition_point(|wake| wake.at < to);
            later.saturating_sub(all.len() - end) < MAX_SEARCHED
        }
    }
}

/// Finds the waits that stand for those which answers end, by the process that waits.
fn find_answers(recording: &Recording, patterns: &[PatternAnalysis]) -> HashMap<Tgid, Answering> {
    let waits = &recording.waits;
    let is_answer =
        |it: &PatternAnalysis| matches!(it.work_wait, WorkWait::Answer | WorkWait::OwnProcess);
    let is_answer: Vec<bool> = patterns.iter().map(is_answer).collect();
    let mut last: Vec<Option<WaitIndex>> = vec![None; patterns.len()];
    for (row, n) in waits.rows().iter().zip(0..) {
        let place = row.pattern.index();
        if is_answer.get(place) == Some(&true)
            && row.woken_at().is_some()
            && let Some(last) = last.get_mut(place)
        {
            *last = Some(WaitIndex(n));
        }
    }
    let mut answering: HashMap<Tgid, Answering> = HashMap::new();
    for ((_, pattern), last) in waits.patterns().iter().zip(last) {
        let of_process = waits.waiters()[pattern.waiter].tgid;
        answering.entry(of_process).or_default().last_of_patterns.extend(last);
    }
    answering
}

/// Finds the processes with loops that may have asked somebody: another process, a thread of their own, or
/// one at the end of a connection whose ends can't be told apart.
fn find_askers(
    with_loops: &HashSet<Tgid>,
    recording: &Recording,
    patterns: &[PatternAnalysis],
) -> HashSet<Tgid> {
    let waits = &recording.waits;
    let mut askers = HashSet::new();
    for ((_, pattern), analysis) in waits.patterns().iter().zip(patterns) {
        let woken = waits.waiters()[pattern.waiter].tgid;
        // Who sent what `ksoftirqd` delivered may be any process that was seen at the other end.
        if let Some(PatternWakeSource::Softirqd(_)) = analysis.source {
            note_delivered(&mut askers, with_loops, recording, pattern, analysis.side);
            continue;
        }
        let Some(waker) = analysis.waker().map(|waker| waker.tgid) else { continue };
        if waker == woken {
            if is_handed_job(analysis) {
                askers.insert(woken);
            }
            continue;
        }
        if with_loops.contains(&woken) && analysis.side != ConnectionSide::Serving {
            askers.insert(woken);
        }
        if with_loops.contains(&waker) && analysis.side != ConnectionSide::Asking {
            askers.insert(waker);
        }
    }
    askers
}

/// Notes who may have asked somebody by a packet that `ksoftirqd` delivered: the loop to which it came, unless
/// it was a request to that loop, and every process with a loop that holds the socket's other end.
fn note_delivered(
    askers: &mut HashSet<Tgid>,
    with_loops: &HashSet<Tgid>,
    recording: &Recording,
    pattern: &Pattern,
    side: ConnectionSide,
) {
    let waits = &recording.waits;
    let waiter = &waits.waiters()[pattern.waiter];
    if side != ConnectionSide::Serving && with_loops.contains(&waiter.tgid) {
        askers.insert(waiter.tgid);
    }
    if side == ConnectionSide::Asking {
        return;
    }
    let call = &waits.calls()[pattern.call];
    let ready = pattern.wake.and_then(|(waker, _)| waits.wakers()[waker].ready);
    let own = ready_or_named(ready, call.syscall.as_ref(), call.polled_fd, waiter.file);
    let socket = own.and_then(|(_, file)| recording.files.socket(file));
    let holders = socket.into_iter().flat_map(|socket| &socket.peers).map(|peer| peer.tgid);
    askers.extend(holders.filter(|holder| with_loops.contains(holder)));
}

/// Returns whether a thread may have been handed a job. Threads of a runtime's pool wake each other
/// all the time: of those it is known without an ask who handed over what.
pub(super) fn is_handed_job(analysis: &PatternAnalysis) -> bool {
    analysis.evidence == FrameEvidence::None
        && matches!(
            analysis.cause,
            Cause::Futex
                | Cause::Eventfd
                | Cause::Pipe
                | Cause::Mqueue
                | Cause::SysvMsg
                | Cause::Socket
        )
        && !analysis.is_on_lock()
}
