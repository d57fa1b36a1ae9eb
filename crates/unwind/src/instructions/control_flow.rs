//! Follows the paths through a function.

use std::collections::HashMap;

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic};

use offwake_recording::AddressKind;

use super::{code_reader::CodeReader, functions::FunctionTable, stack_depths::StackDepths};

/// Instructions of one function that are followed, some of them more than once.
const MAX_INSTRUCTIONS: u32 = 8192;
/// Instructions up to the first call of a program.
const MAX_FIRST: u32 = 32;
/// Different places of a return address that are tried.
const MAX_RETURNS: usize = 4;

/// The instruction that paths are to lead to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    /// The offset in the file: for a return address, that behind the call.
    pub offset: u64,
    pub kind: AddressKind,
}

/// The result of following a function from its begin.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FromBegin {
    /// The depths at the target, or none if no path leads there, or not all paths agree.
    pub at_target: Option<StackDepths>,
    /// A path leads to an address that is not in the code.
    pub leaves_code: bool,
}

/// The result of following a function to its returns.
#[derive(Clone, Debug, Default)]
pub(super) struct ToReturns {
    /// Where return addresses can be, in bytes above `rsp`.
    pub returns: Vec<i64>,
    /// A path could not be followed.
    is_partial: bool,
}

impl ToReturns {
    /// Whether every path was followed and none returns.
    pub(super) fn never_returns(&self) -> bool {
        self.returns.is_empty() && !self.is_partial
    }
}

/// Follows a function from where it begins to a target.
pub(super) fn follow_from_begin(
    begin: u64,
    target: Target,
    functions: &FunctionTable,
    code: &mut CodeReader,
    instructions_left: &mut u32,
) -> FromBegin {
    let mut paths = Paths::new(functions, code, instructions_left);
    let mut call = None;
    let is_followed = paths.follow(begin, |instruction| {
        if instruction.next_ip() == target.offset && is_call(instruction) {
            call = Some(instruction.ip());
        }
    });
    let at = match target.kind {
        AddressKind::Instruction => Some(target.offset),
        AddressKind::Return => call,
    };
    let depths = at.and_then(|at| paths.seen.get(&at).copied());
    let at_target = depths.filter(|_| is_followed);
    FromBegin { at_target, leaves_code: paths.leaves_code }
}

/// Whether the target is in the code that the kernel or the loader begins a program with, up to its
/// first call.
pub(super) fn is_in_entry_code(entry: u64, target: Target, code: &mut CodeReader) -> bool {
    let mut offset = entry;
    for _ in 0..MAX_FIRST {
        if target.kind == AddressKind::Instruction && offset == target.offset {
            return true;
        }
        let Some(instruction) = code.instruction(offset) else { return false };
        offset = instruction.next_ip();
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::Call | FlowControl::IndirectCall => {
                return target.kind == AddressKind::Return && offset == target.offset;
            }
            _ => return false,
        }
    }
    false
}

/// Follows a function from somewhere in it to where it returns.
pub(super) fn follow_to_returns(
    here: u64,
    functions: &FunctionTable,
    code: &mut CodeReader,
    instructions_left: &mut u32,
) -> ToReturns {
    let mut paths = Paths::new(functions, code, instructions_left);
    let mut ends = Vec::new();
    let is_followed = paths.follow(here, |instruction| {
        if instruction.flow_control() == FlowControl::Return {
            ends.push(instruction.ip());
        }
    });
    // Depths are counted from here on, as if this were the begin: what is returned to is above.
    let mut returns: Vec<_> = ends
        .iter()
        .filter_map(|end| paths.seen.get(end)?.sp()?.checked_neg())
        .filter(|&depth| depth >= 0 && depth % 8 == 0)
        .collect();
    returns.sort_unstable();
    returns.dedup();
    returns.truncate(MAX_RETURNS);
    ToReturns { returns, is_partial: !is_followed || paths.leaves_code }
}

fn is_call(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
}

/// The paths through a function from one instruction on.
struct Paths<'a> {
    functions: &'a FunctionTable,
    code: &'a mut CodeReader,
    instructions_left: &'a mut u32,
    /// The depths before each instruction.
    seen: HashMap<u64, StackDepths>,
    /// A path leads to an address that is not in the code.
    leaves_code: bool,
}

impl<'a> Paths<'a> {
    fn new(
        functions: &'a FunctionTable,
        code: &'a mut CodeReader,
        instructions_left: &'a mut u32,
    ) -> Self {
        let seen = HashMap::new();
        Self { functions, code, instructions_left, seen, leaves_code: false }
    }

    /// Follows all paths. False if they don't agree, or are too many.
    fn follow(&mut self, begin: u64, mut each: impl FnMut(&Instruction)) -> bool {
        let Some(segment) = self.functions.segment(begin).copied() else { return false };
        let mut info = InstructionInfoFactory::new();
        let mut open = vec![(begin, StackDepths::BEGIN)];
        let mut steps = 0;
        while let Some((offset, depths)) = open.pop() {
            let depths = match self.seen.get(&offset) {
                None => depths,
                Some(known) => match known.merge(depths) {
                    None => return false,
                    Some(merged) if merged == *known => continue,
                    Some(merged) => merged,
                },
            };
            steps += 1;
            let left = self.instructions_left.checked_sub(1);
            let Some(left) = left.filter(|_| steps <= MAX_INSTRUCTIONS) else { return false };
            *self.instructions_left = left;
            self.seen.insert(offset, depths);
            // There is data between functions, and behind calls that never return.
            let Some(instruction) = self.code.instruction(offset) else { continue };
            each(&instruction);
            let next = instruction.next_ip();
            let after = match is_call(&instruction) {
                // The called function leaves these registers and the stack as they were.
                true => depths,
                false => depths.after(&instruction, &mut info),
            };
            let (goes_on, jumps_to) = match instruction.flow_control() {
                // This is no call of a function, but a way to get the own address.
                FlowControl::Call if instruction.near_branch64() == next => return false,
                FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => (true, None),
                FlowControl::ConditionalBranch => (true, Some(instruction.near_branch64())),
                FlowControl::UnconditionalBranch => (false, Some(instruction.near_branch64())),
                FlowControl::IndirectBranch => {
                    self.leaves_code = true;
                    (false, None)
                }
                FlowControl::Return | FlowControl::Interrupt | FlowControl::Exception => {
                    (false, None)
                }
                FlowControl::XbeginXabortXend => return false,
            };
            let is_inside =
                |to: &u64| to.checked_sub(segment.offset).is_some_and(|at| at < segment.size);
            // Behind a call that never returns, or an instruction that no program may execute,
            // another function can begin.
            let is_end = instruction.mnemonic() == Mnemonic::Hlt
                || self.functions.begin(next) != self.functions.begin(offset);
            if goes_on && is_inside(&next) && !is_end {
                open.push((next, after));
            }
            match jumps_to {
                Some(to) if is_inside(&to) => open.push((to, after)),
                Some(_) => self.leaves_code = true,
                None => {}
            }
        }
        true
    }
}
