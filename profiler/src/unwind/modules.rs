//! The unwind data of modules, the most recently used ones.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use gimli::UnwindContext;
use object::elf::EM_X86_64;

use super::{Files, elf, rule::Rule, rules::Place, tables::Tables};
use crate::recording::{
    ModuleId,
    loss::{Shortfalls, count},
};

/// Bytes of unwind data in all.
const MAX_BYTES: usize = 64 << 20;
/// What a module is counted as besides its unwind data.
const OF_MODULE: usize = 1024;

/// What is known of a module.
enum Known {
    Tables(Box<Tables>),
    /// It is no ELF file, or has no code as one.
    NoElf,
    /// Its code is for a machine whose registers have other numbers.
    OtherMachine,
    /// It could not be had.
    Nothing,
}

struct Module {
    known: Known,
    bytes: usize,
    used: u64,
}

/// Unwind data by module.
pub(super) struct Modules {
    modules: HashMap<ModuleId, Module>,
    bytes: usize,
    limit: usize,
    /// Counts up with each use.
    uses: u64,
    shortfalls: Shortfalls,
}

impl Modules {
    pub(super) fn new() -> Self {
        Self::within(MAX_BYTES)
    }

    fn within(limit: usize) -> Self {
        Self { modules: HashMap::new(), bytes: 0, limit, uses: 0, shortfalls: Shortfalls::new() }
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
        let tables = match &module.known {
            Known::Tables(tables) => tables,
            Known::NoElf => return Rule::Uncovered,
            Known::OtherMachine => return Rule::OtherMachine,
            Known::Nothing => return Rule::Unreadable,
        };
        // The last resort: no unwind data that we know of makes it panic.
        let attempt = catch_unwind(AssertUnwindSafe(|| tables.rule(offset, kind, context)));
        attempt.unwrap_or_else(|_| {
            *context = UnwindContext::new();
            count(&mut self.shortfalls, "unwind_panics");
            Rule::Unreadable
        })
    }

    fn read(&mut self, id: ModuleId, files: &impl Files) {
        let read = |content| match elf::read(&content) {
            Some(sections) if sections.machine != EM_X86_64 => Known::OtherMachine,
            Some(sections) => Known::Tables(Tables::new(sections).into()),
            None => Known::NoElf,
        };
        let known = match files.content(id) {
            None => Known::Nothing,
            // As above.
            Some(content) => {
                catch_unwind(AssertUnwindSafe(|| read(content))).unwrap_or_else(|_| {
                    count(&mut self.shortfalls, "unwind_panics");
                    Known::Nothing
                })
            }
        };
        let bytes = match &known {
            Known::Tables(tables) => {
                if tables.is_partial() {
                    count(&mut self.shortfalls, "unwind_modules_partial");
                }
                tables.bytes()
            }
            Known::NoElf | Known::OtherMachine => 0,
            Known::Nothing => {
                count(&mut self.shortfalls, "unwind_modules_unread");
                0
            }
        };
        let bytes = OF_MODULE + bytes;
        self.make_room(bytes);
        self.bytes += bytes;
        self.modules.insert(id, Module { known, bytes, used: self.uses });
    }

    /// Forgets what was not used for the longest time.
    fn make_room(&mut self, bytes: usize) {
        while self.bytes + bytes > self.limit {
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

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, sync::Arc};

    use super::*;
    use crate::{recording::AddressKind, unwind::Content};

    /// Nothing but what is no program, and who asked.
    #[derive(Default)]
    struct Asked(RefCell<Vec<u32>>);

    impl Files for Asked {
        fn content(&self, module: ModuleId) -> Option<Content> {
            self.0.borrow_mut().push(module.0);
            Some(Content::Image(Arc::new([])))
        }
    }

    #[test]
    fn the_module_that_was_not_used_for_the_longest_time_is_forgotten() {
        let (mut modules, files) = (Modules::within(3 * OF_MODULE), Asked::default());
        let mut context = UnwindContext::new();
        for id in [0, 1, 2, 0, 3, 0, 2, 1] {
            let place = Place { module: ModuleId(id), offset: 0, kind: AddressKind::Return };
            modules.rule(place, &files, &mut context);
            assert!(modules.bytes() <= 3 * OF_MODULE);
        }
        assert_eq!(files.0.into_inner(), [0, 1, 2, 3, 1]);
    }
}
