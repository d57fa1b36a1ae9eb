//! How to come from one address to its caller, worked out once.

use std::sync::Arc;

use gimli::{
    CfaRule, EndianSlice, FrameDescriptionEntry, LittleEndian, RegisterRule, UnwindExpression,
    UnwindSection, UnwindTableRow,
};

use super::{decoded::Decoded, expression::Expression, step::GENERAL};
use crate::recording::AddressKind;

/// Bytes of an expression: those of the C library have 11 at most.
const MAX_EXPRESSION: usize = 128;

/// What is to be done at an address.
#[derive(Clone, Debug)]
pub(super) enum Rule {
    /// As unwind data says.
    Frame(Arc<Frame>),
    /// As above, where Go's own walks end: whoever called this function is not Go's.
    TopOfGo(Arc<Frame>),
    /// No unwind data covers it; as its instructions say.
    Decoded(Arc<Decoded>),
    /// It is where a signal handler returns to.
    Trampoline,
    /// Nothing called this function.
    EntryPoint,
    /// What called this function did so on another stack.
    OtherStack,
    /// No unwind data covers it, and its instructions say nothing.
    Uncovered,
    /// The unwind data that covers it, or may do so, can't be read.
    Unreadable,
    /// The code is not for x86-64.
    OtherMachine,
}

/// A row of unwind data.
#[derive(Debug)]
pub(super) struct Frame {
    pub cfa: Cfa,
    pub return_address: Saved,
    /// By the number of the register.
    pub saved: Vec<(usize, Saved)>,
    /// What the caller's address is.
    pub resumes: AddressKind,
}

/// The canonical frame address: on x86-64, the stack pointer before the call.
#[derive(Clone, Debug)]
pub(super) enum Cfa {
    Register { number: usize, offset: i64 },
    Expression(Expression),
}

/// Where the caller's value of a register is.
#[derive(Clone, Debug)]
pub(super) enum Saved {
    Undefined,
    Same,
    AtCfa(i64),
    CfaPlus(i64),
    InRegister(usize),
    AtExpression(Expression),
    Expression(Expression),
}

/// gimli's view of bytes.
pub(super) type Bytes<'a> = EndianSlice<'a, LittleEndian>;

impl Frame {
    /// A row of `entry`; none if it says what can't be.
    pub(super) fn of<'a>(
        section: &impl UnwindSection<Bytes<'a>>,
        entry: &FrameDescriptionEntry<Bytes<'a>>,
        row: &UnwindTableRow<usize>,
    ) -> Option<Self> {
        let expression = |expression: &UnwindExpression<usize>| {
            let code = expression.get(section).ok()?.0.slice();
            let encoding = entry.cie().encoding();
            (code.len() <= MAX_EXPRESSION).then(|| Expression { code: code.into(), encoding })
        };
        let saved = |rule: &RegisterRule<usize>| {
            Some(match rule {
                RegisterRule::Undefined => Saved::Undefined,
                RegisterRule::SameValue => Saved::Same,
                RegisterRule::Offset(offset) => Saved::AtCfa(*offset),
                RegisterRule::ValOffset(offset) => Saved::CfaPlus(*offset),
                RegisterRule::Register(register) => Saved::InRegister(register.0.into()),
                RegisterRule::Expression(at) => Saved::AtExpression(expression(at)?),
                RegisterRule::ValExpression(value) => Saved::Expression(expression(value)?),
                _ => return None,
            })
        };
        let return_address = entry.cie().return_address_register();
        Some(Self {
            cfa: match row.cfa() {
                CfaRule::RegisterAndOffset { register, offset } => {
                    Cfa::Register { number: register.0.into(), offset: *offset }
                }
                CfaRule::Expression(cfa) => Cfa::Expression(expression(cfa)?),
            },
            return_address: saved(&row.register(return_address)?)?,
            saved: (row.registers())
                .filter(|(register, _)| *register != return_address)
                .map(|(register, rule)| (usize::from(register.0), rule))
                .filter(|(number, _)| *number < GENERAL)
                .map(|(number, rule)| Some((number, saved(rule)?)))
                .collect::<Option<_>>()?,
            resumes: match entry.is_signal_trampoline() {
                true => AddressKind::Instruction,
                false => AddressKind::Return,
            },
        })
    }
}
