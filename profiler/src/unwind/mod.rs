//! From the registers of a thread and a copy of the top of its stack to its frames: the only place
//! that names gimli and iced.
//!
//! ```text
//!           Code                            Rules: kept
//! address -------> (module, offset, kind) -------------> rule --> the caller's address, sp, registers
//!    ^                                |                  ^                       |
//!    |                                +------------------+                       |
//!    |          Modules: kept; .eh_frame, .gopclntab or .debug_frame             |
//!    |          Decoder: the instructions, where there is none of these          |
//!    +---------------------------------------------------------------------------+
//! ```
//!
//! A rule is worked out once for all processes that have mapped the module: it says where the
//! caller's registers are relative to the registers, not where anything is.
//!
//! Only x86-64, and only 64-bit programs: code for any other machine is told by its file
//! ([`End::OtherMachine`]), as registers have other numbers there.
//!
//! gimli, and no unwinder made of it: [framehop] follows the frame pointer wherever unwind data has
//! nothing to say or can't be read, and does not tell. What can't be unwound has to be known here,
//! because a frame that is guessed wrong blames the wrong function.
//!
//! [framehop]: https://github.com/mstange/framehop/blob/v0.16.0/src/unwinder.rs

mod answering;
mod apart;
mod copy;
mod decoded;
mod elf;
mod entries;
mod expression;
mod frame_pointer;
mod gopclntab;
mod header;
mod modules;
mod rule;
mod rules;
pub(crate) mod split_off;
mod step;
mod tables;
#[cfg(test)]
mod tests;
mod trampoline;
mod wire;

use std::{fs::File, sync::Arc};

use decoded::Decoder;
use gimli::UnwindContext;
use modules::Modules;
use rule::Rule;
use rules::{Place, Rules};
use step::{By, State, Stop};

pub use answering::answer;
pub(crate) use apart::is_same;
pub use apart::{Asked, UnwinderApart, hear};
pub use copy::{MissingPages, StackCopy};
use serde::{Deserialize, Serialize};

use crate::recording::{
    AddressKind, ModuleId,
    loss::{Shortfalls, add_all},
};

/// Frames of one stack.
pub const MAX_FRAMES: usize = 1024;

/// What a thread is unwound from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registers {
    /// `rip`
    pub ip: u64,
    /// `rsp`
    pub sp: u64,
    /// `rbp`
    pub fp: u64,
}

/// How stacks are unwound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Method {
    /// By unwind data; where code has none, by frame pointers if they can be that.
    #[default]
    Auto,
    /// By frame pointers alone, as `bpf_get_stack` does.
    FramePointers,
    /// By unwind data alone.
    Dwarf,
}

impl Method {
    /// As the command line has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::FramePointers => "fp",
            Self::Dwarf => "dwarf",
        }
    }
}

/// An executable mapping of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Code {
    /// Its first address.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// What is mapped.
    pub file: CodeFile,
}

/// What executable memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CodeFile {
    /// A file, or the vDSO.
    File(ModuleId),
    /// Code that was made at run time.
    Memory,
}

/// The bytes of a module.
#[derive(Debug)]
pub enum Content {
    /// Opened to be read. It is never mapped: a file that is cut short while it is mapped kills the
    /// reader.
    File(File),
    /// These are the bytes.
    Image(Arc<[u8]>),
}

/// Where the bytes of modules come from.
pub trait Files {
    /// The bytes of a module; none if they can't be had. Asked when a module's unwind data is wanted
    /// and not remembered, and once more for a return address that it does not cover.
    fn content(&self, module: ModuleId) -> Option<Content>;
}

/// A stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unwound {
    /// Leaf first, at least one, [`MAX_FRAMES`] at most.
    pub frames: Vec<UnwoundFrame>,
    /// Why there are no more.
    pub end: End,
}

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnwoundFrame {
    /// Its address in the process.
    pub address: u64,
    /// An instruction for the leaf and for what a signal interrupted.
    pub kind: AddressKind,
    /// Where its address lies in the copy, in bytes from its beginning: further up with each frame,
    /// and at a multiple of 8. None for the leaf, and for what was taken from a register.
    pub at: Option<u32>,
}

/// Why a stack has no more frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// This is where the thread began: unwind data says that nothing called this function, or the
    /// return address is 0, or a chain of frame pointers came to its end. Also where Go's own walks end,
    /// if what called it can't be unwound.
    EntryPoint,
    /// The next word lies behind the copy.
    CopyTooShort,
    /// The next word was not in memory.
    PageMissing,
    /// It goes on on another stack: that of what a signal interrupted, or of a goroutine.
    OtherStack,
    /// The code here has no unwind data, and no frame pointer to go by.
    NoUnwindInfo {
        /// The last frame's.
        address: u64,
    },
    /// Unwind data goes by a register whose value is not known.
    LostRegister {
        /// The last frame's.
        address: u64,
    },
    /// What would be the return address is in no executable mapping.
    NotCode {
        /// That address.
        address: u64,
    },
    /// Unwind data that can't be read, or leads nowhere.
    Broken {
        /// The last frame's.
        address: u64,
    },
    /// The code is for a machine whose unwind data is not read here: only x86-64's is.
    OtherMachine {
        /// The last frame's.
        address: u64,
    },
    /// There are more than [`MAX_FRAMES`].
    TooDeep,
}

