//! An unwound stack: its frames, and why there are no more.

use offwake_recording::AddressKind;
use serde::{Deserialize, Serialize};

/// Frames of one stack at most.
pub const MAX_FRAMES: usize = 1024;

/// The frames of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnwoundStack {
    /// The frames, leaf first: at least one, [`MAX_FRAMES`] at most.
    pub frames: Vec<UnwoundFrame>,
    /// Why there are no more frames.
    pub end: UnwindEnd,
}

/// One frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnwoundFrame {
    /// The frame's address in the process.
    pub address: u64,
    /// An instruction for the leaf and for what a signal interrupted, otherwise a return address.
    pub kind: AddressKind,
    /// Where the address lies in the stack copy, in bytes from the beginning of the copy: a
    /// multiple of 8 that grows with each frame. None for the leaf, and for an address that came
    /// from a register.
    pub stack_offset: Option<u32>,
}

/// Why a stack has no more frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnwindEnd {
    /// The thread began here: unwind data says that nothing called this function, or the return
    /// address is 0, or a chain of frame pointers came to its end. Also where Go's own walks end,
    /// if what called that function can't be unwound.
    EntryPoint,
    /// The next word lies behind the copy.
    CopyTooShort,
    /// The next word was not in memory.
    PageMissing,
    /// The stack goes on on another stack: that of what a signal interrupted, or of a goroutine.
    OtherStack,
    /// The code has no unwind data, and no frame pointer to go by.
    NoUnwindInfo {
        /// The address of the last frame.
        address: u64,
    },
    /// The unwind data goes by a register whose value is not known.
    LostRegister {
        /// The address of the last frame.
        address: u64,
    },
    /// What would be the return address is in no executable mapping.
    NotCode {
        /// What would be the return address.
        address: u64,
    },
    /// The unwind data can't be read, or leads nowhere.
    Broken {
        /// The address of the last frame.
        address: u64,
    },
    /// The code is for a machine other than x86-64.
    OtherMachine {
        /// The address of the last frame.
        address: u64,
    },
    /// There are more than [`MAX_FRAMES`] frames.
    TooDeep,
}

impl UnwindEnd {
    /// Whether the code gives no way to unwind it, so that a longer copy or more frames would
    /// change nothing.
    pub(crate) fn is_for_lack_of_data(self) -> bool {
        match self {
            Self::NoUnwindInfo { .. }
            | Self::LostRegister { .. }
            | Self::NotCode { .. }
            | Self::Broken { .. }
            | Self::OtherMachine { .. } => true,
            Self::EntryPoint
            | Self::CopyTooShort
            | Self::PageMissing
            | Self::OtherStack
            | Self::TooDeep => false,
        }
    }
}

/// Why a step from one frame to the next failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    EntryPoint,
    BehindCopy,
    PageMissing,
    BeforeCopy,
    NoUnwindInfo,
    LostRegister,
    Broken,
    OtherMachine,
}

impl Stop {
    /// The end of a stack whose last frame is at `address`.
    pub(crate) fn end(self, address: u64) -> UnwindEnd {
        match self {
            Self::EntryPoint => UnwindEnd::EntryPoint,
            Self::BehindCopy => UnwindEnd::CopyTooShort,
            Self::PageMissing => UnwindEnd::PageMissing,
            Self::BeforeCopy => UnwindEnd::OtherStack,
            Self::NoUnwindInfo => UnwindEnd::NoUnwindInfo { address },
            Self::LostRegister => UnwindEnd::LostRegister { address },
            Self::Broken => UnwindEnd::Broken { address },
            Self::OtherMachine => UnwindEnd::OtherMachine { address },
        }
    }
}
