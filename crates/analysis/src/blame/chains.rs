//! Chains of hops, each stored once.

use std::hash::{Hash, Hasher};

use indexmap::IndexSet;
use offwake_recording::{Recording, StackRef};

use super::SleepId;
use crate::{markers::MarkerPathId, timeline::NamedThread};

/// Identifies a chain of hops within one [`Chains`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainId(pub(super) u32);

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The thread that was waited for, under its name at that time.
    pub thread: NamedThread,
    /// The thread's stacks at the wake.
    pub stack: StackPairId,
    /// How the thread before this one slept until then: the waiter itself before the first hop.
    pub slept: SleepId,
    /// In which ranges of its own the thread was: at the wake, or during what the chain goes on with.
    pub markers: MarkerPathId,
}

/// Hashes what tells most hops apart, in as few steps as will do: every hop of every walk is looked up.
impl Hash for Hop {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { thread, stack, slept, markers } = self;
        state.write_u64(u64::from(thread.thread.0) << 32 | u64::from(stack.0));
        state.write_u64(u64::from(markers.number()) << 32 | slept.index() as u64);
    }
}

/// All chains that were walked, as a tree: each chain refers to the one that is a hop shorter.
///
/// ```text
/// waiter ── hop ── hop ── hop      ids: ROOT ── 1 ── 2 ── 3
///                    └─── hop                        └── 4
/// ```
#[derive(Clone, Debug, Default)]
pub struct Chains {
    /// Each chain as the one that is a hop shorter, and its last hop. The root is not among them.
    links: IndexSet<(ChainId, Hop), foldhash::fast::RandomState>,
}

impl Chains {
    /// Returns the chain that is one hop longer than `chain`.
    pub(super) fn extend(&mut self, chain: ChainId, hop: Hop) -> ChainId {
        let (index, _) = self.links.insert_full((chain, hop));
        ChainId(u32::try_from(index + 1).unwrap_or(u32::MAX))
    }

    /// Returns a chain's last hop, and the chain that is a hop shorter; none for [`ChainId::ROOT`].
    #[must_use]
    pub fn last_hop(&self, chain: ChainId) -> Option<(ChainId, Hop)> {
        self.links.get_index((chain.0 as usize).checked_sub(1)?).copied()
    }

    /// Returns the chain that has only the first hop of this one.
    #[must_use]
    pub(crate) fn first_hop_alone(&self, chain: ChainId) -> ChainId {
        let mut at = chain;
        while let Some((shorter, _)) = self.last_hop(at).filter(|&(one, _)| one != ChainId::ROOT) {
            at = shorter;
        }
        at
    }

    /// Returns the hops of a chain, from its far end back to the wait.
    pub fn hops_back(&self, chain: ChainId) -> impl Iterator<Item = Hop> + '_ {
        let mut at = chain;
        std::iter::from_fn(move || {
            let &(shorter, hop) = self.links.get_index((at.0 as usize).checked_sub(1)?)?;
            at = shorter;
            Some(hop)
        })
    }

    /// Returns the hops of a chain, from the wait on.
    #[must_use]
    pub fn hops(&self, chain: ChainId) -> Vec<Hop> {
        let mut hops: Vec<Hop> = self.hops_back(chain).collect();
        hops.reverse();
        hops
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
        let mut pairs = IndexSet::<_, foldhash::fast::RandomState>::from_iter([none]);
        let mut id = |user: StackRef, kernel: StackRef| {
            let (index, _) = pairs.insert_full((user, kernel));
            StackPairId(u32::try_from(index).unwrap_or(u32::MAX))
        };
        let waits = &recording.waits;
        let waiters =
            waits.waiters().iter().map(|(_, w)| id(w.user_stack, w.kernel_stack)).collect();
        let wakers = waits.wakers().iter().map(|(_, w)| id(w.user_stack, w.kernel_stack)).collect();
        let samples = recording.samples.iter().map(|s| id(s.user_stack, s.kernel_stack)).collect();
        // The table of hashes is of no use any more.
        let pairs = pairs.into_iter().collect();
        Self { pairs, waiters, wakers, samples }
    }

    /// Returns the user stack and the kernel stack of a pair.
    #[must_use]
    pub fn get(&self, id: StackPairId) -> (StackRef, StackRef) {
        self.pairs.get(id.0 as usize).copied().unwrap_or((StackRef::NotTaken, StackRef::NotTaken))
    }

    /// Returns the pairs in which the sampling clock found threads.
    pub fn sampled(&self) -> impl Iterator<Item = StackPairId> + '_ {
        self.samples.iter().copied()
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
