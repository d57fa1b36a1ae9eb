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
use offwake_recording::units::{Nanos, Tgid};

use crate::{
    blame::{BlameEntryKind, BlamePart, Reason, StackPairId},
    timeline::{ThreadIndex, Timeline},
};

use super::{meaning::SharedMeaning, programs::ProgramId};

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

/// Returns how many threads have any of some time.
pub(super) fn count_threads(times: &BTreeMap<ThreadIndex, Nanos>) -> u64 {
    times.values().filter(|&&time| time > Nanos(0)).count() as u64
}

impl Node {
    /// Returns the processes of the threads that took most of the time.
    pub(super) fn processes(&self, timeline: &Timeline) -> BTreeSet<Tgid> {
        let lives = self.main_threads().into_iter().filter_map(|thread| timeline.thread(thread));
        lives.map(|life| life.tgid).collect()
    }

    pub(super) fn add(&mut self, thread: ThreadIndex, time: Nanos) {
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

/// Returns what the last thread of a part's chain did.
pub(super) fn chain_end(part: &BlamePart) -> ChainEnd {
    let (kind, reason) = BlameEntryKind::from_blame(part.kind);
    ChainEnd { kind, reason }
}
