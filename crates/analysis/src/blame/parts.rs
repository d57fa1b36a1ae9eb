//! Parts of blame, merged by key as they are added.

use std::collections::HashMap;

use offwake_recording::units::Nanos;

use super::{BlameKind, Duty, Part, PathId, StackPairId};

/// What two parts must have in common to be merged.
type Key = (BlameKind, u16, PathId, StackPairId, Duty);

/// Up to this many parts are compared one by one, without a map: most waits have two or three.
const FEW: usize = 16;

/// The parts of the blame of one wait, or of several.
#[derive(Debug, Default)]
pub struct Parts {
    list: Vec<Part>,
    /// The index of each key's part in the list, once there are more than [`FEW`].
    places: HashMap<Key, usize, foldhash::fast::RandomState>,
}

impl Parts {
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.places.clear();
    }

    /// Returns the parts in the order in which they were first added.
    #[must_use]
    pub fn list(&self) -> &[Part] {
        &self.list
    }

    /// Adds a part, merging it with an earlier one of the same key.
    pub fn push(&mut self, part: Part) {
        if part.time == Nanos(0) {
            return;
        }
        let known = if self.list.len() <= FEW {
            self.list.iter_mut().find(|known| key(known) == key(&part))
        } else {
            self.among_many(&part)
        };
        match known {
            Some(known) => known.time += part.time,
            None => self.list.push(part),
        }
    }

    /// Finds the part with the key of `part` by the map. If there is none, the map gets the index
    /// after the end of the list for it.
    fn among_many(&mut self, part: &Part) -> Option<&mut Part> {
        if self.places.is_empty() {
            self.places.extend(self.list.iter().map(key).zip(0..));
        }
        let place = *self.places.entry(key(part)).or_insert(self.list.len());
        self.list.get_mut(place)
    }
}

fn key(part: &Part) -> Key {
    (part.kind, part.depth, part.path, part.stack, part.duty)
}
