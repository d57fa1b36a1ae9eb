//! Chains of waits that mean the same, added up as a tree.
//!
//! ```text
//! waits of postgres in LockAcquire      root
//! ├── postgres waits for its client     node: a program, and how it slept
//! │   └── python3 cron.py: timer        node that ends chains
//! └── postgres: work                    node that ends chains
//! ```

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
};

use indexmap::IndexMap;
use offwake_recording::{SocketRole, units::Nanos};

use crate::{
    blame::{BlamePart, Chains, FrameEvidence, Hop, Sleep, SleepId, StackPairId, cause::Cause},
    report::{BlameEntryKind, Label},
    timeline::ThreadIndex,
};

use super::{meaning::KernelWait, programs::ProgramId};

/// How threads slept, by its meaning.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SleepMeaning {
    pub(super) cause: Cause,
    pub(super) label: Option<Label>,
    pub(super) role: Option<SocketRole>,
    pub(super) kernel: Option<KernelWait>,
    pub(super) evidence: FrameEvidence,
}

/// What the last thread of a chain did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ChainEnd {
    pub(super) kind: BlameEntryKind,
    pub(super) reason: Option<&'static str>,
    /// Who had the CPU that the thread waited for.
    pub(super) holder: Option<ProgramId>,
}

/// What nodes have to have in common to be one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct NodeKey {
    pub(super) program: ProgramId,
    pub(super) slept: Option<SleepMeaning>,
    pub(super) end: Option<ChainEnd>,
}

/// Threads of one program that did the same at the same place of a chain.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) time: Nanos,
    /// The threads, and how much of the time each took.
    pub(super) threads: BTreeMap<ThreadIndex, Nanos>,
    /// The time in each stack, of work.
    pub(super) work: HashMap<StackPairId, Nanos>,
    pub(super) children: IndexMap<NodeKey, Node>,
}

/// Threads that together took this part of the time are named, the others are not.
const NAMED_SHARE: f64 = 0.9;

/// Returns the threads that took most of the time.
pub(super) fn main_threads(threads: &BTreeMap<ThreadIndex, Nanos>) -> BTreeSet<ThreadIndex> {
    let all: Nanos = threads.values().copied().sum();
    let mut by_time: Vec<(ThreadIndex, Nanos)> = threads.iter().map(|(&id, &t)| (id, t)).collect();
    by_time.sort_by_key(|&(thread, time)| (Reverse(time), thread));
    let mut named = Nanos(0);
    (by_time.into_iter())
        .take_while(|&(_, time)| {
            let is_enough = named.0 as f64 >= all.0 as f64 * NAMED_SHARE && named > Nanos(0);
            named += time;
            !is_enough
        })
        .map(|(thread, _)| thread)
        .collect()
}

impl Node {
    /// Returns the threads that took most of the time.
    pub(super) fn main_threads(&self) -> BTreeSet<ThreadIndex> {
        main_threads(&self.threads)
    }

    /// Returns the children, the one with the most time first.
    pub(super) fn children_by_time(&self) -> Vec<(&NodeKey, &Self)> {
        let mut children: Vec<_> = self.children.iter().collect();
        // Stable: equal ones stay in the order in which they were met.
        children.sort_by_key(|(_, node)| Reverse(node.time));
        children
    }
}

/// What a tree needs to know of threads and of how they slept.
pub(super) trait Describer {
    fn program(&self, thread: ThreadIndex) -> ProgramId;
    fn sleep(&mut self, id: SleepId) -> Option<SleepMeaning>;
}

/// Adds a part of the blame of a wait to the tree of the wait's root.
pub(super) fn add_part(
    root: &mut Node,
    (own_program, own_sleep): (ProgramId, &SleepMeaning),
    waiter: ThreadIndex,
    part: &BlamePart,
    end: ChainEnd,
    chains: &Chains,
    describer: &mut impl Describer,
) {
    root.time += part.time;
    *root.threads.entry(waiter).or_default() += part.time;
    let hops = chains.hops(part.chain);
    let mut node = root;
    let mut group = (own_program, Some(own_sleep.clone()));
    for (n, Hop { thread, .. }) in hops.iter().enumerate() {
        let is_last = n + 1 == hops.len();
        // How a thread slept is told by the hop that woke it.
        let slept = hops.get(n + 1).map_or(part.slept, |next| next.slept);
        let program = describer.program(thread.thread);
        let slept = describer.sleep(slept);
        // Threads that wait for each other in the same function are one group: who comes first in
        // a queue for a lock waits for the holder, and all others wait for those before them.
        if !is_last && slept.is_some() && group == (program, slept.clone()) {
            // Its wait is shown already, as one of the group's own.
            continue;
        }
        let key = NodeKey { program, slept: slept.clone(), end: is_last.then_some(end) };
        group = (program, slept);
        node = node.children.entry(key).or_default();
        node.time += part.time;
        *node.threads.entry(thread.thread).or_default() += part.time;
        if is_last && end.kind == BlameEntryKind::Work {
            *node.work.entry(part.stack).or_default() += part.time;
        }
    }
    if hops.is_empty() {
        // What ended the wait is no thread: the waiter itself ends the chain.
        let key = NodeKey { program: describer.program(waiter), slept: None, end: Some(end) };
        let own = node.children.entry(key).or_default();
        own.time += part.time;
        *own.threads.entry(waiter).or_default() += part.time;
    }
}

/// Returns how a sleep is grouped.
pub(super) fn sleep_meaning(
    sleep: &Sleep,
    label: Option<Label>,
    kernel: Option<KernelWait>,
) -> SleepMeaning {
    SleepMeaning { cause: sleep.cause, label, role: sleep.role, kernel, evidence: sleep.evidence }
}
