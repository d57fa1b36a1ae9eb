//! Frames of code without unwind data, from its instructions: musl's libc, assembler, what cgo's
//! linker leaves of C code.
//!
//! ```text
//! begin ----------- every path there is ----------> here: so far below the return address is `rsp`
//!   ^                                                              |
//!   +---- the call that the return address follows leads there <---+
//! ```
//!
//! Code is followed from where its function begins to where the thread is, and the stack pointer
//! with it. A symbol says where the function begins. Without a symbol, the code is followed to its
//! returns instead: each of them would return behind some call, and the function that this call is
//! of has to lead here with the same stack pointer. Either way, there has to be a call in front of
//! the return address, and not a call of something else. Code that can't be followed, or that paths
//! do not agree on, gives no frame: a guess would name the wrong caller.

mod code_reader;
mod control_flow;
mod functions;
mod stack_depths;

use std::{collections::HashMap, sync::Arc};

use code_reader::{Call, CodeReader};
use control_flow::{FromBegin, Target, follow_from_begin, follow_to_returns, is_in_entry_code};
use functions::FunctionTable;
use offwake_recording::{AddressKind, ModuleId};
use stack_depths::StackDepths;

use crate::{
    location::CodeLocation,
    mapping::{CodeMapping, ModuleFiles, find_mapping},
    rule::{Cfa, DecodedFrame, FrameRule, SavedRegister, UnwindRule},
    stack::Stop,
    stack_copy::StackCopy,
    state::{FrameState, NextFrame, RSP},
    step::apply_rule,
};

/// Instructions that are followed for one stack.
const MAX_INSTRUCTIONS: u32 = 1 << 16;
/// Calls of which the frame is kept.
const MAX_CALLS: usize = 8192;
/// Bytes of the function tables of all modules together.
const MAX_MEMORY: usize = 16 << 20;

/// Decodes the instructions from one offset to another.
#[cfg(test)]
pub(crate) fn instructions(
    content: crate::mapping::FileContent,
    begin: u64,
    end: u64,
) -> Vec<iced_x86::Instruction> {
    let mut code = CodeReader::new(content);
    let mut offset = begin;
    let mut next = || {
        let instruction = code.instruction(offset).filter(|_| offset < end)?;
        offset = instruction.next_ip();
        Some(instruction)
    };
    std::iter::from_fn(&mut next).collect()
}

/// Finds frames by the code of all modules.
pub(crate) struct InstructionDecoder {
    functions: HashMap<ModuleId, Arc<FunctionTable>>,
    /// Bytes that `functions` takes.
    function_memory: usize,
    /// The frame at a location if its function was called from another location.
    calls: HashMap<(CodeLocation, CodeLocation), Option<Arc<FrameRule>>>,
    instructions_left: u32,
}

impl InstructionDecoder {
    pub(crate) fn new() -> Self {
        let (functions, calls) = (HashMap::new(), HashMap::new());
        Self { functions, function_memory: 0, calls, instructions_left: 0 }
    }

    /// Begins a stack: its limit of instructions starts anew.
    pub(crate) fn begin_stack(&mut self) {
        self.instructions_left = MAX_INSTRUCTIONS;
    }

