//! From one frame to the next.

use super::{
    End, Registers,
    copy::StackCopy,
    expression::evaluate,
    rule::{Cfa, Frame, Saved},
};
use crate::recording::AddressKind;

/// Registers that have a number below this are general ones.
///
/// <https://gitlab.com/x86-psABIs/x86-64-ABI>, figure 3.36
pub(super) const GENERAL: usize = 16;
/// The number of `rbp`.
pub(super) const RBP: usize = 6;
/// The number of `rsp`.
pub(super) const RSP: usize = 7;
/// Those that a function leaves as they were: `rbx`, `rbp`, `r12` to `r15`.
const KEPT: [usize; 6] = [3, RBP, 12, 13, 14, 15];

/// How a frame was come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// It is the leaf, or unwind data led here.
    Data,
    /// Unwind data led here, out of Go.
    TopOfGo,
    /// A frame pointer led here.
    FramePointer,
}

/// The registers of a frame.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub ip: u64,
    pub kind: AddressKind,
    /// None if the value is not known.
    pub general: [Option<u64>; GENERAL],
    pub by: By,
}

/// Why there is no next frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    EntryPoint,
    BehindCopy,
    PageMissing,
    BeforeCopy,
    NoUnwindInfo,
    LostRegister,
    Broken,
    OtherMachine,
}

impl Stop {
    /// As it is told, of a frame.
    pub(super) fn end(self, address: u64) -> End {
        match self {
            Self::EntryPoint => End::EntryPoint,
            Self::BehindCopy => End::CopyTooShort,
            Self::PageMissing => End::PageMissing,
            Self::BeforeCopy => End::OtherStack,
            Self::NoUnwindInfo => End::NoUnwindInfo { address },
            Self::LostRegister => End::LostRegister { address },
            Self::Broken => End::Broken { address },
            Self::OtherMachine => End::OtherMachine { address },
        }
    }
}

impl State {
    pub(super) fn of(registers: Registers) -> Self {
        let mut general = [None; GENERAL];
        general[RSP] = Some(registers.sp);
        general[RBP] = Some(registers.fp);
        Self { ip: registers.ip, kind: AddressKind::Instruction, general, by: By::Data }
    }

    /// The address whose unwind data counts: a call can be the last instruction of a function.
    pub(super) fn looked_up(&self) -> u64 {
        self.ip.saturating_sub(self.kind.before())
    }

    /// A register by its number; `rip` has the one behind the general ones.
    pub(super) fn register(&self, number: usize) -> Result<u64, Stop> {
        match number {
            GENERAL => Ok(self.ip),
            _ => self.general.get(number).copied().flatten().ok_or(Stop::LostRegister),
        }
    }
}

/// The frame that called this one, as unwind data has it, and where in the copy its address lies.
pub(super) fn by_rule(
    frame: &Frame,
    state: &State,
    copy: &StackCopy,
) -> Result<(State, Option<u32>), Stop> {
    let cfa = match &frame.cfa {
        Cfa::Register { number, offset } => add(state.register(*number)?, *offset)?,
        Cfa::Expression(expression) => evaluate(expression, None, state, copy)?,
    };
    let (ip, at) = match &frame.return_address {
        Saved::Undefined => return Err(Stop::EntryPoint),
        Saved::AtCfa(offset) => copy.return_address(add(cfa, *offset)?)?,
        Saved::AtExpression(expression) => {
            copy.return_address(evaluate(expression, Some(cfa), state, copy)?)?
        }
        Saved::InRegister(number) => (state.register(*number)?, None),
        Saved::Same | Saved::CfaPlus(_) | Saved::Expression(_) => return Err(Stop::Broken),
    };
    if ip == 0 {
        return Err(Stop::EntryPoint);
    }
    let mut general = [None; GENERAL];
    for number in KEPT {
        general[number] = state.general[number];
    }
    general[RSP] = Some(cfa);
    for (number, saved) in &frame.saved {
        let was = state.general.get(*number).copied().flatten();
        let Some(general) = general.get_mut(*number) else { continue };
        *general = match saved {
            Saved::Undefined => None,
            Saved::Same => was,
            Saved::AtCfa(offset) => match copy.word(add(cfa, *offset)?) {
                Ok(word) => Some(word),
                // Popped again already: compilers leave that unsaid in the last instructions of a
                // function.
                Err(Stop::BeforeCopy) if state.kind == AddressKind::Instruction => was,
                Err(_) => None,
            },
            Saved::CfaPlus(offset) => Some(add(cfa, *offset)?),
            Saved::InRegister(number) => state.register(*number).ok(),
            Saved::AtExpression(expression) => {
                let address = evaluate(expression, Some(cfa), state, copy);
                address.and_then(|address| copy.word(address)).ok()
            }
            Saved::Expression(expression) => evaluate(expression, Some(cfa), state, copy).ok(),
        };
    }
    let next = State { ip, kind: frame.resumes, general, by: By::Data };
    grows(state, &next)?;
    Ok((next, at))
}

/// Makes sure that a stack comes to an end.
pub(super) fn grows(state: &State, next: &State) -> Result<(), Stop> {
    match (state.register(RSP)?.cmp(&next.register(RSP)?), next.kind) {
        (std::cmp::Ordering::Less, _) => Ok(()),
        // What was interrupted went on with the stack that it had.
        (_, AddressKind::Instruction) => Err(Stop::BeforeCopy),
        (_, AddressKind::Return) => Err(Stop::Broken),
    }
}

fn add(address: u64, offset: i64) -> Result<u64, Stop> {
    address.checked_add_signed(offset).ok_or(Stop::Broken)
}
