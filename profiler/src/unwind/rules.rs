//! Rules that were worked out before, the most recently used ones.

use std::{collections::HashMap, mem::size_of};

use super::{
    Code, CodeFile,
    rule::{Frame, Rule, Saved},
    step::State,
};
use crate::recording::{AddressKind, ModuleId};

/// Rules of one generation: two are kept. They take half a KiB each, and 3 KiB at most.
const GENERATION: usize = 8192;

/// What a rule is for: the same in all processes that have mapped the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub module: ModuleId,
    /// The offset of the address into the file.
    pub offset: u64,
    pub kind: AddressKind,
}

impl Place {
    /// The place of a frame in a mapping; none if that is of no file.
    pub(super) fn of(here: &Code, state: &State) -> Option<Self> {
        let CodeFile::File(module) = here.file else { return None };
        let offset = state.looked_up().checked_sub(here.start)?.checked_add(here.offset)?;
        Some(Self { module, offset, kind: state.kind })
    }

    /// The frame's own address, as an offset into the file.
    pub(super) fn ip(self) -> u64 {
        self.offset.saturating_add(self.kind.before())
    }
}

/// Rules by place.
pub(super) struct Rules {
    /// Those that were used since it was begun.
    young: HashMap<Place, Rule, foldhash::fast::RandomState>,
    /// Those of the generation before.
    old: HashMap<Place, Rule, foldhash::fast::RandomState>,
}

impl Rules {
    pub(super) fn new() -> Self {
        Self { young: HashMap::default(), old: HashMap::default() }
    }

    pub(super) fn get(&mut self, place: Place) -> Option<Rule> {
        if let Some(rule) = self.young.get(&place) {
            return Some(rule.clone());
        }
        let rule = self.old.remove(&place)?;
        self.put(place, rule.clone());
        Some(rule)
    }

    pub(super) fn put(&mut self, place: Place, rule: Rule) {
        if self.young.len() == GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(place, rule);
    }

    /// Some of what they take: a function saves six registers at most.
    pub(super) fn bytes(&self) -> usize {
        let each =
            size_of::<(Place, Rule)>() + size_of::<Frame>() + 6 * size_of::<(usize, Saved)>();
        (self.young.len() + self.old.len()) * each
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(offset: u64) -> Place {
        Place { module: ModuleId(0), offset, kind: AddressKind::Return }
    }

    #[test]
    fn what_is_used_is_kept_and_the_rest_is_forgotten() {
        let mut rules = Rules::new();
        for offset in 0..10 * GENERATION as u64 {
            rules.put(place(offset), Rule::EntryPoint);
            assert!(rules.get(place(7)).is_some() || offset < 7);
        }
        assert!(rules.get(place(8)).is_none());
        assert!(rules.young.len() + rules.old.len() <= 2 * GENERATION);
    }
}
