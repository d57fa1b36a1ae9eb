//! Waits that had not ended when the window did.
//!
//! A thread that sleeps to the end is either stuck or has nothing to do. It is stuck if something
//! says so: it holds out for a lock, for the answer of a server, for a disk or inside the kernel;
//! or nothing else happened in its process at all.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use indexmap::IndexMap;
use offwake_recording::{
    FileKind, Filesystem, Recording, SocketRole,
    units::{Nanos, Tid},
};

use crate::{
    blame::{
        FrameEvidence,
        cause::{Cause, WaitedOn},
    },
    text,
    timeline::{ThreadIndex, Timeline},
    waited_on_entry,
};

use super::{
    chain_words::{ChainTeller, Position, UNKNOWN_HOLDER},
    found::{Coverage, Found},
    kernel_waits::KernelWait,
    last_owners,
    meaning::SleepMeaning,
    model::{Finding, FindingCause, FindingHop, FindingKind, FindingLine},
    open_chains::{Awaited, FifoEnd, OpenChain, OpenWaitGraph, Owner},
    programs::ProgramId,
    root::{RootKey, WaitRoot},
    write::{FindingWriter, describe_hop, describe_hop_without_function, function_of_hop},
};

/// An open wait this long is a finding, whatever the window is.
const LONG: Nanos = Nanos(1_000_000_000);
/// The part of the window that does as well, where the window is short: so long are the waits whose
/// owners are looked up (`MIN_SHARE` in `profiler/src/lock_owners`).
const MIN_SHARE: f64 = 0.1;
/// The part of a short window from which on an open wait comes before what took longer. The end of a
/// window cuts off something of nearly every target: of five requests of 0.2 s in a second, one is open.
const LEADING_SHARE: f64 = 0.4;

/// Returns how long an open wait has to be to come before what took longer.
pub(super) fn shortest_leading(window: Nanos) -> Nanos {
    LONG.min(share_of(window, LEADING_SHARE))
}

fn share_of(window: Nanos, share: f64) -> Nanos {
    Nanos((window.0 as f64 * share) as u64)
}

/// The open waits that mean the same.
#[derive(Clone, Default)]
pub(super) struct OpenWait {
    threads: BTreeMap<ThreadIndex, ThreadWait>,
    state: char,
}

/// The open wait of one thread.
#[derive(Clone, Default)]
struct ThreadWait {
    time: Nanos,
    waited_on: Vec<WaitedOn>,
}

/// All open waits of the target that are not idle.
#[derive(Default)]
pub(super) struct OpenWaits(IndexMap<RootKey, OpenWait>);

impl OpenWait {
    /// How long all threads have waited.
    pub(super) fn time(&self) -> Nanos {
        self.threads.values().map(|wait| wait.time).sum()
    }

    /// How long the first of them has waited.
    pub(super) fn longest(&self) -> Nanos {
        self.threads.values().map(|wait| wait.time).max().unwrap_or_default()
    }

    /// The threads that wait.
    pub(super) fn threads(&self) -> impl Iterator<Item = ThreadIndex> + '_ {
        self.threads.keys().copied()
    }

    /// What they wait on, each thing once.
    pub(super) fn waited_on(&self) -> Vec<WaitedOn> {
        let mut distinct = Vec::new();
        for &on in self.threads.values().flat_map(|wait| &wait.waited_on) {
            if !distinct.contains(&on) {
                distinct.push(on);
            }
        }
        distinct
    }
}

impl OpenWaits {
    pub(super) fn insert(
        &mut self,
        key: RootKey,
        thread: ThreadIndex,
        (state, waited_on): (char, Option<WaitedOn>),
        time: Nanos,
    ) {
        let open = self.0.entry(key).or_default();
        open.state = state;
        let wait = open.threads.entry(thread).or_default();
        wait.time += time;
        wait.waited_on.extend(waited_on);
    }

