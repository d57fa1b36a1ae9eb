//! Stacks: stored once, named once.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use super::Function;
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

/// Names one module within a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ModuleId(pub u32);

/// What tells one build of a file from every other: the contents of its GNU build-id note.
///
/// <https://sourceware.org/binutils/docs/ld/Options.html>, `--build-id`
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BuildId(Vec<u8>);

impl BuildId {
    /// Bytes that one has at most. Linkers write 8 to 32.
    pub const MAX: usize = 64;

    /// None if that is no build id: longer than [`Self::MAX`], or empty, or zeros alone, as some
    /// write who want to have none.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let says_something = bytes.iter().any(|&byte| byte != 0);
        (bytes.len() <= Self::MAX && says_something).then(|| Self(bytes.to_vec()))
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// In hex, as `readelf --notes` has it.
impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Text that is no build id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a build id is 1 to {} bytes in hex", BuildId::MAX)]
pub struct NotABuildId;

impl FromStr for BuildId {
    type Err = NotABuildId;

    fn from_str(text: &str) -> Result<Self, NotABuildId> {
        let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
        let digits = digits.filter(|digits| digits.len() % 2 == 0).ok_or(NotABuildId)?;
        let bytes: Vec<u8> =
            digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect();
        Self::new(&bytes).ok_or(NotABuildId)
    }
}

/// Code that a file wants to have mapped: an executable `PT_LOAD` of its program headers.
///
/// <https://refspecs.linuxfoundation.org/elf/gabi4+/ch5.pheader.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Segment {
    /// Where it is in the file, in bytes.
    pub offset: u64,
    /// The address that it is linked for, which symbols and DWARF have.
    pub address: u64,
    /// Bytes of it that are in the file.
    pub size: u64,
}

/// What addresses lie in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// A file's path as `/proc/PID/maps` shows it, or a name in brackets: `[kernel]`, `[vdso]`,
    /// `[anon]` and the like.
    pub path: String,
    /// None if there is none, or if it could not be read in time.
    pub build_id: Option<BuildId>,
    /// Its code, as the file itself says where it is: not to be believed. Empty if it is not known,
    /// and for what is no file.
    pub segments: Vec<Segment>,
}

/// How a stack came to have an address.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum AddressKind {
    /// The instruction that was at hand.
    Instruction,
    /// Where a call returns to: it can lie behind the last instruction of the function that called,
    /// so its name is that of one byte before it.
    Return,
}

impl AddressKind {
    /// How many bytes before the address its name is looked up.
    #[must_use]
    pub fn before(self) -> u64 {
        match self {
            Self::Instruction => 0,
            Self::Return => 1,
        }
    }
}

/// Names one frame within a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(pub u32);

/// One address of one address space, and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The address, as it was in the address space where it was seen first.
    pub address: u64,
    /// What kind of address.
    pub kind: AddressKind,
    /// What was mapped there; none if nothing was.
    pub module: Option<ModuleId>,
    /// The address as an offset into that file or, for memory, into that mapping.
    pub module_offset: Option<u64>,
    /// Innermost inlined one first, the function itself last. Empty if it can't be named.
    pub functions: Vec<Function>,
}

impl Frame {
    /// The names of its functions, innermost first.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.functions.iter().map(|function| function.name.as_str())
    }
}

/// Where the frames of a stack end, and why.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum StackEnd {
    /// Nobody looked: the kernel walked it.
    #[default]
    Unknown,
    /// Where its thread began.
    EntryPoint,
    /// The largest copy that was made of it did not reach further.
    CopyTooShort,
    /// A page of it was not in memory.
    PageMissing,
    /// In code that says nothing of its frames.
    NoUnwindInfo,
    /// The next return address is none.
    NotCode,
    /// What is said of its frames makes no sense.
    Broken,
    /// There are more frames than are kept.
    TooDeep,
    /// A signal handler with a stack of its own: what it interrupted was not copied.
    OtherStack,
    /// A register is wanted that nothing gives the value of.
    LostRegister,
    /// The wait had begun before the window, and was over before its stack could be read.
    WaitOver,
    /// In code for a machine that is not unwound: only x86-64 is.
    OtherMachine,
    /// The process that unwinds failed, or it is its own.
    NotUnwound,
}

/// A stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    /// What its addresses are addresses of.
    pub space: AddressSpace,
    /// Its frames, leaf first.
    pub frames: Vec<FrameId>,
    /// Why there are no more.
    pub end: StackEnd,
}

/// Every stack of a recording. A recording that was damaged can lack any of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackTable {
    /// By id.
    pub stacks: BTreeMap<StackId, Stack>,
    /// Every distinct frame.
    pub frames: BTreeMap<FrameId, Frame>,
    /// Every module that a frame lies in.
    pub modules: BTreeMap<ModuleId, Module>,
}

/// What came to a [`StackTable`] in the course of a recording: names come last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewStacks {
    /// Modules that frames lie in.
    pub modules: Vec<(ModuleId, Module)>,
    /// Frames, without names.
    pub frames: Vec<(FrameId, Frame)>,
    /// Stacks. The same one can come again.
    pub stacks: Vec<(StackId, Stack)>,
    /// Those of them that nothing refers to but records of about now.
    pub passing: Vec<(AddressSpace, StackId)>,
    /// Names of frames that are known already.
    pub names: Vec<(FrameId, Vec<Function>)>,
}

impl StackTable {
    /// The frames of a stack, leaf first; empty if there is no such stack. Frames that are not in
    /// the table are left out.
    pub fn frames_of(&self, id: StackId) -> impl DoubleEndedIterator<Item = &Frame> {
        self.stacks
            .get(&id)
            .into_iter()
            .flat_map(|stack| stack.frames.iter())
            .filter_map(|frame| self.frames.get(frame))
    }

    /// Adds what is new. What is there already stays as it is.
    pub fn add(&mut self, new: NewStacks) {
        for (id, module) in new.modules {
            self.modules.entry(id).or_insert(module);
        }
        for (id, frame) in new.frames {
            self.frames.entry(id).or_insert(frame);
        }
        for (id, stack) in new.stacks {
            self.stacks.entry(id).or_insert(stack);
        }
    }

    /// Gives frames their names.
    pub fn name(&mut self, names: Vec<(FrameId, Vec<Function>)>) {
        for (id, functions) in names {
            if let Some(frame) = self.frames.get_mut(&id) {
                frame.functions = functions;
            }
        }
    }

    /// Leaves out where the functions in mapped files are written. Of code that an interpreter or a
    /// JIT made it stays: there it is a part of what a function is called.
    pub fn leave_out_lines_of_files(&mut self) {
        let is_file = |module: &Module| module.path.starts_with('/');
        for frame in self.frames.values_mut() {
            if frame.module.and_then(|id| self.modules.get(&id)).is_some_and(is_file) {
                for function in &mut frame.functions {
                    (function.file, function.line) = (None, None);
                }
            }
        }
    }

    /// What a frame lies in; none if that is not in the table.
    #[must_use]
    pub fn module_of(&self, frame: &Frame) -> Option<&Module> {
        self.modules.get(&frame.module?)
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
                .get(id)
                .and_then(|frame| frame.names().next_back())
                .is_some_and(|name| TRACING.iter().any(|prefix| name.starts_with(prefix)))
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
