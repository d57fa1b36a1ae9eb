//! Stacks: stored once, named once.

use std::collections::BTreeMap;

use crate::units::{StackId, Tgid};

/// A record's stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StackRef {
    /// None was asked for: stacks are off, or this thread has no such half.
    #[default]
    NotTaken,
    /// It was asked for, and the kernel could not give it.
    Failed,
    /// In the [`StackTable`], unless its record was lost.
    Id(StackId),
}

/// What a stack's addresses are addresses of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressSpace {
    /// The kernel.
    Kernel,
    /// A process, as it was when the stack was taken.
    Process(Tgid),
}

/// Index into [`StackTable::frames`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(pub u32);

/// One address of one address space, and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The address, as it was in the address space.
    pub address: u64,
    /// The file that was mapped there, `[vdso]` and the like included; none if nothing was.
    pub module: Option<String>,
    /// The address as an offset into that file.
    pub module_offset: Option<u64>,
    /// Function names, innermost inlined one first, the function itself last. Empty if it can't be
    /// named.
    pub functions: Vec<String>,
}

/// A stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// What its addresses are addresses of.
    pub space: AddressSpace,
    /// Its frames, leaf first.
    pub frames: Vec<FrameId>,
}

/// Every stack of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackTable {
    /// By id.
    pub stacks: BTreeMap<StackId, Stack>,
    /// Every distinct frame, by [`FrameId`].
    pub frames: Vec<Frame>,
}

impl StackTable {
    /// The frames of a stack, leaf first; empty if there is no such stack.
    pub fn frames_of(&self, id: StackId) -> impl DoubleEndedIterator<Item = &Frame> {
        self.stacks
            .get(&id)
            .into_iter()
            .flat_map(|stack| stack.frames.iter())
            .filter_map(|frame| self.frames.get(frame.0 as usize))
    }
}

impl StackTable {
    /// Takes off the frames of the tracing itself, with which a kernel stack begins that was taken
    /// of the running task: they say how it was looked at, not what it did.
    pub fn trim_tracing_frames(&mut self) {
        const TRACING: &[&str] =
            &["bpf_prog_", "bpf_trace_run", "__bpf_trace_", "__traceiter_", "bpf_trampoline_"];
        let frames = &self.frames;
        let is_tracing = |id: &FrameId| {
            frames
                .get(id.0 as usize)
                .and_then(|frame| frame.functions.last())
                .is_some_and(|function| TRACING.iter().any(|prefix| function.starts_with(prefix)))
        };
        for stack in self.stacks.values_mut() {
            if stack.space != AddressSpace::Kernel {
                continue;
            }
            // Not simply those in front: a helper of the program may lie before them.
            if let Some(last) = stack.frames.iter().take(8).rposition(is_tracing) {
                stack.frames.drain(..=last);
            }
        }
    }
}
