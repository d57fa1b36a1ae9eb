//! The registers of one frame, as far as they are known.

use offwake_recording::AddressKind;

use crate::{stack::Stop, stack_copy::Registers};

/// Registers that have a number below this are general ones.
///
/// <https://gitlab.com/x86-psABIs/x86-64-ABI>, figure 3.36
pub(crate) const GENERAL: usize = 16;
/// The number of `rbp`.
pub(crate) const RBP: usize = 6;
/// The number of `rsp`.
pub(crate) const RSP: usize = 7;

/// What led to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundBy {
    /// Unwind data, or nothing: it is the leaf.
    Data,
    /// Unwind data, out of the outermost function of Go.
    TopOfGo,
    /// A frame pointer.
    FramePointer,
}

/// The registers of a frame.
#[derive(Clone, Debug)]
pub(crate) struct FrameState {
    pub ip: u64,
    pub kind: AddressKind,
    /// General registers by their DWARF numbers. None if the value is not known.
    pub general: [Option<u64>; GENERAL],
    pub found_by: FoundBy,
}

/// The state of the next frame, and where in the stack copy its return address lies.
pub(crate) type NextFrame = (FrameState, Option<u32>);

impl FrameState {
    /// The state of the leaf.
    pub(crate) fn from_registers(registers: Registers) -> Self {
        let mut general = [None; GENERAL];
        general[RSP] = Some(registers.sp);
        general[RBP] = Some(registers.fp);
        let found_by = FoundBy::Data;
        Self { ip: registers.ip, kind: AddressKind::Instruction, general, found_by }
    }

    /// The address whose unwind data counts. For a return address, that is the byte before it: a
    /// call can be the last instruction of a function.
    pub(crate) fn lookup_address(&self) -> u64 {
        self.ip.saturating_sub(self.kind.before())
    }

    /// The value of a register by its DWARF number. `rip` has the number behind the general
    /// registers.
    pub(crate) fn register(&self, number: usize) -> Result<u64, Stop> {
        match number {
            GENERAL => Ok(self.ip),
            _ => self.general.get(number).copied().flatten().ok_or(Stop::LostRegister),
        }
    }
}