    /// Whether the limit of instructions for this stack is reached, so that less may have been
    /// found than there is.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.instructions_left == 0
    }

    /// The rule for a location, as its code says.
    pub(crate) fn rule(&mut self, location: CodeLocation, files: &impl ModuleFiles) -> UnwindRule {
        self.decode_rule(location, files).unwrap_or(UnwindRule::Uncovered)
    }

    fn decode_rule(
        &mut self,
        location: CodeLocation,
        files: &impl ModuleFiles,
    ) -> Option<UnwindRule> {
        let functions = self.functions(location.module, files)?;
        let mut code = CodeReader::new(files.content(location.module)?);
        let target = Target { offset: location.ip_offset(), kind: location.kind };
        if functions.entry().is_some_and(|entry| is_in_entry_code(entry, target, &mut code)) {
            return Some(UnwindRule::EntryPoint);
        }
        let begin = functions.begin(location.offset);
        let depths = begin.and_then(|begin| {
            let left = &mut self.instructions_left;
            follow_from_begin(begin, target, &functions, &mut code, left).at_target
        });
        let left = &mut self.instructions_left;
        let onwards = follow_to_returns(target.offset, &functions, &mut code, left);
        // The first function of a thread: it has popped its own return address, and never returns.
        if depths.is_some_and(|depths| depths.has_no_return_address()) {
            return onwards.never_returns().then_some(UnwindRule::EntryPoint);
        }
        let from_begin = begin.zip(depths.and_then(rule_from_depths).map(Arc::new));
        let decoded = DecodedFrame { from_begin, returns: onwards.returns };
        let is_useful = decoded.from_begin.is_some() || !decoded.returns.is_empty();
        is_useful.then(|| UnwindRule::Decoded(decoded.into()))
    }

    /// The caller of a frame, if there is no doubt about it.
    pub(crate) fn step(
        &mut self,
        decoded: &DecodedFrame,
        (location, state): (CodeLocation, &FrameState),
        code: &[CodeMapping],
        files: &impl ModuleFiles,
        copy: &StackCopy,
    ) -> Result<NextFrame, Stop> {
        if let Some((begin, rule)) = &decoded.from_begin {
            let step = apply_rule(rule, state, copy)?;
            let is_caller = self.call_before(&step.0, code, files).is_some_and(|(caller, call)| {
                let Call::To(callee) = call else { return true };
                caller.module != location.module
                    || callee == *begin
                    || self.can_lead_to((location, caller), callee, rule, files)
            });
            return if is_caller { Ok(step) } else { Err(Stop::NoUnwindInfo) };
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
            let caller = FrameState { ip, kind: AddressKind::Return, ..state.clone() };
            let Some((caller, Call::To(callee))) = self.call_before(&caller, code, files) else {
                continue;
            };
            if caller.module == location.module
                && let Some(rule) = self.rule_if_called((location, caller), callee, files)
                && rule.has_return_address_at(depth)
            {
                return apply_rule(&rule, state, copy);
            }
        }
        Err(beyond.unwrap_or(Stop::NoUnwindInfo))
    }

    /// Where a caller is, and the call in front of its return address.
    fn call_before(
        &mut self,
        caller: &FrameState,
        code: &[CodeMapping],
        files: &impl ModuleFiles,
    ) -> Option<(CodeLocation, Call)> {
        let mapping = find_mapping(code, caller.lookup_address())?;
        let location = CodeLocation::in_mapping(mapping, caller)?;
        let mut code = CodeReader::new(files.content(location.module)?);
        Some((location, code.call_before(location.ip_offset())?))
    }

    /// Whether a function that was called elsewhere can lead to a location with this frame.
    fn can_lead_to(
        &mut self,
        (location, caller): (CodeLocation, CodeLocation),
        callee: u64,
        rule: &FrameRule,
        files: &impl ModuleFiles,
    ) -> bool {
        match self.rule_if_called((location, caller), callee, files) {
            Some(other) => other.has_same_cfa(rule),
            // The function may go on at an address that is not in the code: by a stub to another
            // module, for instance.
            None => {
                self.follow(location, callee, files).is_some_and(|followed| followed.leaves_code)
            }
        }
    }

    /// The rule for a location if `callee` was called.
    fn rule_if_called(
        &mut self,
        (location, caller): (CodeLocation, CodeLocation),
        callee: u64,
        files: &impl ModuleFiles,
    ) -> Option<Arc<FrameRule>> {
        if let Some(known) = self.calls.get(&(location, caller)) {
            return known.clone();
        }
        let depths = self.follow(location, callee, files).and_then(|followed| followed.at_target);
        let rule = depths.and_then(rule_from_depths).map(Arc::new);
        if !self.is_exhausted() {
            if self.calls.len() == MAX_CALLS {
                self.calls.clear();
            }
            self.calls.insert((location, caller), rule.clone());
        }
        rule
    }

    /// Follows the function that begins at `begin` to a location.
    fn follow(
        &mut self,
        location: CodeLocation,
        begin: u64,
        files: &impl ModuleFiles,
    ) -> Option<FromBegin> {
        let functions = self.functions(location.module, files)?;
        let mut code = CodeReader::new(files.content(location.module)?);
        let target = Target { offset: location.ip_offset(), kind: location.kind };
        let left = &mut self.instructions_left;
        Some(follow_from_begin(begin, target, &functions, &mut code, left))
    }

    fn functions(
        &mut self,
        module: ModuleId,
        files: &impl ModuleFiles,
    ) -> Option<Arc<FunctionTable>> {
        if let Some(functions) = self.functions.get(&module) {
            return Some(Arc::clone(functions));
        }
        let functions = Arc::new(FunctionTable::read(&files.content(module)?)?);
        if self.function_memory + functions.memory() > MAX_MEMORY {
            self.functions.clear();
            self.function_memory = 0;
        }
        self.function_memory += functions.memory();
        self.functions.insert(module, Arc::clone(&functions));
        Some(functions)
    }

    /// Where the functions of a module begin and end.
    #[cfg(test)]
    pub(crate) fn function_ranges(
        &mut self,
        module: ModuleId,
        files: &impl ModuleFiles,
    ) -> Vec<(u64, u64)> {
        self.functions(module, files).map_or_else(Vec::new, |functions| functions.all())
    }

    /// Bytes that are kept.
    pub(crate) fn memory(&self) -> usize {
        let call = size_of::<((CodeLocation, CodeLocation), Option<Arc<FrameRule>>)>();
        self.function_memory + self.calls.len() * call
    }
}

/// Where the caller's registers are, or none if the return address can't be found.
fn rule_from_depths(depths: StackDepths) -> Option<FrameRule> {
    let (number, depth) = depths.return_address()?;
    let saved = depths.saved().map(|(number, below)| {
        let at = below.and_then(|below| (-8_i64).checked_sub(below));
        (number, at.map_or(SavedRegister::Undefined, SavedRegister::AtCfa))
    });
    Some(FrameRule {
        cfa: Cfa::Register { number, offset: depth.checked_add(8)? },
        return_address: SavedRegister::AtCfa(-8),
        saved: saved.collect(),
        resumes: AddressKind::Return,
    })
}

impl FrameRule {
    /// Whether the return address lies so many bytes above `rsp`.
    fn has_return_address_at(&self, depth: i64) -> bool {
        matches!(self.cfa, Cfa::Register { number: RSP, offset } if offset.checked_sub(8) == Some(depth))
    }

    /// Whether both rules find the frame in the same way.
    fn has_same_cfa(&self, other: &Self) -> bool {
        let by = |frame: &Self| match frame.cfa {
            Cfa::Register { number, offset } => Some((number, offset)),
            Cfa::Expression(_) => None,
        };
        by(self).is_some() && by(self) == by(other)
    }
}
