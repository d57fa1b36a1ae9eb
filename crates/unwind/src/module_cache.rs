//! The unwind data of the most recently used modules.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use gimli::UnwindContext;
use object::elf::EM_X86_64;

use offwake_recording::{
    ModuleId,
    loss::{Diagnostics, count},
};

use crate::{
    elf::unwind_sections, location::CodeLocation, mapping::ModuleFiles,
    module_tables::ModuleTables, rule::UnwindRule,
};

/// Bytes of unwind data of all modules together.
const MAX_MEMORY: usize = 64 << 20;
/// Bytes that a module is counted as besides its unwind data.
const MODULE_OVERHEAD: usize = 1024;

/// What a module says about unwinding.
enum UnwindData {
    Tables(Box<ModuleTables>),
    /// The module is no ELF file, or one without code.
    NoElf,
    /// The code is for a machine whose registers have other numbers.
    OtherMachine,
    /// The file could not be had.
    Unavailable,
}

struct CachedModule {
    data: UnwindData,
    memory: usize,
    /// The number of the use that was the last.
    used: u64,
}

/// Unwind data by module.
pub(crate) struct ModuleCache {
    modules: HashMap<ModuleId, CachedModule>,
    memory: usize,
    limit: usize,
    /// The number of uses so far.
    uses: u64,
    diagnostics: Diagnostics,
}

impl ModuleCache {
    pub(crate) fn new() -> Self {
        Self::with_limit(MAX_MEMORY)
    }

    fn with_limit(limit: usize) -> Self {
        Self { modules: HashMap::new(), memory: 0, limit, uses: 0, diagnostics: Diagnostics::new() }
    }

    /// The rule for a location.
    pub(crate) fn rule(
        &mut self,
        CodeLocation { module: id, offset, kind }: CodeLocation,
        files: &impl ModuleFiles,
        context: &mut UnwindContext<usize>,
    ) -> UnwindRule {
        if !self.modules.contains_key(&id) {
            self.read(id, files);
        }
        self.uses += 1;
        let Some(module) = self.modules.get_mut(&id) else { return UnwindRule::Uncovered };
        module.used = self.uses;
        let tables = match &module.data {
            UnwindData::Tables(tables) => tables,
            UnwindData::NoElf => return UnwindRule::Uncovered,
            UnwindData::OtherMachine => return UnwindRule::OtherMachine,
            UnwindData::Unavailable => return UnwindRule::Unreadable,
        };
        // The last resort: no unwind data that we know of makes gimli panic.
        let attempt = catch_unwind(AssertUnwindSafe(|| tables.rule(offset, kind, context)));
        attempt.unwrap_or_else(|_| {
            *context = UnwindContext::new();
            count(&mut self.diagnostics, "unwind_panics");
            UnwindRule::Unreadable
        })
    }

    fn read(&mut self, id: ModuleId, files: &impl ModuleFiles) {
        let read = |content| match unwind_sections::read(&content) {
            Some(sections) if sections.machine != EM_X86_64 => UnwindData::OtherMachine,
            Some(sections) => UnwindData::Tables(ModuleTables::new(sections).into()),
            None => UnwindData::NoElf,
        };
        let data = match files.content(id) {
            None => UnwindData::Unavailable,
            // As in `rule`: no file that we know of makes this panic.
            Some(content) => {
                catch_unwind(AssertUnwindSafe(|| read(content))).unwrap_or_else(|_| {
                    count(&mut self.diagnostics, "unwind_panics");
                    UnwindData::Unavailable
                })
            }
        };
        let memory = match &data {
            UnwindData::Tables(tables) => {
                if tables.is_partial() {
                    count(&mut self.diagnostics, "unwind_modules_partial");
                }
                tables.memory()
            }
            UnwindData::NoElf | UnwindData::OtherMachine => 0,
            UnwindData::Unavailable => {
                count(&mut self.diagnostics, "unwind_modules_unread");
                0
            }
        };
        let memory = MODULE_OVERHEAD + memory;
        self.evict_until_free(memory);
        self.memory += memory;
        self.modules.insert(id, CachedModule { data, memory, used: self.uses });
    }

    /// Drops the modules that were not used for the longest time until so many bytes are free.
    fn evict_until_free(&mut self, memory: usize) {
        while self.memory + memory > self.limit {
            let oldest = self.modules.iter().min_by_key(|(_, module)| module.used);
            let Some((&oldest, _)) = oldest else { return };
            if let Some(module) = self.modules.remove(&oldest) {
                self.memory -= module.memory;
            }
        }
    }

    /// Bytes that the modules take.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// What could not be done.
    pub(crate) fn diagnostics(&self) -> &Diagnostics {
        &self.diagnostics
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, sync::Arc};

    use super::*;
    use crate::mapping::FileContent;
    use offwake_recording::AddressKind;

    /// Files that are no programs, and the modules whose files were read.
    #[derive(Default)]
    struct Requested(RefCell<Vec<u32>>);

    impl ModuleFiles for Requested {
        fn content(&self, module: ModuleId) -> Option<FileContent> {
            self.0.borrow_mut().push(module.0);
            Some(FileContent::Image(Arc::new([])))
        }
    }

    #[test]
    fn the_module_that_was_not_used_for_the_longest_time_is_forgotten() {
        let (mut modules, files) =
            (ModuleCache::with_limit(3 * MODULE_OVERHEAD), Requested::default());
        let mut context = UnwindContext::new();
        for id in [0, 1, 2, 0, 3, 0, 2, 1] {
            let location =
                CodeLocation { module: ModuleId(id), offset: 0, kind: AddressKind::Return };
            modules.rule(location, &files, &mut context);
            assert!(modules.memory() <= 3 * MODULE_OVERHEAD);
        }
        assert_eq!(files.0.into_inner(), [0, 1, 2, 3, 1]);
    }
}
