//! Parts of blame, merged by key as they are added.

use std::hash::BuildHasher as _;

use hashbrown::HashTable;
use offwake_recording::units::Nanos;

use super::{BlameKind, BlamePart, ChainId, IdleState, SleepId, StackPairId};

/// What two parts must have in common to be merged; that which tells most of them apart comes first.
type PartKey = (ChainId, StackPairId, SleepId, BlameKind, u16, IdleState);

/// Up to this many parts are compared one by one, without a map: most waits have two or three.
const FEW: usize = 16;

/// The parts of the blame of one wait, or of several.
#[derive(Debug, Default)]
pub struct BlameParts {
    list: Vec<BlamePart>,
    /// The indices of the parts in the list by their keys, once there are more than [`FEW`]. The keys are
    /// in the list alone: of pgbench's millions of parts a second copy took more than the parts.
    indices: HashTable<IndexedPart>,
    hasher: foldhash::fast::RandomState,
}

/// Where a part is in the list. With half of its hash, the list has to be read neither while the table grows
/// nor for most of the parts that are others.
#[derive(Clone, Copy, Debug)]
struct IndexedPart {
    half_hash: u32,
    index: u32,
}

impl BlameParts {
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.indices.clear();
    }

    /// Returns the parts in the order in which they were first added.
    #[must_use]
    pub fn as_slice(&self) -> &[BlamePart] {
        &self.list
    }

    /// Adds a part, merging it with an earlier one of the same key.
    pub fn push(&mut self, part: BlamePart) {
        if part.time == Nanos(0) {
            return;
        }
        let known = if self.list.len() <= FEW {
            self.list.iter_mut().find(|known| part_key(known) == part_key(&part))
        } else {
            self.find_by_key(&part)
        };
        match known {
            Some(known) => known.time += part.time,
            None => self.list.push(part),
        }
    }

    /// Returns the parts in the order in which they were first added.
    pub(crate) fn into_list(self) -> Vec<BlamePart> {
        self.list
    }

    /// Finds the part with the key of `part` by the table. If there is none, the table gets the index
    /// after the end of the list for it.
    fn find_by_key(&mut self, part: &BlamePart) -> Option<&mut BlamePart> {
        let Self { list, indices, hasher } = self;
        let whole_hash = |indexed: &IndexedPart| spread(indexed.half_hash);
        if indices.is_empty() {
            for (part, index) in list.iter().zip(0..) {
                let half_hash = half_hash(hasher, part);
                let indexed = IndexedPart { half_hash, index };
                indices.insert_unique(spread(half_hash), indexed, whole_hash);
            }
        }
        let (wanted, half_hash) = (part_key(part), half_hash(hasher, part));
        let is_it = |known: &IndexedPart| {
            known.half_hash == half_hash
                && list.get(known.index as usize).is_some_and(|p| part_key(p) == wanted)
        };
        let known = indices.find(spread(half_hash), is_it).map(|known| known.index);
        if known.is_none()
            && let Ok(index) = u32::try_from(list.len())
        {
            let indexed = IndexedPart { half_hash, index };
            indices.insert_unique(spread(half_hash), indexed, whole_hash);
        }
        list.get_mut(known? as usize)
    }
}

/// Makes half of a hash a whole one: tables go by its lowest bits and its highest.
fn spread(half_hash: u32) -> u64 {
    u64::from(half_hash) << 32 | u64::from(half_hash)
}

fn half_hash(hasher: &foldhash::fast::RandomState, part: &BlamePart) -> u32 {
    let [a, b, c, d, ..] = hash(hasher, part).to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Hashes what tells most keys apart, in as few steps as will do: millions of parts are looked up.
fn hash(hasher: &foldhash::fast::RandomState, part: &BlamePart) -> u64 {
    let words = |one: u32, other: u32| u64::from(one) << 32 | u64::from(other);
    let kind = match part.kind {
        BlameKind::Work(thread) => words(0, thread.0),
        // Who waited is the chain's last thread.
        BlameKind::CpuQueue { holder, .. } => words(1, holder.map_or(u32::MAX, |one| one.0)),
        BlameKind::External(external) => words(2, external as u32),
        BlameKind::Unattributed(reason) => words(3, reason as u32),
    };
    hasher.hash_one((words(part.chain.0, part.stack.0), kind))
}

fn part_key(part: &BlamePart) -> PartKey {
    (part.chain, part.stack, part.slept, part.kind, part.depth, part.idle_state)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use offwake_recording::units::Nanos;
    use proptest::{collection::vec, prelude::*};

    use super::{
        super::{Chains, Hop, Reason},
        *,
    };
    use crate::{
        markers::MarkerPathId,
        timeline::{NamedThread, ThreadIndex},
    };

    fn hop(thread: u32) -> Hop {
        let thread = NamedThread { thread: ThreadIndex(thread), name: None };
        Hop { thread, stack: StackPairId::NONE, slept: SleepId::NONE, markers: MarkerPathId::NONE }
    }

    /// Parts of waits for these threads, in a table of chains of their own.
    fn parts(threads_and_times: &[(u32, u64)]) -> (BlameParts, Chains) {
        let (mut parts, mut chains) = (BlameParts::default(), Chains::default());
        for &(thread, time) in threads_and_times {
            parts.push(BlamePart {
                kind: BlameKind::Unattributed(Reason::Lost),
                depth: 1,
                chain: chains.extend(ChainId::ROOT, hop(thread)),
                stack: StackPairId::NONE,
                slept: SleepId::NONE,
                idle_state: IdleState::Busy,
                time: Nanos(time),
            });
        }
        (parts, chains)
    }

    proptest! {
        #[test]
        fn parts_of_one_key_are_one(threads_and_times in vec((0_u32..40, 0_u64..9), 0..120)) {
            let (all, chains) = parts(&threads_and_times);
            let mut expected: BTreeMap<u32, u64> = BTreeMap::new();
            for &(thread, time) in threads_and_times.iter().filter(|&&(_, time)| time > 0) {
                *expected.entry(thread).or_default() += time;
            }
            let told: Vec<(u32, u64)> = all.as_slice().iter()
                .filter_map(|part| {
                    let (_, hop) = chains.last_hop(part.chain)?;
                    Some((hop.thread.thread.0, part.time.0))
                })
                .collect();
            prop_assert_eq!(told.len(), expected.len(), "a thread has two parts");
            prop_assert_eq!(told.into_iter().collect::<BTreeMap<_, _>>(), expected);
        }
    }
}
