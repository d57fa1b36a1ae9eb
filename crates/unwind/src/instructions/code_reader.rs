//! The instructions of a module, by their offsets in its file.

use std::os::unix::fs::FileExt;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

use crate::mapping::FileContent;

/// Bytes that are read of a file at a time.
const WINDOW: usize = 4096;
/// Bytes of the longest instruction.
const LONGEST: usize = 15;
/// Bytes that a call by an address in a register or in memory can have: a prefix, the code, two for
/// the operand and a displacement.
const INDIRECT_CALL: std::ops::RangeInclusive<u64> = 2..=8;

/// A call instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// A call of what is at an offset in the same file.
    To(u64),
    /// A call of an address that is not in the code.
    Indirect,
}

/// Reads the instructions of one file.
pub(super) struct CodeReader {
    content: FileContent,
    window: Vec<u8>,
    window_at: u64,
}

impl CodeReader {
    pub(super) fn new(content: FileContent) -> Self {
        Self { content, window: Vec::new(), window_at: 0 }
    }

    /// Decodes the instruction at an offset, if there is a valid one.
    pub(super) fn instruction(&mut self, offset: u64) -> Option<Instruction> {
        let bytes = self.bytes(offset)?;
        let bytes = bytes.get(..LONGEST).unwrap_or(bytes);
        let decoded = Decoder::with_ip(64, bytes, offset, DecoderOptions::NONE).decode();
        (!decoded.is_invalid()).then_some(decoded)
    }

    /// Decodes the call that returns to an offset.
    pub(super) fn call_before(&mut self, offset: u64) -> Option<Call> {
        let mut with_size = |size| {
            let call = self.instruction(offset.checked_sub(size)?)?;
            (call.next_ip() == offset).then_some(call)
        };
        if let Some(call) = with_size(5).filter(Instruction::is_call_near) {
            return Some(Call::To(call.near_branch64()));
        }
        let indirect = INDIRECT_CALL.filter_map(with_size);
        let mut indirect = indirect.filter(|call| call.flow_control() == FlowControl::IndirectCall);
        indirect.next().map(|_| Call::Indirect)
    }

    /// The bytes at an offset, to the end of the window at least.
    fn bytes(&mut self, offset: u64) -> Option<&[u8]> {
        let FileContent::File(file) = &self.content else {
            let FileContent::Image(image) = &self.content else { return None };
            return image.get(usize::try_from(offset).ok()?..);
        };
        let last = self.window.len().checked_sub(LONGEST);
        let is_inside = |within: &u64| {
            last.is_some_and(|last| usize::try_from(*within).is_ok_and(|at| at <= last))
        };
        if offset.checked_sub(self.window_at).filter(is_inside).is_none() {
            self.window.resize(WINDOW, 0);
            // Code is mostly read forwards, but a call is read from behind.
            self.window_at = offset.saturating_sub(WINDOW as u64 / 4);
            let read = file.read_at(&mut self.window, self.window_at).ok()?;
            self.window.truncate(read);
        }
        self.window.get(usize::try_from(offset - self.window_at).ok()?..)
    }
}
