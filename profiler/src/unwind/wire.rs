//! What is asked of the process that unwinds, and what it answers.
//!
//! ```text
//! Question::Code, once for what a process has mapped ──▶
//! Question::Stacks ──▶
//!                                    ◀── Answer::Wanted: a module, for each whose bytes are needed
//! Question::Content, with the file ──▶
//!                                    ◀── Answer::Unwound, for each stack, in their order
//! ```
//!
//! Many stacks are one question, as nothing is done at the one end while the other waits to be run: on a busy
//! machine that takes longer than the work. Each has its own answer, so that who breaks off has lost one.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Code, MAX_FRAMES, Method, Registers, StackCopy, Unwound, UnwoundFrame, find};
use crate::{
    parser::MAX_MESSAGE,
    recording::{AddressKind, ModuleId},
};

/// Mappings that go into one message.
pub(super) const MAPPINGS: usize = 16_384;
/// Lists of mappings that are kept at the other end.
pub(super) const KEPT: usize = 64;
/// Stacks of one question: as many lists are in use at a time, at most.
pub(super) const STACKS: usize = KEPT / 2;
/// Bytes of all stacks of one question, unless it has one alone: what else it says has room in a message too.
pub(super) const STACK_BYTES: usize = MAX_MESSAGE / 2;

/// To the process that unwinds.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Question<'a> {
    /// What a process has mapped is called by this number from now on; or the rest of it.
    Code { number: u32, part: Part, code: Vec<Code> },
    /// Where have these threads come from?
    Stacks { method: Method, stacks: Vec<Stack<'a>> },
    /// The bytes of a module, if they can be had: in the file that comes along.
    Content,
}

/// A copy, and the number of what its process has mapped.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Stack<'a> {
    pub code: u32,
    pub registers: Registers,
    #[serde(serialize_with = "as_bytes", deserialize_with = "from_bytes")]
    pub bytes: Cow<'a, [u8]>,
    pub missing: u32,
}

/// Which part of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Part {
    First,
    Further,
}

/// From it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// It wants the bytes of a module.
    Wanted(ModuleId),
    /// The frames.
    Unwound(Unwound),
}

fn as_bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

fn from_bytes<'de, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'a, [u8]>, D::Error> {
    <&'de [u8]>::deserialize(deserializer).map(|bytes| Cow::Owned(bytes.to_vec()))
}

/// Whether an answer can be: every frame is in code, and what was read from the stack is on the stack, further
/// up with each frame. What unwinds can choose among such words, and no more.
pub(super) fn is_possible(unwound: &Unwound, code: &[Code], copy: &StackCopy) -> bool {
    let Some((leaf, callers)) = unwound.frames.split_first() else { return false };
    let kind = AddressKind::Instruction;
    if *leaf != (UnwoundFrame { address: copy.registers.ip, kind, at: None }) {
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
            find(code, looked_up).is_some() && frame.at.is_none_or(|at| is_above(at, frame.address))
        })
}
