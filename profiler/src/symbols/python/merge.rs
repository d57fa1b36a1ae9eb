//! Puts a thread's native stack and its Python frames into one.
//!
//! ```text
//!  native, leaf first     Python, leaf first          merged
//!    futex_wait                                         futex_wait
//!    lock_acquire                                       lock_acquire
//!    eval ───────────────── inner ──┐                   inner
//!                           outer   │ a run             outer
//!                           (end) ──┘
//!    sorted                                             sorted
//!    eval ───────────────── main                        main
//!                           (end)
//!    _start                                             _start
//! ```
//!
//! Each call of the evaluating function evaluates one run of frames, in the same order as the calls
//! are on the native stack. A whole native stack has as many calls as a whole chain has runs: then
//! each frame's place is certain. Otherwise what can be certain depends on which of the two is cut
//! short. Python frames without a certain place are left out, which is said.

use super::interpreter::Part;

/// A frame of a native stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NativeFrame {
    /// A call of `_PyEval_EvalFrameDefault`.
    Evaluates,
    /// Any other.
    Other,
}

/// How a native stack ends, behind its last frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NativeEnd {
    /// With where the thread began: nothing is missing.
    Entry,
    /// Some frames are missing behind it, but none before.
    CutShort,
    /// Some may be missing anywhere, as where code without frame pointers is walked by them.
    Doubtful,
}

/// How a chain of Python frames ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChainEnd {
    /// With the thread's first frame.
    First,
    /// There are more, or they could not be read.
    CutShort,
}

/// Why part of a merged stack is not as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// Native frames are missing here, between those before and the Python frames behind.
    NativeMissing,
    /// Python frames may be missing here: the chain was cut short.
    PythonMissing,
    /// The Python frames belong somewhere in this stack, nobody knows where: they are left out, and
    /// the native ones are as they were.
    Unplaced,
}

/// A frame of a merged stack: an index into one of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merged {
    Native(usize),
    Python(usize),
    Doubt(Doubt),
}

/// Merges two stacks of one thread that were taken at the same moment, leaf first.
///
/// Every native frame but those that evaluate is in the result once and in order; so is every
/// Python frame, unless all are left out.
pub(crate) fn merge(
    native: &[NativeFrame],
    native_end: NativeEnd,
    python: &[Part],
    chain_end: ChainEnd,
) -> Vec<Merged> {
    // The first frame of a thread ends a run: what ends with another one is not all.
    let is_open = python.last() == Some(&Part::Inner);
    let chain_end = if is_open { ChainEnd::CutShort } else { chain_end };
    let runs = EvaluatedRuns::split(python, chain_end);
    let calls = native.iter().filter(|&&frame| frame == NativeFrame::Evaluates).count();
    let whole = runs.whole;
    let is_certain = match (native_end, chain_end) {
        (NativeEnd::Entry | NativeEnd::Doubtful, ChainEnd::First) => calls == whole,
        (NativeEnd::CutShort, ChainEnd::First) => calls <= whole,
        (NativeEnd::Entry, ChainEnd::CutShort) => calls > whole,
        (NativeEnd::CutShort, ChainEnd::CutShort) => true,
        (NativeEnd::Doubtful, ChainEnd::CutShort) => false,
    };
    if !is_certain {
        let all = (0..native.len()).map(Merged::Native);
        return all.chain([Merged::Doubt(Doubt::Unplaced)]).collect();
    }
    let mut runs = runs.runs.into_iter();
    let mut merged = Vec::with_capacity(native.len() + python.len() + 1);
    for (index, frame) in native.iter().enumerate() {
        match frame {
            NativeFrame::Other => merged.push(Merged::Native(index)),
            NativeFrame::Evaluates => match runs.next() {
                Some(run) => merged.extend(run),
                None => merged.push(Merged::Native(index)),
            },
        }
    }
    let mut rest = runs.flatten().peekable();
    if rest.peek().is_some() {
        merged.push(Merged::Doubt(Doubt::NativeMissing));
        merged.extend(rest);
    }
    merged
}

/// Python frames by the calls that evaluate them.
struct EvaluatedRuns {
    runs: Vec<Vec<Merged>>,
    /// The number of runs that are whole.
    whole: usize,
}

impl EvaluatedRuns {
    /// Splits Python frames into runs.
    fn split(python: &[Part], end: ChainEnd) -> Self {
        let mut runs = Vec::new();
        let mut run = Vec::new();
        for (index, part) in python.iter().enumerate() {
            if *part != Part::Shim {
                run.push(Merged::Python(index));
            }
            if *part != Part::Inner {
                runs.push(std::mem::take(&mut run));
            }
        }
        let whole = runs.len();
        // The last run goes on with frames that were not walked.
        if end == ChainEnd::CutShort {
            run.push(Merged::Doubt(Doubt::PythonMissing));
            runs.push(run);
        }
        Self { runs, whole }
    }
}
