//! How much is looked up of a frame, and how much a file knows.

use serde::{Deserialize, Serialize};

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
    /// What a file has to know for this detail.
    pub(crate) fn required_knowledge(self) -> Knowledge {
        match self {
            Self::SymbolTable => Knowledge::Symbols,
            Self::Inlined | Self::Lines => Knowledge::Dwarf,
        }
    }
}

/// What a file knows of its functions; the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Knowledge {
    /// Inlined functions and lines too.
    Dwarf,
    /// All functions that are called.
    Symbols,
    /// The functions that other files call.
    Exports,
}

/// What the addresses of frames to be named are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressForm {
    /// Offsets in the file.
    FileOffset,
    /// Addresses as the file's own headers have them.
    Address,
}
