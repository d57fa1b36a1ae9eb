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
use offwake_recording::units::Nanos;

use crate::{
    blame::{BlameEntryKind, BlameKind, BlamePart, Chains, Reason, StackPairId},
    timeline::ThreadIndex,
};

use super::{
    meaning::{Meanings, SharedMeaning},
    programs::{ProgramId, Programs},
};

/// What the last thread of a chain did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ChainEnd {
    pub(super) kind: BlameEntryKind,
    pub(super) reason: Option<Reason>,
}

/// What nodes have to have in common to be one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct NodeKey {
    pub(super) program: ProgramId,
    pub(super) slept: Option<SharedMeaning>,
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
    /// Who had the CPU that the threads waited for, and for how long.
    pub(super) holders: BTreeMap<Option<ProgramId>, Nanos>,
    pub(super) children: IndexMap<NodeKey, Node, foldhash::fast::RandomState>,
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
    fn add(&mut self, thread: ThreadIndex, time: Nanos) {
        self.time += time;
        *self.threads.entry(thread).or_default() += time;
    }

    /// Adds what another node is about that means the same.
    pub(super) fn merge(&mut self, other: Self) {
        self.time += other.time;
        for (thread, time) in other.threads {
            *self.threads.entry(thread).or_default() += time;
        }
        for (stack, time) in other.work {
            *self.work.entry(stack).or_default() += time;
        }
        for (holder, time) in other.holders {
            *self.holders.entry(holder).or_default() += time;
        }
        for (key, child) in other.children {
            self.children.entry(key).or_default().merge(child);
        }
    }

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

/// A thread on a chain, and how it slept.
pub(super) struct ChainStep {
    pub(super) thread: ThreadIndex,
    pub(super) program: ProgramId,
    pub(super) slept: Option<SharedMeaning>,
}

/// Returns the threads of the chain that a part is about, from the wait on.
pub(super) fn chain_steps(
    part: &BlamePart,
    chains: &Chains,
    programs: &Programs<'_>,
    meanings: &mut Meanings<'_>,
) -> Vec<ChainStep> {
    let hops = chains.hops(part.chain);
    // How a thread slept is told by the hop that woke it.
    let slept = hops.iter().skip(1).map(|next| next.slept).chain([part.slept]);
    (hops.iter().zip(slept))
        .map(|(hop, slept)| ChainStep {
            thread: hop.thread.thread,
            program: programs.program_under_name(hop.thread),
            slept: meanings.sleep(slept),
        })
        .collect()
}

/// Adds a part of the blame of a wait to the tree of the wait's root.
pub(super) fn add_part(
    root: &mut Node,
    (own_program, own_sleep): (ProgramId, &SharedMeaning),
    waiter: ThreadIndex,
    part: &BlamePart,
    end: ChainEnd,
    steps: Vec<ChainStep>,
    programs: &Programs<'_>,
) {
    root.add(waiter, part.time);
    if steps.is_empty() {
        // What ended the wait is no thread: the waiter itself ends the chain.
        let key = NodeKey { program: own_program, slept: None, end: Some(end) };
        return root.children.entry(key).or_default().add(waiter, part.time);
    }
    let mut node = root;
    let mut group = (own_program, Some(own_sleep.clone()));
    let last = steps.len() - 1;
    for (n, ChainStep { thread, program, slept }) in steps.into_iter().enumerate() {
        let is_last = n == last;
        // Threads that wait for each other in the same function are one group: who comes first in
        // a queue for a lock waits for the holder, and all others wait for those before them.
        if !is_last && slept.is_some() && group == (program, slept.clone()) {
            // Its wait is shown already, as one of the group's own.
            continue;
        }
        let key = NodeKey { program, slept: slept.clone(), end: is_last.then_some(end) };
        group = (program, slept);
        node = node.children.entry(key).or_default();
        node.add(thread, part.time);
        if is_last && end.kind == BlameEntryKind::Work {
            *node.work.entry(part.stack).or_default() += part.time;
        }
    }
    if let BlameKind::CpuQueue { holder, .. } = part.kind {
        let holder = holder.map(|thread| programs.program_of_thread(thread));
        *node.holders.entry(holder).or_default() += part.time;
    }
}
