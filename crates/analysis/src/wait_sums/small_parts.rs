//! Sums up the parts of blame that have no room, as soon as the sums of their waits are whole.
//!
//! ```text
//! parts of a group, by time a hop   ████ ███ ██ │ █ █ ▌ ▌ ▌ ▌ …
//!                                   may have    │ have none, whatever comes after
//!                                   room        │ summed up by their first hop
//! ```
//!
//! Room is shared by all groups, so the limit rises from group to group, to about what it is for all parts.
//! What lies below it at any time has no room in the end.

use std::{
    iter,
    sync::atomic::{AtomicU64, Ordering},
};

use offwake_recording::units::Nanos;

use crate::blame::{BlamePart, ChainId, Chains, IdleState};

/// Parts of some waits that are not told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SmallParts {
    /// The first hop of all.
    pub(crate) first: ChainId,
    pub(crate) idle_state: IdleState,
    /// How many.
    pub(crate) count: u64,
    pub(crate) time: Nanos,
}

/// The room for hops of parts, as far as the parts of all groups so far leave any.
///
/// ```text
/// hops of parts, by worth   2 7 5 4 4 1 2 …
///                                 └─────── more than the room: what is worth less has none
/// ```
pub(super) struct SharedRoom {
    hops: usize,
    /// The hops of parts by [`worth_class`].
    hops_by_class: Vec<AtomicU64>,
}

/// Returns what something tells for its size. Those that are worth as much as one that has no room are left
/// out with it: who came first does not matter.
pub(crate) fn worth(time: Nanos, size: usize) -> u64 {
    time.0 / size.max(1) as u64
}

/// Returns what a part is worth for its hops.
pub(crate) fn worth_of_hops(part: &BlamePart) -> u64 {
    worth(part.time, part.depth.into())
}

impl SharedRoom {
    pub(super) fn new(hops: usize) -> Self {
        let classes = if hops < usize::MAX { CLASSES } else { 0 };
        let hops_by_class = iter::repeat_with(AtomicU64::default).take(classes).collect();
        Self { hops, hops_by_class }
    }

    /// Adds parts whose times are whole.
    pub(super) fn add<'p>(&self, parts: impl Iterator<Item = &'p BlamePart>) {
        let mut more = vec![0_u64; self.hops_by_class.len()];
        for part in parts.filter(|part| part.depth > 0) {
            if let Some(hops) = more.get_mut(worth_class(worth_of_hops(part))) {
                *hops += u64::from(part.depth);
            }
        }
        for (hops, more) in self.hops_by_class.iter().zip(more) {
            hops.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Returns what a part must be worth to have room, as far as is known: it may have none all the same.
    /// It only grows.
    pub(super) fn least_with_room(&self) -> u64 {
        let mut left = self.hops as u64;
        let first_without = self.hops_by_class.iter().rposition(|hops| {
            let hops = hops.load(Ordering::Relaxed);
            let fits = hops <= left;
            left = left.saturating_sub(hops);
            !fits
        });
        first_without.map_or(0, least_of_class)
    }
}

/// In how many classes a power of two is divided.
const PER_POWER: u64 = 32;
/// The number of classes.
const CLASSES: usize = 1_920;

/// Returns the class of a number: small ones have one each, others share it with those that differ by a
/// thirtieth.
fn worth_class(worth: u64) -> usize {
    let powers = u64::from(worth.max(1).ilog2()).saturating_sub(u64::from(PER_POWER.ilog2()));
    usize::try_from(PER_POWER * powers + (worth >> powers)).unwrap_or(usize::MAX)
}

/// Returns the least number of a class.
fn least_of_class(class: usize) -> u64 {
    let class = class as u64;
    let powers = (class / PER_POWER).saturating_sub(1);
    (class - PER_POWER * powers) << powers
}

/// Splits off and sums up the parts that are worth less than `least`.
pub(super) fn split_off(
    mut parts: Vec<BlamePart>,
    least: u64,
    chains: &Chains,
) -> (Vec<BlamePart>, Vec<SmallParts>) {
    let mut small: Vec<SmallParts> = Vec::new();
    parts.retain(|part| {
        let is_small = part.depth > 0 && worth_of_hops(part) < least;
        if is_small {
            add_small(part, chains, &mut small);
        }
        !is_small
    });
    parts.shrink_to_fit();
    small.shrink_to_fit();
    (parts, small)
}

fn add_small(part: &BlamePart, chains: &Chains, all: &mut Vec<SmallParts>) {
    let (first, idle_state, time) =
        (chains.first_hop_alone(part.chain), part.idle_state, part.time);
    // There are few first hops: waits of one entry have one waker.
    match all.iter_mut().find(|small| (small.first, small.idle_state) == (first, idle_state)) {
        Some(small) => {
            small.count += 1;
            small.time += time;
        }
        None => all.push(SmallParts { first, idle_state, count: 1, time }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{CLASSES, least_of_class, worth_class};

    proptest! {
        #[test]
        fn a_number_is_in_the_class_that_begins_at_or_below_it(
            number in any::<u64>(), shift in 0_u32..64,
        ) {
            let number = number >> shift;
            let class = worth_class(number);
            prop_assert!(class < CLASSES);
            let least = least_of_class(class);
            prop_assert_eq!(worth_class(least), class);
            prop_assert!(least <= number && number - least <= number / 32);
            prop_assert!(least == 0 || worth_class(least - 1) == class - 1);
        }
    }
}
