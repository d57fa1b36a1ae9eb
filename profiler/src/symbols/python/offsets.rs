//! Where each version of CPython keeps things, in bytes from the beginning of a structure.
//!
//! From 3.13 on a CPython says so itself ([`super::debug_offsets`]). The numbers of earlier ones
//! are from the sources that each table names, as compiled for x86_64 without `Py_TRACE_REFS`. What
//! was read through them is checked: a thread's state must point back to its interpreter, a code
//! object to its type.

use profiler_ebpf::python::{MAX_FRAME_WORDS, NO_STEP, PythonLayout};

use super::version::Version;

/// All that is known of one build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offsets {
    /// `_PyRuntimeState::interpreters.head`
    pub interpreters: u32,
    pub interpreter: InterpreterState,
    pub thread: ThreadState,
    pub frame: Frame,
    pub code: Code,
    pub text: Text,
    pub values: Values,
}

/// `PyInterpreterState`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InterpreterState {
    pub next: u32,
    pub threads: u32,
}

/// `PyThreadState`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThreadState {
    pub next: u32,
    pub interpreter: u32,
    pub identity: Identity,
    /// The pointer to its frame, or to what has that.
    pub frame: u32,
    /// `_PyCFrame::current_frame`, where there is one between.
    pub cframe: Option<u32>,
}

impl ThreadState {
    /// `PyThreadState::thread_id`, what `pthread_self()` gives; since 3.11 `native_thread_id` comes
    /// right behind it.
    pub fn pthread(&self) -> Option<u32> {
        match self.identity {
            Identity::Pthread(offset) => Some(offset),
            Identity::Native(offset) => offset.checked_sub(8),
        }
    }
}

/// How a thread's state says whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// By `thread_id`, which is what `pthread_self()` gives.
    Pthread(u32),
    /// By `native_thread_id`, which is what `gettid()` gives.
    Native(u32),
}

/// `_PyInterpreterFrame`, `PyFrameObject` before 3.11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub previous: u32,
    pub code: u32,
    pub instruction: Instruction,
    pub run: Run,
}

/// Where a frame has its local variables and, behind them, its stack of values, and what tells how
/// much of that stack is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Values {
    /// Blocks of the frame's own: `f_localsplus`, `f_valuestack`, `f_iblock`, `f_blockstack`.
    Blocks { locals: u32, stack: u32, count: u32, blocks: u32 },
    /// A table of the code's: `localsplus`, `co_exceptiontable`.
    Handlers { locals: u32, table: u32 },
}

/// How a frame says where it is in its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instruction {
    /// By the index of a byte, -1 at the beginning, in four bytes here.
    Byte(u32),
    /// By the index of a code unit of two bytes.
    Unit(u32),
    /// By the address of a code unit, here.
    Address(u32),
}

/// How it is seen where a run of frames ends that one call of `_PyEval_EvalFrameDefault` evaluates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// Each is one.
    Each,
    /// By a byte that is 1 in the last frame of a run, `is_entry`. `owner` is a byte in the same
    /// word.
    Entry { entry: u32, owner: u32 },
    /// By a frame behind the last one, of an owner of its own: `FRAME_OWNED_BY_CSTACK`, in 3.14
    /// `FRAME_OWNED_BY_INTERPRETER`, both 3.
    Shim { owner: u32 },
}

/// `PyCodeObject`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code {
    pub file: u32,
    /// `co_qualname`, before 3.11 `co_name`.
    pub name: u32,
    pub first_line: u32,
    pub lines: u32,
    pub line_format: LineFormat,
    pub instructions: Instructions,
}

/// What a code object says its lines in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineFormat {
    /// `co_lnotab`
    ///
    /// <https://github.com/python/cpython/blob/v3.9.18/Objects/lnotab_notes.txt>
    Lnotab,
    /// `co_linetable` of 3.10
    ///
    /// <https://github.com/python/cpython/blob/v3.10.13/Objects/lnotab_notes.txt>
    Ranges,
    /// `co_linetable` of 3.11 and later
    ///
    /// <https://github.com/python/cpython/blob/v3.11.2/Objects/locations.md>
    Locations,
}

