//! Puts waits into groups that are added up one after another.
//!
//! Waits that may be one entry are in one group, so that its sums are whole when it is over: nothing has
//! to be merged, and what is told apart at a time is little. A group has some thousand waits, in the order
//! of time, which is what walkers are fastest at: with fewer, those beside each other have less in common.

use std::{
    hash::{BuildHasher as _, Hash},
    ops::Range,
};

use rayon::prelude::*;

use crate::timeline::WaitIndex;

use super::WaitSumKey;

/// The most waits in a group, unless more are alike.
const MOST_WAITS: usize = 16_384;

/// Waits in groups.
pub(super) struct Groups {
    waits: Vec<WaitIndex>,
    /// Places in `waits`, the largest group first.
    ranges: Vec<Range<usize>>,
}

impl Groups {
    /// Each group's waits, in the order of time.
    pub(super) fn list(&self) -> Vec<&[WaitIndex]> {
        self.ranges.iter().filter_map(|range| self.waits.get(range.clone())).collect()
    }
}

/// Puts the first `count` waits into groups, those of equal keys into the same; leaves those without any key
/// out.
pub(super) fn group_waits(
    count: usize,
    key: impl Fn(WaitIndex) -> Option<WaitSumKey> + Sync,
) -> Groups {
    let hasher = foldhash::fast::FixedState::default();
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let mut places: Vec<_> = (0..count)
        .into_par_iter()
        .map(WaitIndex)
        .filter_map(|wait| {
            let key = key(wait)?;
            // The waits of a thread beside each other: they have chains in common.
            Some((key.waiter.thread, hash(&hasher, key), wait))
        })
        .collect();
    places.par_sort_unstable();
    let most = (places.len() / (8 * rayon::current_num_threads().max(1))).clamp(1, MOST_WAITS);
    let mut ranges = Vec::new();
    let mut begin = 0;
    let mut end = 0;
    for alike in places.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
        if end - begin + alike.len() > most && end > begin {
            ranges.push(begin..end);
            begin = end;
        }
        end += alike.len();
    }
    ranges.extend((end > begin).then_some(begin..end));
    let mut waits: Vec<_> = places.into_iter().map(|(.., wait)| wait).collect();
    for range in &ranges {
        if let Some(group) = waits.get_mut(range.clone()) {
            group.sort_unstable();
        }
    }
    ranges.sort_by_key(|range| std::cmp::Reverse(range.len()));
    Groups { waits, ranges }
}

fn hash(hasher: &foldhash::fast::FixedState, key: impl Hash) -> u32 {
    let [a, b, c, d, ..] = hasher.hash_one(key).to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::group_waits;
    use crate::{
        markers::MarkerPathId,
        timeline::{NamedThread, ThreadIndex, WaitIndex},
        wait_sums::{WaitSumKey, WakerKey},
    };

    fn key(thread: u32, attributes: u32) -> WaitSumKey {
        let waiter = NamedThread { thread: ThreadIndex(thread), name: None };
        let markers = MarkerPathId::NONE;
        WaitSumKey { waiter, waker: WakerKey::Unknown, markers, attributes, label: 0 }
    }

    proptest! {
        #[test]
        fn each_wait_is_in_one_group_with_all_that_are_alike(
            keys in vec(prop::option::of((0_u32..4, 0_u32..4)), 0..200),
        ) {
            let key_of = |wait: WaitIndex| {
                keys[wait.0 as usize].map(|(thread, attributes)| key(thread, attributes))
            };
            let groups = group_waits(keys.len(), key_of);
            let mut all: Vec<_> = groups.list().concat();
            all.sort_unstable();
            let expected: Vec<_> =
                (0..).map(WaitIndex).take(keys.len()).filter(|&wait| key_of(wait).is_some()).collect();
            prop_assert_eq!(all, expected);
            for (n, group) in groups.list().into_iter().enumerate() {
                prop_assert!(group.is_sorted(), "not in the order of time");
                for other in groups.list().into_iter().skip(n + 1).flatten() {
                    let alike = group.iter().any(|&wait| key_of(wait) == key_of(*other));
                    prop_assert!(!alike, "two groups have waits of one key");
                }
            }
        }
    }
}
