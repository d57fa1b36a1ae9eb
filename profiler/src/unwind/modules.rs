//! The unwind data of modules, the most recently used ones.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use gimli::UnwindContext;

use super::{Files, elf, rule::Rule, rules::Place, tables::Tables};
use crate::recording::{
    ModuleId,
    loss::{Shortfalls, count},
};

/// Bytes of unwind data in all.
const MAX_BYTES: usize = 64 << 20;
/// What a module is counted as besides its unwind data.
const OF_MODULE: usize = 1024;

struct Module {
    /// None if it has none that can be read.
    tables: Option<Tables>,
    bytes: usize,
    used: u64,
}

/// Unwind data by module.
pub(super) struct Modules {
    modules: HashMap<ModuleId, Module>,
    bytes: usize,
    /// Counts up with each use.
    uses: u64,
    shortfalls: Shortfalls,
}

impl Modules {
    pub(super) fn new() -> Self {
        Self { modules: HashMap::new(), bytes: 0, uses: 0, shortfalls: Shortfalls::new() }
    }

    /// What is to be done at a place.
    pub(super) fn rule(
        &mut self,
        Place { module: id, offset, kind }: Place,
        files: &impl Files,
        context: &mut UnwindContext<usize>,
    ) -> Rule {
        if !self.modules.contains_key(&id) {
            self.read(id, files);
        }
        self.uses += 1;
        let Some(module) = self.modules.get_mut(&id) else { return Rule::Uncovered };
        module.used = self.uses;
        let Some(tables) = &module.tables else { return Rule::Uncovered };
        // The last resort: no unwind data that we know of makes it panic.
        let attempt = catch_unwind(AssertUnwindSafe(|| tables.rule(offset, kind, context)));
        attempt.unwrap_or_else(|_| {
            *context = UnwindContext::new();
            count(&mut self.shortfalls, "unwind_panics");
            Rule::Unreadable
        })
    }

    fn read(&mut self, id: ModuleId, files: &impl Files) {
        let read = || elf::read(&files.content(id)?).map(Tables::new);
        let tables = match catch_unwind(AssertUnwindSafe(read)) {
            Ok(tables) => tables,
            Err(_) => {
                count(&mut self.shortfalls, "unwind_panics");
                None
            }
        };
        if tables.as_ref().is_some_and(Tables::is_cut) {
            count(&mut self.shortfalls, "unwind_modules_over_limit");
        }
        let bytes = OF_MODULE + tables.as_ref().map_or(0, Tables::bytes);
        self.make_room(bytes);
        self.bytes += bytes;
        self.modules.insert(id, Module { tables, bytes, used: self.uses });
    }

    /// Forgets what was not used for the longest time.
    fn make_room(&mut self, bytes: usize) {
        while self.bytes + bytes > MAX_BYTES {
            let oldest = self.modules.iter().min_by_key(|(_, module)| module.used);
            let Some((&oldest, _)) = oldest else { return };
            if let Some(module) = self.modules.remove(&oldest) {
                self.bytes -= module.bytes;
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn shortfalls(&self) -> &Shortfalls {
        &self.shortfalls
    }
}