/// Where the instructions of a code object are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instructions {
    /// In a bytes object that `co_code` points to.
    Object(u32),
    /// In itself, at `begin`, as many code units as its own size says. `first` holds the index of
    /// the first one that belongs to the function's own lines: before it, the call has not begun
    /// yet.
    Within { begin: u32, first: u32 },
}

/// `PyASCIIObject`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Text {
    pub length: u32,
    pub state: u32,
    /// Where the characters begin if all are ASCII: its size.
    pub ascii: u32,
    /// Where they begin otherwise: `sizeof(PyCompactUnicodeObject)`.
    pub compact: u32,
}

/// `PyObject::ob_type`
pub(super) const TYPE: u32 = 8;
/// `PyVarObject::ob_size`
pub(super) const SIZE: u32 = 16;
/// `PyBytesObject::ob_sval`
pub(super) const BYTES: u32 = 32;
/// `PyCodeObject::co_exceptiontable`, since 3.11.
pub(super) const HANDLERS: u32 = 40;

const TEXT_WITH_WSTR: Text = Text { length: 16, state: 32, ascii: 48, compact: 72 };
const TEXT: Text = Text { length: 16, state: 32, ascii: 40, compact: 56 };

/// <https://github.com/python/cpython/blob/v3.9.18/Include/internal/pycore_runtime.h>,
/// `pycore_interp.h` there, `cpython/pystate.h`, `cpython/frameobject.h`, `cpython/code.h`
const PYTHON_3_9: Offsets = Offsets {
    interpreters: 32,
    interpreter: InterpreterState { next: 0, threads: 8 },
    thread: ThreadState {
        next: 8,
        interpreter: 16,
        identity: Identity::Pthread(176),
        frame: 24,
        cframe: None,
    },
    frame: Frame { previous: 24, code: 32, instruction: Instruction::Byte(104), run: Run::Each },
    code: Code {
        file: 104,
        name: 112,
        first_line: 40,
        lines: 120,
        line_format: LineFormat::Lnotab,
        instructions: Instructions::Object(48),
    },
    text: TEXT_WITH_WSTR,
    values: Values::Blocks { locals: 360, stack: 64, count: 112, blocks: 120 },
};

/// <https://github.com/python/cpython/blob/v3.10.13/Include/internal/pycore_runtime.h>,
/// `pycore_interp.h` there, `cpython/pystate.h`, `cpython/frameobject.h`, `cpython/code.h`
const PYTHON_3_10: Offsets = Offsets {
    frame: Frame { previous: 24, code: 32, instruction: Instruction::Unit(96), run: Run::Each },
    code: Code { line_format: LineFormat::Ranges, ..PYTHON_3_9.code },
    values: Values::Blocks { locals: 352, stack: 64, count: 104, blocks: 112 },
    ..PYTHON_3_9
};

/// <https://github.com/python/cpython/blob/v3.11.2/Include/internal/pycore_runtime.h>,
/// `pycore_interp.h`, `pycore_frame.h` there, `cpython/pystate.h`, `cpython/code.h`
const PYTHON_3_11: Offsets = Offsets {
    interpreters: 40,
    interpreter: InterpreterState { next: 0, threads: 16 },
    thread: ThreadState {
        next: 8,
        interpreter: 16,
        identity: Identity::Native(160),
        frame: 56,
        cframe: Some(8),
    },
    frame: Frame {
        previous: 48,
        code: 32,
        instruction: Instruction::Address(56),
        run: Run::Entry { entry: 68, owner: 69 },
    },
    code: Code {
        file: 112,
        name: 128,
        first_line: 72,
        lines: 136,
        line_format: LineFormat::Locations,
        instructions: Instructions::Within { begin: 184, first: 168 },
    },
    text: TEXT_WITH_WSTR,
    values: Values::Handlers { locals: 72, table: HANDLERS },
};

