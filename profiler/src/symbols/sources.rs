//! Where names come from.

use std::{fs::File, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{DebugPlaces, Debuginfod, elf::Knowledge, modules::Trust};
use crate::recording::BuildId;

/// How much is looked up of each frame in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
    /// The debug file that a server has of a build. Whoever keeps it: what it says is a stranger's.
    pub(super) fn fetch(&self, build_id: &BuildId) -> Option<(File, Trust)> {
        Some((self.debuginfod.as_ref()?.find(build_id)?, Trust::Own))
    }
}
