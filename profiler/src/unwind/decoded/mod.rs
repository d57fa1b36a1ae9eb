//! Frames of code that says nothing of them, from its instructions: musl's libc, assembler, what cgo's
//! linker leaves of C code.
//!
//! ```text
//! begin ---------- every way there is ----------> here: so far below the return address is `rsp`
//!   ^                                                              |
//!   +---- the call that the return address follows leads there <---+
//! ```
//!
//! Code is followed from where its function begins to where the thread is, and the stack pointer with
//! it. The begin is what a symbol says. Without one, the code is followed to its returns instead, and what
//! was called by whom each of them would return to has to lead here, with the same stack pointer. Either
//! way, there has to be a call in front of the return address, and not one of something else. What can't be
//! followed, or is not the same on each way, is no frame: one that is guessed names the wrong caller.

mod effect;
mod flow;
mod functions;
mod text;

use std::{collections::HashMap, sync::Arc};

use super::{
    Code, Files,
    copy::StackCopy,
    find,
    rule::{Cfa, Frame, Rule, Saved},
    rules::Place,
    step::{RSP, State, Stop, by_rule},
};
use crate::recording::{AddressKind, ModuleId};
use effect::Depths;
use flow::{Reached, Target};
use functions::Functions;
use text::{Call, Text};

/// Instructions that are looked at for one stack.
const MAX_INSTRUCTIONS: u32 = 1 << 16;
/// What is known of calls, in calls.
const MAX_CALLS: usize = 8192;
/// Bytes of what is known of functions.
const MAX_BYTES: usize = 16 << 20;

/// How a function's frame is found at one of its addresses.
#[derive(Debug)]
pub(super) struct Decoded {
    /// Where the function begins, and the frame that follows from it.
    begun: Option<(u64, Arc<Frame>)>,
    /// Where the return address can be, by the ways on from here: bytes above `rsp`.
    returns: Vec<i64>,
}

#[cfg(test)]
impl Decoded {
    /// The frame that follows from where the function begins.
    pub(super) fn frame(&self) -> Option<&Frame> {
        self.begun.as_ref().map(|(_, frame)| &**frame)
    }
}

/// The instructions from one offset to another.
#[cfg(test)]
pub(super) fn instructions(
    content: super::Content,
    begin: u64,
    end: u64,
) -> Vec<iced_x86::Instruction> {
    let mut text = Text::new(content);
    let mut offset = begin;
    let mut next = || {
        let instruction = text.instruction(offset).filter(|_| offset < end)?;
        offset = instruction.next_ip();
        Some(instruction)
    };
    std::iter::from_fn(&mut next).collect()
}

/// Decodes the code of all modules.
pub(super) struct Decoder {
    functions: HashMap<ModuleId, Arc<Functions>>,
    bytes: usize,
    /// The frame of a place, if it was called from another one.
    calls: HashMap<(Place, Place), Option<Arc<Frame>>>,
    instructions_left: u32,
}

impl Decoder {
    pub(super) fn new() -> Self {
        let (functions, calls) = (HashMap::new(), HashMap::new());
        Self { functions, bytes: 0, calls, instructions_left: 0 }
    }

    /// One more stack.
    pub(super) fn begin(&mut self) {
        self.instructions_left = MAX_INSTRUCTIONS;
    }

    /// Whether there was too much to look at for one stack: what was found since may be less than there
    /// is.
    pub(super) fn is_exhausted(&self) -> bool {
        self.instructions_left == 0
    }

    /// What its code says of a place.
    pub(super) fn rule(&mut self, place: Place, files: &impl Files) -> Rule {
        self.of_place(place, files).unwrap_or(Rule::Uncovered)
    }

    fn of_place(&mut self, place: Place, files: &impl Files) -> Option<Rule> {
        let functions = self.functions(place.module, files)?;
        let mut text = Text::new(files.content(place.module)?);
        let target = Target { offset: place.ip(), kind: place.kind };
        if functions
            .entry()
            .is_some_and(|entry| flow::is_in_first_function(entry, target, &mut text))
        {
            return Some(Rule::EntryPoint);
        }
        let begin = functions.begin(place.offset);
        let depths = begin.and_then(|begin| {
            flow::from(begin, target, &functions, &mut text, &mut self.instructions_left).at
        });
        let on = flow::on(target.offset, &functions, &mut text, &mut self.instructions_left);
        // It has taken its own return address off the stack, and never returns: the first function of a
        // thread.
        if depths.is_some_and(|depths| depths.has_no_return_address()) {
            return on.never_returns().then_some(Rule::EntryPoint);
        }
        let begun = begin.zip(depths.and_then(frame).map(Arc::new));
        let decoded = Decoded { begun, returns: on.returns };
        let says_something = decoded.begun.is_some() || !decoded.returns.is_empty();
        says_something.then(|| Rule::Decoded(decoded.into()))
    }

