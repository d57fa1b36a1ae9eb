//! An address as a place in a file, which is the same in all processes.

use offwake_recording::{AddressKind, ModuleId};

use crate::{
    mapping::{CodeBacking, CodeMapping},
    state::FrameState,
};

/// A place in a module's code, independent of where processes have mapped it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CodeLocation {
    pub module: ModuleId,
    /// The offset in the file of the address to look up.
    pub offset: u64,
    pub kind: AddressKind,
}

impl CodeLocation {
    /// Where a frame lies in the file of a mapping, or none if the mapping has no file.
    pub(crate) fn in_mapping(mapping: &CodeMapping, state: &FrameState) -> Option<Self> {
        let CodeBacking::File(module) = mapping.backing else { return None };
        let within = state.lookup_address().checked_sub(mapping.start)?;
        let offset = within.checked_add(mapping.offset)?;
        Some(Self { module, offset, kind: state.kind })
    }

    /// The frame's own address, as an offset in the file.
    pub(crate) fn ip_offset(self) -> u64 {
        self.offset.saturating_add(self.kind.before())
    }
}
