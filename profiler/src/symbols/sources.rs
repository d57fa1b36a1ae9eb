//! Where names come from.

use std::sync::Arc;

use super::{
    DebugPlaces, Debuginfod, Shortfalls, count,
    elf::{Knowledge, Readable},
    modules::Trust,
};
use crate::recording::BuildId;

/// How much is looked up of each frame in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// The function that was called, by the symbol table.
    SymbolTable,
    /// The functions that are inlined into it too, where there is DWARF.
    #[default]
    Inlined,
    /// The source file and the line of each too.
    Lines,
}

impl Detail {
    /// What a file has to know for that.
    pub(super) fn knowledge(self) -> Knowledge {
        match self {
            Self::SymbolTable => Knowledge::Symbols,
            Self::Inlined | Self::Lines => Knowledge::Dwarf,
        }
    }
}

/// Where names come from, and how much is wanted of them.
#[derive(Clone, Debug, Default)]
pub struct NameSources {
    /// How much is wanted.
    pub detail: Detail,
    /// Where files with names are, apart from those that were mapped.
    pub places: DebugPlaces,
    /// Servers that are asked for what is nowhere else, if any are to be.
    pub debuginfod: Option<Arc<Debuginfod>>,
}

impl NameSources {
    /// The debug file that a server has of a build.
    pub(super) fn fetch(
        &self,
        build_id: &BuildId,
        shortfalls: &mut Shortfalls,
    ) -> Option<Readable> {
        let file = self.debuginfod.as_ref()?.find(build_id)?;
        // Whoever keeps it: what it says is a stranger's.
        let readable = Readable::of_file(file, Trust::Own);
        readable.map_err(|shortfall| count(shortfalls, shortfall)).ok()
    }
}
