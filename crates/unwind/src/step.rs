//! From one frame to the next, as a rule says.

use offwake_recording::AddressKind;

use crate::{
    expression::evaluate,
    rule::{Cfa, FrameRule, SavedRegister},
    stack::Stop,
    stack_copy::StackCopy,
    state::{FoundBy, FrameState, GENERAL, NextFrame, RBP, RSP},
};

/// Registers that a function leaves as they were: `rbx`, `rbp`, `r12` to `r15`.
const CALLEE_SAVED: [usize; 6] = [3, RBP, 12, 13, 14, 15];

/// The frame that called this one, as unwind data has it, and where in the copy its address lies.
pub(crate) fn apply_rule(
    rule: &FrameRule,
    state: &FrameState,
    copy: &StackCopy,
) -> Result<NextFrame, Stop> {
    let cfa = match &rule.cfa {
        Cfa::Register { number, offset } => add(state.register(*number)?, *offset)?,
        Cfa::Expression(expression) => evaluate(expression, None, state, copy)?,
    };
    let (ip, at) = match &rule.return_address {
        SavedRegister::Undefined => return Err(Stop::EntryPoint),
        SavedRegister::AtCfa(offset) => copy.return_address(add(cfa, *offset)?)?,
        SavedRegister::AtExpression(expression) => {
            copy.return_address(evaluate(expression, Some(cfa), state, copy)?)?
        }
        SavedRegister::InRegister(number) => (state.register(*number)?, None),
        SavedRegister::Same | SavedRegister::CfaPlus(_) | SavedRegister::Expression(_) => {
            return Err(Stop::Broken);
        }
    };
    if ip == 0 {
        return Err(Stop::EntryPoint);
    }
    let mut general = [None; GENERAL];
    for number in CALLEE_SAVED {
        general[number] = state.general[number];
    }
    general[RSP] = Some(cfa);
    for (number, saved) in &rule.saved {
        let was = state.general.get(*number).copied().flatten();
        let Some(general) = general.get_mut(*number) else { continue };
        *general = match saved {
            SavedRegister::Undefined => None,
            SavedRegister::Same => was,
            SavedRegister::AtCfa(offset) => match copy.word(add(cfa, *offset)?) {
                Ok(word) => Some(word),
                // The function has popped it already: compilers do not describe that for the last
                // instructions of a function.
                Err(Stop::BeforeCopy) if state.kind == AddressKind::Instruction => was,
                Err(_) => None,
            },
            SavedRegister::CfaPlus(offset) => Some(add(cfa, *offset)?),
            SavedRegister::InRegister(number) => state.register(*number).ok(),
            SavedRegister::AtExpression(expression) => {
                let address = evaluate(expression, Some(cfa), state, copy);
                address.and_then(|address| copy.word(address)).ok()
            }
            SavedRegister::Expression(expression) => {
                evaluate(expression, Some(cfa), state, copy).ok()
            }
        };
    }
    let next = FrameState { ip, kind: rule.resumes, general, found_by: FoundBy::Data };
    check_growth(state, &next)?;
    Ok((next, at))
}

/// Fails unless the next frame is further up, so that every stack comes to an end.
pub(crate) fn check_growth(state: &FrameState, next: &FrameState) -> Result<(), Stop> {
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
