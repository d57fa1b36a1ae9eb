//! Chains of hops, each stored once.

use std::collections::HashMap;

use crate::timeline::ThreadIndex;
use offwake_recording::{Recording, StackRef};

/// Identifies a chain of hops within one [`Paths`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainId(u32);

impl ChainId {
    /// The chain without any hop.
    pub const ROOT: Self = Self(0);
}

/// Identifies a pair of a user and a kernel stack within one [`StackPairs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackPairId(pub(super) u32);

impl StackPairId {
    /// No stacks at all.
    pub const NONE: Self = Self(0);
}

/// A thread that was waited for, and the stack with which it ended the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hop {
    /// The thread that was waited for.
    pub thread: ThreadIndex,
    /// The index of its name at that time in the thread's names.
    pub name: Option<u32>,
    /// The thread's stacks at the wake.
    pub stack: StackPairId,
}

/// All chains that were walked, as a tree: each chain refers to the one that is a hop shorter.
///
/// ```text
/// waiter ── hop ── hop ── hop      ids: ROOT ── 1 ── 2 ── 3
///                    └─── hop                        └── 4
/// ```
#[derive(Clone, Debug)]
pub struct Chains {
    nodes: Vec<(ChainId, Option<Hop>)>,
    ids: HashMap<(ChainId, Hop), ChainId, foldhash::fast::RandomState>,
}

impl Default for Chains {
    fn default() -> Self {
        Self { nodes: vec![(ChainId::ROOT, None)], ids: HashMap::default() }
    }
}

impl Chains {
    /// Returns the chain that is one hop longer than `path`.
    pub(super) fn extend(&mut self, path: ChainId, hop: Hop) -> ChainId {
        *self.ids.entry((path, hop)).or_insert_with(|| {
            self.nodes.push((path, Some(hop)));
            ChainId(u32::try_from(self.nodes.len() - 1).unwrap_or(u32::MAX))
        })
    }

    /// Adds another's chains; the result translates their ids.
    #[must_use]
    pub fn import(&mut self, other: &Self) -> ImportedChains {
        let mut names = vec![ChainId::ROOT];
        for &(before, hop) in other.nodes.iter().skip(1) {
            // A path's beginning was there before it.
            let before = names.get(before.0 as usize).copied().unwrap_or(ChainId::ROOT);
            names.push(hop.map_or(ChainId::ROOT, |hop| self.extend(before, hop)));
        }
        ImportedChains(names)
    }

    /// Returns the hops of a chain, from its far end back to the wait.
    pub fn hops_back(&self, path: ChainId) -> impl Iterator<Item = Hop> + '_ {
        let mut at = path;
        std::iter::from_fn(move || {
            let &(before, hop) = self.nodes.get(at.0 as usize)?;
            at = before;
            hop
        })
    }

    /// Returns the hops of a chain, from the wait on.
    #[must_use]
    pub fn hops(&self, path: ChainId) -> Vec<Hop> {
        let mut hops: Vec<Hop> = self.hops_back(path).collect();
        hops.reverse();
        hops
    }
}

/// Translates the ids of one [`Paths`] to those of another.
#[derive(Debug)]
pub struct ImportedChains(Vec<ChainId>);

impl ImportedChains {
    /// Returns the id that a chain has there.
    #[must_use]
    pub fn translate(&self, path: ChainId) -> ChainId {
        self.0.get(path.0 as usize).copied().unwrap_or(ChainId::ROOT)
    }
}

/// The distinct pairs of a user and a kernel stack in a recording.
#[derive(Debug, Default)]
pub struct StackPairs {
    pairs: Vec<(StackRef, StackRef)>,
    waiters: Vec<StackPairId>,
    wakers: Vec<StackPairId>,
    samples: Vec<StackPairId>,
}

impl StackPairs {
    pub(super) fn new(recording: &Recording) -> Self {
        let none = (StackRef::NotTaken, StackRef::NotTaken);
        let mut pairs = vec![none];
        let mut ids = HashMap::<_, _, foldhash::fast::RandomState>::default();
        ids.insert(none, StackPairId::NONE);
        let mut id = |user: StackRef, kernel: StackRef| {
            *ids.entry((user, kernel)).or_insert_with(|| {
                pairs.push((user, kernel));
                StackPairId(u32::try_from(pairs.len() - 1).unwrap_or(u32::MAX))
            })
        };
        let waits = &recording.waits;
        let of_waiters =
            waits.waiters().iter().map(|(_, w)| id(w.user_stack, w.kernel_stack)).collect();
        let of_wakers =
            waits.wakers().iter().map(|(_, w)| id(w.user_stack, w.kernel_stack)).collect();
        let of_samples =
            recording.samples.iter().map(|s| id(s.user_stack, s.kernel_stack)).collect();
        Self { pairs, waiters: of_waiters, wakers: of_wakers, samples: of_samples }
    }

    /// Returns the user stack and the kernel stack of a pair.
    #[must_use]
    pub fn get(&self, id: StackPairId) -> (StackRef, StackRef) {
        self.pairs.get(id.0 as usize).copied().unwrap_or((StackRef::NotTaken, StackRef::NotTaken))
    }

    pub(super) fn waiter(&self, place: usize) -> StackPairId {
        self.waiters.get(place).copied().unwrap_or(StackPairId::NONE)
    }

    pub(super) fn waker(&self, place: usize) -> StackPairId {
        self.wakers.get(place).copied().unwrap_or(StackPairId::NONE)
    }

    pub(super) fn sample(&self, place: usize) -> StackPairId {
        self.samples.get(place).copied().unwrap_or(StackPairId::NONE)
    }
}