/// <https://github.com/python/cpython/blob/v3.12.1/Include/internal/pycore_runtime.h>,
/// `pycore_interp.h`, `pycore_frame.h` there, `cpython/pystate.h`, `cpython/code.h`
const PYTHON_3_12: Offsets = Offsets {
    interpreters: 40,
    interpreter: InterpreterState { next: 0, threads: 72 },
    thread: ThreadState {
        next: 8,
        interpreter: 16,
        identity: Identity::Native(144),
        frame: 56,
        cframe: Some(0),
    },
    frame: Frame {
        previous: 8,
        code: 0,
        instruction: Instruction::Address(56),
        run: Run::Shim { owner: 70 },
    },
    code: Code {
        file: 112,
        name: 128,
        first_line: 68,
        lines: 136,
        line_format: LineFormat::Locations,
        instructions: Instructions::Within { begin: 192, first: 176 },
    },
    text: TEXT,
    values: Values::Handlers { locals: 72, table: HANDLERS },
};

impl Offsets {
    /// The offsets of a version that does not publish them itself.
    pub(super) fn for_version(version: Version) -> Option<Self> {
        match (version.major, version.minor) {
            (3, 9) => Some(PYTHON_3_9),
            (3, 10) => Some(PYTHON_3_10),
            (3, 11) => Some(PYTHON_3_11),
            (3, 12) => Some(PYTHON_3_12),
            _ => None,
        }
    }

    /// What the kernel half needs of them; none if a frame is too large to be read at once, or what
    /// is wanted of it lies where no word is.
    pub(super) fn layout(&self) -> Option<PythonLayout> {
        let Self { thread, frame, .. } = self;
        let (instruction, instruction_mask) = match frame.instruction {
            Instruction::Byte(at) | Instruction::Unit(at) => (at, mask(at, 4)?),
            Instruction::Address(at) => (at, mask(at, 8)?),
        };
        let (marks, marks_mask) = match frame.run {
            Run::Each => (frame.code, 0),
            Run::Entry { entry, owner } if word(entry) == word(owner) => {
                (owner, mask(entry, 1)? | mask(owner, 1)?)
            }
            Run::Entry { .. } => return None,
            Run::Shim { owner } => (owner, mask(owner, 1)?),
        };
        let words = [frame.previous, frame.code, instruction, marks].map(word);
        let begin = words.into_iter().min()?;
        let frame_words = words.into_iter().max()? - begin + 1;
        let [previous, code, instruction, marks] = words.map(|word| word - begin);
        let is_aligned = frame.previous % 8 == 0 && frame.code % 8 == 0;
        (is_aligned && frame_words as usize <= MAX_FRAME_WORDS).then_some(PythonLayout {
            thread_identity: thread.identity.offset(),
            thread_frame: thread.frame,
            cframe_frame: thread.cframe.unwrap_or(NO_STEP),
            frame_begin: begin * 8,
            frame_words,
            previous,
            code,
            instruction,
            marks,
            reserved: 0,
            // References to objects can be tagged in 3.14; objects are aligned to 16 bytes.
            code_mask: !0b111,
            instruction_mask,
            marks_mask,
        })
    }
}

impl Identity {
    /// Where it is.
    pub(super) fn offset(self) -> u32 {
        match self {
            Self::Pthread(offset) | Self::Native(offset) => offset,
        }
    }
}

fn word(offset: u32) -> u32 {
    offset / 8
}

/// The bits of a word that hold `bytes` bytes at an offset; none if they are in two words.
fn mask(offset: u32, bytes: u32) -> Option<u64> {
    let within = offset % 8;
    (within + bytes <= 8).then(|| (u64::MAX >> (64 - 8 * bytes)) << (8 * within))
}

/// What was captured of a word under a [`mask`], as the number that it is.
pub(super) fn captured(word: u64, offset: u32) -> u64 {
    word >> (8 * (offset % 8))
}
