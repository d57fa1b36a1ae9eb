//! How the caller of a frame is found at one address, worked out once.

use std::sync::Arc;

use gimli::{
    CfaRule, EndianSlice, FrameDescriptionEntry, LittleEndian, RegisterRule, UnwindExpression,
    UnwindSection, UnwindTableRow,
};

use offwake_recording::AddressKind;

use crate::{expression::Expression, state::GENERAL};

/// Bytes of an expression: those of the C library have 11 at most.
const MAX_EXPRESSION: usize = 128;

/// How the caller is found at an address.
#[derive(Clone, Debug)]
pub(crate) enum UnwindRule {
    /// As unwind data says.
    Frame(Arc<FrameRule>),
    /// As unwind data says, where Go's own walks end: whoever called this function is not Go code.
    TopOfGo(Arc<FrameRule>),
    /// As the instructions say, because no unwind data covers the address.
    Decoded(Arc<DecodedFrame>),
    /// A signal handler returns here.
    SignalTrampoline,
    /// The function has no caller: it is the first of its thread.
    EntryPoint,
    /// What called this function did so on another stack.
    OtherStack,
    /// No unwind data covers the address, and its instructions say nothing.
    Uncovered,
    /// The unwind data that covers the address, or may do so, can't be read.
    Unreadable,
    /// The code is not for x86-64.
    OtherMachine,
}

/// Where the registers of the caller are: a row of unwind data.
#[derive(Debug)]
pub(crate) struct FrameRule {
    pub cfa: Cfa,
    pub return_address: SavedRegister,
    /// Where each register is, by its DWARF number.
    pub saved: Vec<(usize, SavedRegister)>,
    /// Whether the caller resumes at a return address or at an interrupted instruction.
    pub resumes: AddressKind,
}

/// How a function's frame is found at one of its addresses by following its instructions.
#[derive(Debug)]
pub(crate) struct DecodedFrame {
    /// Where the function begins, and the rule that follows from there.
    pub from_begin: Option<(u64, Arc<FrameRule>)>,
    /// Where the return address can be, by the ways on from here: bytes above `rsp`.
    pub returns: Vec<i64>,
}

/// The canonical frame address: on x86-64, the stack pointer before the call.
#[derive(Clone, Debug)]
pub(crate) enum Cfa {
    Register { number: usize, offset: i64 },
    Expression(Expression),
}

/// Where the caller's value of a register is.
#[derive(Clone, Debug)]
pub(crate) enum SavedRegister {
    Undefined,
    Same,
    AtCfa(i64),
    CfaPlus(i64),
    InRegister(usize),
    AtExpression(Expression),
    Expression(Expression),
}

/// Bytes as gimli reads them.
pub(crate) type Bytes<'a> = EndianSlice<'a, LittleEndian>;

impl FrameRule {
    /// Converts a row of `entry`. None if the row says something that is not supported.
    pub(crate) fn from_row<'a>(
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
                RegisterRule::Undefined => SavedRegister::Undefined,
                RegisterRule::SameValue => SavedRegister::Same,
                RegisterRule::Offset(offset) => SavedRegister::AtCfa(*offset),
                RegisterRule::ValOffset(offset) => SavedRegister::CfaPlus(*offset),
                RegisterRule::Register(register) => SavedRegister::InRegister(register.0.into()),
                RegisterRule::Expression(at) => SavedRegister::AtExpression(expression(at)?),
                RegisterRule::ValExpression(value) => SavedRegister::Expression(expression(value)?),
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
