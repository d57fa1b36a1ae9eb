//! The ways through a function.

use std::collections::HashMap;

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic};

use super::{effect::Depths, functions::Functions, text::Text};
use crate::recording::AddressKind;

/// Instructions of one function that are looked at, some of them more than once.
const MAX_INSTRUCTIONS: u32 = 8192;
/// Instructions up to the first call of a program.
const MAX_FIRST: u32 = 32;
/// Different places of a return address that are looked at.
const MAX_RETURNS: usize = 4;

/// Where the ways are to lead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    /// In the file. Behind a call, for a return address.
    pub offset: u64,
    pub kind: AddressKind,
}

/// What comes of following a function from its begin.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reached {
    /// How things are at the target; none if no way leads there, or not all agree.
    pub at: Option<Depths>,
    /// A way leads to an address that is not in the code.
    pub leads_anywhere: bool,
}

/// What comes of following a function to its end.
#[derive(Clone, Debug, Default)]
pub(super) struct On {
    /// Where return addresses are, in bytes above `rsp`.
    pub returns: Vec<i64>,
    /// A way was lost.
    is_partial: bool,
}

impl On {
    pub(super) fn never_returns(&self) -> bool {
        self.returns.is_empty() && !self.is_partial
    }
}

/// Follows a function from where it begins.
pub(super) fn from(
    begin: u64,
    target: Target,
    functions: &Functions,
    text: &mut Text,
    left: &mut u32,
) -> Reached {
    let mut ways = Ways::new(functions, text, left);
    let mut call = None;
    let is_followed = ways.follow(begin, |instruction| {
        if instruction.next_ip() == target.offset && is_call(instruction) {
            call = Some(instruction.ip());
        }
    });
    let at = match target.kind {
        AddressKind::Instruction => Some(target.offset),
        AddressKind::Return => call,
    };
    let at = at.and_then(|at| ways.seen.get(&at).copied()).filter(|_| is_followed);
    Reached { at, leads_anywhere: ways.leads_anywhere }
}

/// Whether the target is in what the kernel or the loader begins a program with, up to its first call.
pub(super) fn is_in_first_function(entry: u64, target: Target, text: &mut Text) -> bool {
    let mut offset = entry;
    for _ in 0..MAX_FIRST {
        if target.kind == AddressKind::Instruction && offset == target.offset {
            return true;
        }
        let Some(instruction) = text.instruction(offset) else { return false };
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
pub(super) fn on(here: u64, functions: &Functions, text: &mut Text, left: &mut u32) -> On {
    let mut ways = Ways::new(functions, text, left);
    let mut ends = Vec::new();
    let is_followed = ways.follow(here, |instruction| {
        if instruction.flow_control() == FlowControl::Return {
            ends.push(instruction.ip());
        }
    });
    // Depths are counted from here on, as if this were the begin: what is returned to is above.
    let mut returns: Vec<_> = ends
        .iter()
        .filter_map(|end| ways.seen.get(end)?.sp()?.checked_neg())
        .filter(|&depth| depth >= 0 && depth % 8 == 0)
        .collect();
    returns.sort_unstable();
    returns.dedup();
    returns.truncate(MAX_RETURNS);
    On { returns, is_partial: !is_followed || ways.leads_anywhere }
}

fn is_call(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
}

struct Ways<'a> {
    functions: &'a Functions,
    text: &'a mut Text,
    left: &'a mut u32,
    /// How things are before each instruction.
    seen: HashMap<u64, Depths>,
    leads_anywhere: bool,
}

impl<'a> Ways<'a> {
    fn new(functions: &'a Functions, text: &'a mut Text, left: &'a mut u32) -> Self {
        Self { functions, text, left, seen: HashMap::new(), leads_anywhere: false }
    }

    /// Goes all ways; false if they don't agree, or are too many.
    fn follow(&mut self, begin: u64, mut each: impl FnMut(&Instruction)) -> bool {
        let Some(segment) = self.functions.segment(begin).copied() else { return false };
        let mut info = InstructionInfoFactory::new();
        let mut open = vec![(begin, Depths::BEGIN)];
        let mut steps = 0;
        while let Some((offset, depths)) = open.pop() {
            let depths = match self.seen.get(&offset) {
                None => depths,
                Some(known) => match known.met(depths) {
                    None => return false,
                    Some(met) if met == *known => continue,
                    Some(met) => met,
                },
            };
            steps += 1;
            let Some(left) = self.left.checked_sub(1).filter(|_| steps <= MAX_INSTRUCTIONS) else {
                return false;
            };
            *self.left = left;
            self.seen.insert(offset, depths);
            // Data between functions, or behind a call that never returns.
            let Some(instruction) = self.text.instruction(offset) else { continue };
            each(&instruction);
            let next = instruction.next_ip();
            let after = match is_call(&instruction) {
                // What is called leaves these registers and the stack as they were.
                true => depths,
                false => depths.after(&instruction, &mut info),
            };
            let (goes_on, jumps_to) = match instruction.flow_control() {
                // Not a call of a function, but a way to know the own address.
                FlowControl::Call if instruction.near_branch64() == next => return false,
                FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => (true, None),
                FlowControl::ConditionalBranch => (true, Some(instruction.near_branch64())),
                FlowControl::UnconditionalBranch => (false, Some(instruction.near_branch64())),
                FlowControl::IndirectBranch => {
                    self.leads_anywhere = true;
                    (false, None)
                }
                FlowControl::Return | FlowControl::Interrupt | FlowControl::Exception => {
                    (false, None)
                }
                FlowControl::XbeginXabortXend => return false,
            };
            let is_inside =
                |to: &u64| to.checked_sub(segment.offset).is_some_and(|at| at < segment.size);
            // Behind a call that never returns, or what no program may do, another function can begin.
            let is_end = instruction.mnemonic() == Mnemonic::Hlt
                || self.functions.begin(next) != self.functions.begin(offset);
            if goes_on && is_inside(&next) && !is_end {
                open.push((next, after));
            }
            match jumps_to {
                Some(to) if is_inside(&to) => open.push((to, after)),
                Some(_) => self.leads_anywhere = true,
                None => {}
            }
        }
        true
    }
}