    /// The caller of a frame, if there is no doubt of it.
    pub(super) fn step(
        &mut self,
        decoded: &Decoded,
        (place, state): (Place, &State),
        code: &[Code],
        files: &impl Files,
        copy: &StackCopy,
    ) -> Result<(State, Option<u32>), Stop> {
        if let Some((begin, frame)) = &decoded.begun {
            let step = by_rule(frame, state, copy)?;
            let is_it = self.called(&step.0, code, files).is_some_and(|(caller, call)| {
                let Call::To(callee) = call else { return true };
                caller.module != place.module
                    || callee == *begin
                    || self.of_call((place, caller), callee, frame, files)
            });
            return if is_it { Ok(step) } else { Err(Stop::NoUnwindInfo) };
        }
        let sp = state.register(RSP)?;
        let mut beyond = None;
        for &depth in &decoded.returns {
            let at = sp.checked_add_signed(depth).ok_or(Stop::NoUnwindInfo)?;
            let ip = match copy.return_address(at) {
                Ok((ip, _)) => ip,
                Err(stop @ (Stop::BehindCopy | Stop::PageMissing)) => {
                    beyond = Some(stop);
                    continue;
                }
                Err(_) => continue,
            };
            let caller = State { ip, kind: AddressKind::Return, ..state.clone() };
            let Some((caller, Call::To(callee))) = self.called(&caller, code, files) else {
                continue;
            };
            if caller.module == place.module
                && let Some(frame) = self.frame_from((place, caller), callee, files)
                && frame.is_of_depth(depth)
            {
                return by_rule(&frame, state, copy);
            }
        }
        Err(beyond.unwrap_or(Stop::NoUnwindInfo))
    }

    /// Where a frame was called from, and what was called there.
    fn called(
        &mut self,
        caller: &State,
        code: &[Code],
        files: &impl Files,
    ) -> Option<(Place, Call)> {
        let place = Place::of(find(code, caller.looked_up())?, caller)?;
        let call = Text::new(files.content(place.module)?).call_before(place.ip())?;
        Some((place, call))
    }

    /// Whether what was called somewhere else can lead to a place with this frame.
    fn of_call(
        &mut self,
        (place, caller): (Place, Place),
        callee: u64,
        frame: &Frame,
        files: &impl Files,
    ) -> bool {
        match self.frame_from((place, caller), callee, files) {
            Some(from) => from.is_found_like(frame),
            // It goes on by an address that is not in the code: by a stub to another module, say.
            None => {
                self.reached(place, callee, files).is_some_and(|reached| reached.leads_anywhere)
            }
        }
    }

    /// The frame of a place, if `callee` was called.
    fn frame_from(
        &mut self,
        (place, caller): (Place, Place),
        callee: u64,
        files: &impl Files,
    ) -> Option<Arc<Frame>> {
        if let Some(known) = self.calls.get(&(place, caller)) {
            return known.clone();
        }
        let depths = self.reached(place, callee, files).and_then(|reached| reached.at);
        let frame = depths.and_then(frame).map(Arc::new);
        if !self.is_exhausted() {
            if self.calls.len() == MAX_CALLS {
                self.calls.clear();
            }
            self.calls.insert((place, caller), frame.clone());
        }
        frame
    }

    fn reached(&mut self, place: Place, begin: u64, files: &impl Files) -> Option<Reached> {
        let functions = self.functions(place.module, files)?;
        let mut text = Text::new(files.content(place.module)?);
        let target = Target { offset: place.ip(), kind: place.kind };
        Some(flow::from(begin, target, &functions, &mut text, &mut self.instructions_left))
    }

    fn functions(&mut self, module: ModuleId, files: &impl Files) -> Option<Arc<Functions>> {
        if let Some(functions) = self.functions.get(&module) {
            return Some(Arc::clone(functions));
        }
        let functions = Arc::new(Functions::read(&files.content(module)?)?);
        if self.bytes + functions.bytes() > MAX_BYTES {
            self.functions.clear();
            self.bytes = 0;
        }
        self.bytes += functions.bytes();
        self.functions.insert(module, Arc::clone(&functions));
        Some(functions)
    }

    /// Where the functions of a module begin and end.
    #[cfg(test)]
    pub(super) fn functions_of(&mut self, module: ModuleId, files: &impl Files) -> Vec<(u64, u64)> {
        self.functions(module, files).map_or_else(Vec::new, |functions| functions.all())
    }

    /// Bytes that are kept.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.calls.len() * size_of::<((Place, Place), Option<Arc<Frame>>)>()
    }
}

/// Where the caller's registers are; none if its return address can't be found.
fn frame(depths: Depths) -> Option<Frame> {
    let (number, depth) = depths.return_address()?;
    let saved = depths.saved().map(|(number, below)| {
        let at = below.and_then(|below| (-8_i64).checked_sub(below));
        (number, at.map_or(Saved::Undefined, Saved::AtCfa))
    });
    Some(Frame {
        cfa: Cfa::Register { number, offset: depth.checked_add(8)? },
        return_address: Saved::AtCfa(-8),
        saved: saved.collect(),
        resumes: AddressKind::Return,
    })
}

impl Frame {
    fn is_of_depth(&self, depth: i64) -> bool {
        matches!(self.cfa, Cfa::Register { number: RSP, offset } if offset.checked_sub(8) == Some(depth))
    }

    fn is_found_like(&self, other: &Self) -> bool {
        let by = |frame: &Self| match frame.cfa {
            Cfa::Register { number, offset } => Some((number, offset)),
            Cfa::Expression(_) => None,
        };
        by(self).is_some() && by(self) == by(other)
    }
}