    /// Adds those of later waits.
    pub(super) fn append(&mut self, later: Self) {
        for (key, more) in later.0 {
            let open = self.0.entry(key).or_default();
            open.state = more.state;
            for (thread, more) in more.threads {
                let wait = open.threads.entry(thread).or_default();
                wait.time += more.time;
                wait.waited_on.extend(more.waited_on);
            }
        }
    }

    /// Takes out threads of which something else is told.
    pub(super) fn remove_threads(&mut self, threads: &BTreeSet<ThreadIndex>) {
        for open in self.0.values_mut() {
            open.threads.retain(|thread, _| !threads.contains(thread));
        }
        self.0.retain(|_, open| !open.threads.is_empty());
    }
}

/// Threads that are stuck, and mean the same by it.
pub(super) struct StuckThreads {
    key: RootKey,
    wait: OpenWait,
    /// The chain of one of them. All of them wait for the same.
    chain: OpenChain,
    proof: Proof,
}

/// What says that threads are stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// What they wait for.
    Wait,
    /// That nothing else happened in the whole target. So it is of a server without requests.
    Silence,
}

impl StuckThreads {
    /// How long all of them have waited.
    pub(super) fn time(&self) -> Nanos {
        self.wait.time()
    }

    /// The threads.
    pub(super) fn threads(&self) -> impl Iterator<Item = ThreadIndex> + '_ {
        self.wait.threads()
    }

    /// What their wait means.
    pub(super) fn meaning(&self) -> &SleepMeaning {
        &self.key.1
    }

    /// Returns whether their chain names the thread that serves the filesystem that they wait for.
    pub(super) fn leads_to_filesystem(&self) -> bool {
        self.chain.links.first().is_some_and(|link| link.awaited == Awaited::Filesystem)
    }

    /// The filesystem on whose disk they wait, or which is frozen, if that is known.
    pub(super) fn filesystem<'r>(&self, recording: &'r Recording) -> Option<&'r Filesystem> {
        recording.filesystems.get(&self.meaning().filesystem?)
    }

    /// The program that they ran.
    pub(super) fn program(&self) -> ProgramId {
        self.key.0
    }

    /// Their waits.
    pub(super) fn wait(&self) -> &OpenWait {
        &self.wait
    }
}

/// Finds the open waits of threads that are stuck, by what they mean and whom they wait for. `ended` are the
/// waits that have ended.
pub(super) fn find_stuck(
    open: &OpenWaits,
    ended: &IndexMap<RootKey, WaitRoot>,
    graph: &OpenWaitGraph<'_>,
    timeline: &Timeline,
    window: Nanos,
    is_anything_else: bool,
) -> Vec<StuckThreads> {
    let least = LONG.min(share_of(window, MIN_SHARE));
    let mut stuck = Vec::new();
    for (key, wait) in &open.0 {
        let is_dead = !is_anything_else && is_of_first_thread(wait, timeline);
        for (chain, wait) in split_by_owner(wait, graph) {
            let is_held_up = chain
                .links
                .first()
                .is_some_and(|it| it.awaited.is_lock() || it.awaited == Awaited::AnswerToLoop)
                || wait.threads().all(|thread| graph.waits_for_room(thread))
                || wait.threads().all(|thread| graph.waits_for_held_up_child(thread))
                || key.1.kernel == Some(KernelWait::OpenFifo)
                    && wait.threads().all(|thread| graph.waits_for_reader(thread));
            let proof = match (is_stuck(key, &wait) || is_held_up, is_dead) {
                (true, _) => Proof::Wait,
                (false, true) => Proof::Silence,
                (false, false) => continue,
            };
            let least = match proof {
                Proof::Wait => least,
                // That nothing happened says little of a moment: a server without requests has many.
                Proof::Silence => shortest_leading(window),
            };
            if wait.longest() >= least && !is_usual(key, &wait, ended) {
                stuck.push(StuckThreads { key: key.clone(), wait, chain, proof });
            }
        }
    }
    stuck
}

