//! DWARF expressions: how unwind data describes what a register and an offset can't.

use std::sync::Arc;

use gimli::{Encoding, EndianSlice, Evaluation, EvaluationResult, LittleEndian, Location, Value};

use crate::{stack::Stop, stack_copy::StackCopy, state::FrameState};

/// Operations of one evaluation: an expression can jump backwards. Those of the C library and of
/// PLT stubs have some 10.
const MAX_OPERATIONS: u32 = 256;

/// A DWARF expression.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    pub code: Arc<[u8]>,
    pub encoding: Encoding,
}

/// Evaluates an expression that begins with `initial` on its stack.
pub(crate) fn evaluate(
    expression: &Expression,
    initial: Option<u64>,
    state: &FrameState,
    copy: &StackCopy,
) -> Result<u64, Stop> {
    let code = EndianSlice::new(&expression.code, LittleEndian);
    let mut evaluation = Evaluation::new(code, expression.encoding);
    evaluation.set_max_iterations(MAX_OPERATIONS);
    if let Some(initial) = initial {
        evaluation.set_initial_value(initial);
    }
    let mut result = evaluation.evaluate().map_err(|_| Stop::Broken)?;
    loop {
        let next = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = state.register(usize::from(register.0))?;
                evaluation.resume_with_register(Value::Generic(value))
            }
            EvaluationResult::RequiresMemory { address, size: 8, space: None, .. } => {
                evaluation.resume_with_memory(Value::Generic(copy.word(address)?))
            }
            _ => return Err(Stop::Broken),
        };
        result = next.map_err(|_| Stop::Broken)?;
    }
    match evaluation.as_result() {
        [piece] => match piece.location {
            Location::Address { address } => Ok(address),
            _ => Err(Stop::Broken),
        },
        _ => Err(Stop::Broken),
    }
}
