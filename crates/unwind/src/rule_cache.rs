//! Rules that were worked out before: the most recently used ones.

use std::{collections::HashMap, mem::size_of};

use crate::{
    location::CodeLocation,
    rule::{FrameRule, SavedRegister, UnwindRule},
};

/// Rules of one generation, of which two are kept. A rule takes half a KiB, and 3 KiB at most.
const GENERATION: usize = 8192;

/// Rules by location.
pub(crate) struct RuleCache {
    /// Rules that were used since this generation began.
    young: HashMap<CodeLocation, UnwindRule, foldhash::fast::RandomState>,
    /// Rules of the generation before.
    old: HashMap<CodeLocation, UnwindRule, foldhash::fast::RandomState>,
}

impl RuleCache {
    pub(crate) fn new() -> Self {
        Self { young: HashMap::default(), old: HashMap::default() }
    }

    pub(crate) fn get(&mut self, location: CodeLocation) -> Option<UnwindRule> {
        if let Some(rule) = self.young.get(&location) {
            return Some(rule.clone());
        }
        let rule = self.old.remove(&location)?;
        self.insert(location, rule.clone());
        Some(rule)
    }

    pub(crate) fn insert(&mut self, location: CodeLocation, rule: UnwindRule) {
        if self.young.len() == GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(location, rule);
    }

    /// Bytes that the rules take, about: a function saves six registers at most.
    pub(crate) fn memory(&self) -> usize {
        let each = size_of::<(CodeLocation, UnwindRule)>()
            + size_of::<FrameRule>()
            + 6 * size_of::<(usize, SavedRegister)>();
        (self.young.len() + self.old.len()) * each
    }
}

#[cfg(test)]
mod tests {
    use offwake_recording::{AddressKind, ModuleId};

    use super::*;

    fn location(offset: u64) -> CodeLocation {
        CodeLocation { module: ModuleId(0), offset, kind: AddressKind::Return }
    }

    #[test]
    fn what_is_used_is_kept_and_the_rest_is_forgotten() {
        let mut rules = RuleCache::new();
        for offset in 0..10 * GENERATION as u64 {
            rules.insert(location(offset), UnwindRule::EntryPoint);
            assert!(rules.get(location(7)).is_some() || offset < 7);
        }
        assert!(rules.get(location(8)).is_none());
        assert!(rules.young.len() + rules.old.len() <= 2 * GENERATION);
    }
}
