//! The messages between offwake and the process that unwinds.
//!
//! ```text
//! Request::Mappings, once for each list ──▶
//! Request::Stacks ──▶
//!                                  ◀── Reply::NeedsFile, for each module whose bytes are needed
//! Request::File, with the file ──▶
//!                                  ◀── Reply::Unwound, all stacks in their order
//! ```
//!
//! One request has many stacks, and so has one reply, because each end does nothing while the other
//! waits for a CPU: on a busy machine that takes longer than the work. If there is no reply, each
//! stack is asked for again by itself, so that a server that dies of one stack costs that stack
//! alone.

use std::borrow::Cow;

use offwake_recording::{AddressKind, ModuleId};
use offwake_unwind::{
    CodeMapping, MAX_FRAMES, Method, Registers, StackCopy, UnwoundFrame, UnwoundStack, find_mapping,
};
use serde::{Deserialize, Serialize};

use crate::parser::{self, MAX_MESSAGE};

/// Mappings in one message at most.
pub(super) const MAX_MAPPINGS: usize = 16_384;
/// Lists of mappings that the server keeps.
pub(super) const MAX_LISTS: usize = 128;
/// Stacks of one request at most: no more lists than these are in use at a time.
pub(super) const MAX_STACKS: usize = MAX_LISTS / 2;
/// Bytes of a frame in a message at most: its address, its kind, and its place on the stack.
const MAX_FRAME_BYTES: usize = 10 + 1 + 1 + 5;
const _: () = assert!(MAX_STACKS * MAX_FRAMES * MAX_FRAME_BYTES < MAX_MESSAGE);
/// Bytes of all stacks of one request, unless it has one stack alone: the rest of the message has
/// to fit too.
pub(super) const MAX_STACK_BYTES: usize = MAX_MESSAGE / 2;

/// From offwake to the process that unwinds.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request<'a> {
    /// A list of a process's mappings, which has this number from now on; or a further part of it.
    Mappings { number: u32, part: ListPart, code: Vec<CodeMapping> },
    /// Stacks to unwind.
    Stacks { method: Method, stacks: Vec<CopiedStack<'a>> },
    /// The file of the module that the server needs comes with this message, if there is one.
    File,
}

/// A stack copy, and the number of the list of its process's mappings.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CopiedStack<'a> {
    pub code: u32,
    pub registers: Registers,
    #[serde(with = "parser::bytes")]
    pub red_zone: Cow<'a, [u8]>,
    #[serde(with = "parser::bytes")]
    pub bytes: Cow<'a, [u8]>,
    pub missing: u32,
}

/// Which part of a list a message has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ListPart {
    First,
    Further,
}

/// From the process that unwinds to offwake.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The server needs the bytes of a module.
    NeedsFile(ModuleId),
    /// The frames of each stack of the request.
    Unwound(Vec<UnwoundStack>),
}

/// Whether these can be the frames of a stack: every frame is in code, and what was read from the
/// stack is on the stack, further up with each frame. The server can choose among such words, and
/// no more.
pub(super) fn is_possible(unwound: &UnwoundStack, code: &[CodeMapping], copy: &StackCopy) -> bool {
    let Some((leaf, callers)) = unwound.frames.split_first() else { return false };
    let kind = AddressKind::Instruction;
    if *leaf != (UnwoundFrame { address: copy.registers.ip, kind, stack_offset: None }) {
        return false;
    }
    let mut above = 0;
    let mut is_above = |at: u32, address: u64| {
        let at = at as usize;
        let word = copy.bytes.get(at..).and_then(|bytes| bytes.first_chunk());
        let is_there = word.is_some_and(|&word| u64::from_le_bytes(word) == address);
        let is_further = at >= above && at.is_multiple_of(8);
        above = at.saturating_add(8);
        is_there && is_further
    };
    unwound.frames.len() <= MAX_FRAMES
        && callers.iter().all(|frame| {
            let looked_up = frame.address.wrapping_sub(frame.kind.before());
            find_mapping(code, looked_up).is_some()
                && frame.stack_offset.is_none_or(|at| is_above(at, frame.address))
        })
}
