//! Leaves, added up as they come.

use std::collections::HashMap;

use offwake_recording::units::Nanos;

use super::{BlameKind, Duty, Part, PathId, StackPairId};

/// What two leaves must have in common to be one.
type Key = (BlameKind, u16, PathId, StackPairId, Duty);

/// So many are compared one by one: most waits have two or three.
const FEW: usize = 16;

/// The leaves of one wait, or of several.
#[derive(Debug, Default)]
pub struct Parts {
    list: Vec<Part>,
    /// Where each lies in the list, once they are many.
    places: HashMap<Key, usize, foldhash::fast::RandomState>,
}

impl Parts {
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.places.clear();
    }

    /// In the order in which they first came.
    #[must_use]
    pub fn list(&self) -> &[Part] {
        &self.list
    }

    /// Adds one; what is alike becomes one.
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

    /// The one that is like `part`; if there is none, the place at the end of the list becomes its own.
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