impl End {
    /// Whether a longer copy or more frames would change nothing.
    fn is_for_lack_of_data(self) -> bool {
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

/// Unwinds the stacks of all processes.
pub struct Unwinder {
    method: Method,
    rules: Rules,
    modules: Modules,
    context: UnwindContext<usize>,
    decoder: Decoder,
}

impl Unwinder {
    /// Knows no module yet.
    #[must_use]
    pub fn new(method: Method) -> Self {
        let (rules, modules, decoder) = (Rules::new(), Modules::new(), Decoder::new());
        Self { method, rules, modules, context: UnwindContext::new(), decoder }
    }

    /// Unwinds one stack. `code` is all that its process has of executable mappings, sorted by
    /// address.
    pub fn unwind(&mut self, code: &[Code], files: &impl Files, copy: &StackCopy) -> Unwound {
        self.decoder.begin();
        let mut state = State::of(copy.registers);
        let mut frames =
            vec![UnwoundFrame { address: state.ip, kind: AddressKind::Instruction, at: None }];
        let mut of_go = None;
        let end = loop {
            let (next, at) = match self.step(code, files, copy, &state) {
                Ok(step) => step,
                Err(end) => break end,
            };
            if next.by == By::TopOfGo {
                of_go = Some(frames.len());
            }
            if find(code, next.looked_up()).is_none() {
                break End::NotCode { address: next.ip };
            }
            if frames.len() == MAX_FRAMES {
                break End::TooDeep;
            }
            frames.push(UnwoundFrame { address: next.ip, kind: next.kind, at });
            state = next;
        };
        match of_go {
            // What is behind Go's own frames, if anything, keeps it to itself.
            Some(of_go) if end.is_for_lack_of_data() => {
                frames.truncate(of_go);
                Unwound { frames, end: End::EntryPoint }
            }
            _ => Unwound { frames, end },
        }
    }

    /// The state of the caller, and where in the copy its address lies.
    fn step(
        &mut self,
        code: &[Code],
        files: &impl Files,
        copy: &StackCopy,
        state: &State,
    ) -> Result<(State, Option<u32>), End> {
        let address = state.ip;
        let Some(here) = find(code, state.looked_up()) else {
            return Err(End::NotCode { address });
        };
        if self.method == Method::FramePointers {
            return frame_pointer::step(state, copy).map_err(|stop| stop.end(address));
        }
        let rule = self.rule(here, files, state);
        let stop = match &rule {
            Rule::Frame(frame) => {
                return step::by_rule(frame, state, copy).map_err(|stop| stop.end(address));
            }
            Rule::TopOfGo(frame) => {
                let step = step::by_rule(frame, state, copy).map_err(|stop| stop.end(address));
                return step.map(|(next, at)| (State { by: By::TopOfGo, ..next }, at));
            }
            Rule::Trampoline => {
                return trampoline::step(state, copy).map_err(|stop| stop.end(address));
            }
            Rule::EntryPoint => Stop::EntryPoint,
            Rule::OtherStack => Stop::BeforeCopy,
            Rule::Unreadable => Stop::Broken,
            Rule::Decoded(decoded) => {
                let place = Place::of(here, state).ok_or(End::NoUnwindInfo { address })?;
                match self.decoder.step(decoded, (place, state), code, files, copy) {
                    Ok(step) => return Ok(step),
                    Err(stop @ (Stop::BehindCopy | Stop::PageMissing)) => stop,
                    Err(_) => match by_frame_pointer(code, copy, state) {
                        Ok(step) => return Ok(step),
                        Err(stop) => stop,
                    },
                }
            }
            Rule::OtherMachine => Stop::OtherMachine,
            Rule::Uncovered if self.method == Method::Auto => {
                match by_frame_pointer(code, copy, state) {
                    Ok(step) => return Ok(step),
                    Err(stop) => stop,
                }
            }
            Rule::Uncovered => Stop::NoUnwindInfo,
        };
        Err(stop.end(address))
    }

    /// What is to be done at an address.
    fn rule(&mut self, here: &Code, files: &impl Files, state: &State) -> Rule {
        let Some(place) = Place::of(here, state) else { return Rule::Uncovered };
        if let Some(rule) = self.rules.get(place) {
            return rule;
        }
        let mut rule = self.modules.rule(place, files, &mut self.context);
        if matches!(rule, Rule::Uncovered)
            && state.kind == AddressKind::Return
            && trampoline::is_at(files.content(place.module), place.ip())
        {
            rule = Rule::Trampoline;
        }
        if matches!(rule, Rule::Uncovered) && self.method == Method::Auto {
            rule = self.decoder.rule(place, files);
            if self.decoder.is_exhausted() {
                return rule;
            }
        }
        self.rules.put(place, rule.clone());
        rule
    }

    /// Bytes of unwind data that are kept now.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.modules.bytes() + self.rules.bytes() + self.decoder.bytes()
    }

    /// What could not be done.
    #[must_use]
    pub fn shortfalls(&self) -> Shortfalls {
        let mut all = Shortfalls::new();
        add_all(&mut all, self.modules.shortfalls());
        all
    }
}

/// As the frame pointer leads, if it can be one.
fn by_frame_pointer(
    code: &[Code],
    copy: &StackCopy,
    state: &State,
) -> Result<(State, Option<u32>), Stop> {
    match frame_pointer::step(state, copy)? {
        // A register that holds anything at all can look like a frame pointer, but hardly with code's
        // address above where it points to.
        (next, _) if find(code, next.looked_up()).is_none() => Err(Stop::NoUnwindInfo),
        step => Ok(step),
    }
}

/// The mapping that an address lies in.
fn find(code: &[Code], address: u64) -> Option<&Code> {
    let behind = code.partition_point(|code| code.start <= address);
    code.get(behind.checked_sub(1)?).filter(|code| address < code.end)
}