/// Returns whether waits are no longer than others were that meant the same and have ended, and take no more
/// time than these: the window's end has cut off the next ones. What these waited for is told of them.
///
/// ```text
/// clients of a pool  |--- 1.6 s ---||--- 1.6 s ---||-- 1.3 s, open
/// ```
fn is_usual(
    (program, meaning): &RootKey,
    open: &OpenWait,
    ended: &IndexMap<RootKey, WaitRoot>,
) -> bool {
    let wanted = meaning.without_role();
    ended.iter().any(|((of, meaning), root)| {
        of == program
            && root.longest >= open.longest()
            && root.node.time >= open.time()
            && meaning.without_role() == wanted
    })
}

/// Divides threads by who could end their waits; those of which that is not known stay together.
fn split_by_owner(wait: &OpenWait, graph: &OpenWaitGraph<'_>) -> Vec<(OpenChain, OpenWait)> {
    let mut parts: Vec<(OpenChain, OpenWait)> = Vec::new();
    for (&thread, of_thread) in &wait.threads {
        let chain = graph.follow(thread);
        let known = parts.iter().position(|(part, _)| part.links.first() == chain.links.first());
        let place = known.unwrap_or_else(|| {
            parts.push((chain, OpenWait { state: wait.state, ..OpenWait::default() }));
            parts.len() - 1
        });
        if let Some((_, part)) = parts.get_mut(place) {
            part.threads.insert(thread, of_thread.clone());
        }
    }
    parts
}

/// Returns whether something says that threads are stuck rather than idle.
fn is_stuck((_, meaning): &RootKey, wait: &OpenWait) -> bool {
    match meaning.cause {
        _ if is_lock(meaning) || wait.state == 'D' => true,
        _ if meaning.kernel.is_some_and(KernelWait::is_of_busy_thread) => true,
        Cause::Disk
        | Cause::PageFault
        | Cause::Memory
        | Cause::KernelLock
        | Cause::FileLock
        | Cause::Throttled
        | Cause::Stopped => true,
        Cause::Socket | Cause::Poll => {
            meaning.role == Some(SocketRole::Asking) || meaning.evidence.is_request()
        }
        _ => false,
    }
}

pub(super) fn is_lock(meaning: &SleepMeaning) -> bool {
    meaning.lock().is_some()
}

/// Returns whether one of the threads is the first of its process.
fn is_of_first_thread(wait: &OpenWait, timeline: &Timeline) -> bool {
    (wait.threads())
        .filter_map(|thread| timeline.thread(thread))
        .any(|thread| thread.tid == Tid(thread.tgid.0))
}

/// Describes the open waits of threads that are stuck.
pub(super) fn describe_stuck(
    stuck: &[StuckThreads],
    teller: ChainTeller<'_>,
    recording: &Recording,
    writer: &mut FindingWriter<'_>,
) -> Vec<Found> {
    (stuck.iter().zip(find_coverage(stuck)))
        .map(|(stuck, coverage)| {
            let finding = describe(stuck, teller, recording, writer);
            let class = teller.class(&stuck.chain, writer);
            Found { coverage, ..Found::new(finding, class) }
        })
        .collect()
}

/// Says that no thread of the waiters' process can go on, if that is so. A wait for a lock says more by itself.
fn describe_own_process(
    wait: &OpenWait,
    meaning: &SleepMeaning,
    share: f64,
    teller: ChainTeller<'_>,
    writer: &mut FindingWriter<'_>,
) -> Option<(String, Vec<FindingLine>)> {
    let timeline = teller.blame.timeline();
    let mut processes = wait.threads().filter_map(|thread| timeline.process_of_thread(thread));
    let process = processes.next().filter(|_| !is_lock(meaning))?;
    let is_only = processes.all(|other| other == process);
    let told = wait.threads().collect();
    is_only.then(|| teller.describe_closed_process(process, &told, share, writer))?
}

