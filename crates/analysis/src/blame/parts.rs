//! Parts of blame, merged by key as they are added.

use std::collections::HashMap;

use offwake_recording::units::Nanos;

use super::{BlameKind, BlamePart, ChainId, IdleState, SleepId, StackPairId};

/// What two parts must have in common to be merged.
type PartKey = (BlameKind, u16, ChainId, StackPairId, SleepId, IdleState);

/// Up to this many parts are compared one by one, without a map: most waits have two or three.
const FEW: usize = 16;

/// The parts of the blame of one wait, or of several.
#[derive(Debug, Default)]
pub struct BlameParts {
    list: Vec<BlamePart>,
    /// The index of each key's part in the list, once there are more than [`FEW`].
    indices: HashMap<PartKey, usize, foldhash::fast::RandomState>,
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

    /// Finds the part with the key of `part` by the map. If there is none, the map gets the index
    /// after the end of the list for it.
    fn find_by_key(&mut self, part: &BlamePart) -> Option<&mut BlamePart> {
        if self.indices.is_empty() {
            self.indices.extend(self.list.iter().map(part_key).zip(0..));
        }
        let place = *self.indices.entry(part_key(part)).or_insert(self.list.len());
        self.list.get_mut(place)
    }
}

fn part_key(part: &BlamePart) -> PartKey {
    (part.kind, part.depth, part.chain, part.stack, part.slept, part.idle_state)
}
