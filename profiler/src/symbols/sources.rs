//! Where names come from.

use super::{DebugPlaces, elf::Knowledge};

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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameSources {
    /// How much is wanted.
    pub detail: Detail,
    /// Where files with names are, apart from those that were mapped.
    pub places: DebugPlaces,
}