/// Finds out which of them longer chains tell of already, those that begin with a hop of another, and which
/// say nothing beside the others.
fn find_coverage(stuck: &[StuckThreads]) -> Vec<Coverage> {
    let mut order: Vec<usize> = (0..stuck.len()).collect();
    order.sort_by_key(|&n| Reverse(stuck[n].chain.threads.len()));
    let mut told: BTreeSet<ThreadIndex> = BTreeSet::new();
    let mut coverage = vec![Coverage::News; stuck.len()];
    for n in order {
        if stuck[n].threads().all(|thread| told.contains(&thread)) {
            coverage[n] = Coverage::ToldByOthers;
        } else {
            told.extend(stuck[n].chain.threads.iter().skip(1));
        }
    }
    // Who waits in silence may wait for those that are known to be stuck.
    if stuck.iter().any(|stuck| stuck.proof == Proof::Wait) {
        for (stuck, coverage) in stuck.iter().zip(&mut coverage) {
            if stuck.proof == Proof::Silence {
                *coverage = Coverage::ToldByOthers;
            }
        }
    }
    coverage
}

fn describe(
    stuck: &StuckThreads,
    teller: ChainTeller<'_>,
    recording: &Recording,
    writer: &mut FindingWriter<'_>,
) -> Finding {
    let StuckThreads { key: (program, meaning), wait, chain, proof } = stuck;
    let (time, longest, waited_on) = (wait.time(), wait.longest(), wait.waited_on());
    let on = match waited_on.as_slice() {
        // An `epoll` of its own has no name that says anything.
        [on @ WaitedOn::File { file, .. }] if file.kind != FileKind::Anonymous => {
            Some(waited_on_entry::waited_on_entry(&recording.files, *on).text)
        }
        _ => None,
    };
    let link = chain.links.first();
    let what = match (link, chain.threads.first()) {
        (Some(link), Some(&thread))
            if link.awaited != Awaited::Answer || meaning.role == Some(SocketRole::Asking) =>
        {
            teller.link(thread, link, Position::First, writer)
        }
        _ => match (meaning.cause, is_lock(meaning), waited_on.len()) {
            (Cause::Futex, true, 2..) => "wait for different locks".to_owned(),
            (Cause::Futex, false, _) if meaning.evidence != FrameEvidence::Sleep => {
                "waits for another thread".to_owned()
            }
            _ => match awaited_fifo_end(wait, meaning, teller) {
                Some(end) => end.describe().to_owned(),
                None => writer.words.sleep(meaning, *program, None, None),
            },
        },
    };
    let function = meaning.label.as_ref().map(|label| label.function.to_string());
    let threads = wait.threads().collect();
    let waiter = FindingHop {
        tid: only_tid(&threads, writer.words.timeline),
        ..writer.words.hop_at_end(*program, &threads, function, what, time)
    };
    let waiter = waiter.with_blocked_loop(meaning.blocked_loop);
    let share = writer.share(time).min(1.0);
    let mut lines = vec![FindingLine {
        depth: 0,
        text: describe_hop_without_function(&waiter),
        function: function_of_hop(&waiter),
        addition: waiter.addition.clone(),
        share,
        is_cause: false,
        detail: format!("≥{longest}"),
    }];
    if let Some(on) = &on {
        let text = format!("it waits at {}", text::terminal(on));
        lines.push(FindingLine::without_function(text, share, false));
    }
    if *proof == Proof::Silence && matches!(meaning.cause, Cause::Poll | Cause::IoUring) {
        let text = "mostly idle, if it serves others: nothing came in for it".to_owned();
        lines.push(FindingLine::without_function(text, share, false));
    }
    let (later, hops) = teller.later_lines(chain, share, writer);
    let unknown = teller.say_unknown_holder(chain, writer);
    // The thread whose lock has a holder that nobody knows.
    let mut at_lock = unknown.and(chain.threads.last().copied());
    let who = match (hops.last(), unknown) {
        (Some(last), Some(unknown)) => format!("{}: {unknown}", describe_hop(last)),
        (Some(last), None) => describe_hop(last),
        (None, _) => match last_owners::name_last_owner(wait, link, teller, recording, writer) {
            Some(who) => {
                lines.push(FindingLine::without_function(who.clone(), share, true));
                if let Some(Owner::Process(process)) = link.map(|link| &link.owner) {
                    // No part of the chain: which of them it is, nobody knows.
                    let told = BTreeSet::new();
                    let closed = teller.describe_closed_process(process.tgid, &told, share, writer);
                    lines.extend(match closed {
                        Some((_, about)) => {
                            let below = |line: FindingLine| FindingLine {
                                depth: line.depth.saturating_add(1),
                                is_cause: false,
                                ..line
                            };
                            about.into_iter().map(below).collect()
                        }
                        None => teller.describe_owner_threads(process.tgid, longest, share, writer),
                    });
                }
                who
            }
            None => {
                let answerers =
                    last_owners::describe_possible_answerers(wait, share, teller, writer);
                let closed = describe_own_process(wait, meaning, share, teller, writer);
                let unknown = last_owners::say_unknown_owner(wait, meaning, teller);
                match (answerers.or(closed), unknown) {
                    (Some((unknown, about)), _) => {
                        lines.extend(about);
                        unknown
                    }
                    (None, Some(unknown)) => {
                        at_lock = wait.threads().next().filter(|_| unknown == UNKNOWN_HOLDER);
                        lines.push(FindingLine::without_function(unknown.to_owned(), share, false));
                        unknown.to_owned()
                    }
                    (None, None) => match teller.list_children(wait.threads(), writer) {
                        Some(children) => {
                            let line =
                                FindingLine::without_function(children.clone(), share, false);
                            lines.push(line);
                            children
                        }
                        None => {
                            lines.iter_mut().for_each(|line| line.is_cause = line.depth == 0);
                            describe_hop(&waiter)
                        }
                    },
                }
            }
        },
    };
    let depth = later.last().map_or(1, |last| last.depth.saturating_add(1));
    lines.extend(later);
    let unknown = unknown.map(|unknown| FindingLine {
        depth,
        ..FindingLine::without_function(unknown.to_owned(), share, false)
    });
    lines.extend(unknown);
    if let Some(at_lock) = at_lock {
        let depth = depth.saturating_add(1);
        lines.extend(teller.describe_possible_deadlock(at_lock, depth, writer));
        lines.extend(teller.describe_possible_holders(at_lock, depth, writer));
    }
    Finding {
        disk: None,
        same_cause_as: None,
        with_same_cause: None,
        kind: FindingKind::StillWaiting,
        share,
        ns: time,
        threads: threads.len() as u64,
        count: threads.len() as u64,
        longest_ns: longest,
        still_waiting: true,
        text: format!("still waiting, ≥{longest}: {}", describe_hop(&waiter)),
        cause: FindingCause {
            kind: "unattributed",
            reason: Some("still_blocked"),
            share,
            ns: time,
            text: who,
        },
        chain: std::iter::once(waiter).chain(hops).collect(),
        lines,
    }
}

/// Returns which end of a FIFO somebody has to open, if all threads wait for the same one.
fn awaited_fifo_end(
    wait: &OpenWait,
    meaning: &SleepMeaning,
    teller: ChainTeller<'_>,
) -> Option<FifoEnd> {
    let mut ends = wait.threads().map(|thread| teller.awaited_fifo_end(thread, meaning));
    let first = ends.next()??;
    ends.all(|end| end == Some(first)).then_some(first)
}

/// Returns the thread's number, if there is only one.
fn only_tid(threads: &BTreeSet<ThreadIndex>, timeline: &Timeline) -> Option<Tid> {
    let only = threads.first().filter(|_| threads.len() == 1)?;
    timeline.thread(*only).map(|life| life.tid)
}
