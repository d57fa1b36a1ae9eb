//! What a CPython of 3.13 or later says itself of where it keeps things: `_Py_DebugOffsets`, with
//! which `_PyRuntime` begins.
//!
//! <https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_runtime.h>,
//! <https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_debug_offsets.h>

use super::{
    image::NotFound,
    memory::Memory,
    offsets::{
        Code, Frame, HANDLERS, Identity, Instruction, Instructions, InterpreterState, LineFormat,
        Offsets, Run, Text, ThreadState, Values,
    },
    version::Version,
};

const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");
/// Words that are read. All that is wanted lies in them.
const WORDS: usize = 128;
/// No structure is larger than this. `PyInterpreterState` is some 300 KB.
const MAX_OFFSET: u64 = 4 << 20;
/// What only matters within a small structure is within this.
const MAX_SMALL: u64 = 1024;

/// Which word says what.
struct Words {
    interpreter_next: usize,
    threads: usize,
    /// `thread_state.next`; `interp`, `current_frame`, `thread_id` and `native_thread_id` follow.
    thread_next: usize,
    /// `interpreter_frame.previous`; `executable`, `instr_ptr`, `localsplus` and `owner` follow.
    frame_previous: usize,
    /// `code_object.filename`; `name`, `qualname`, `linetable`, `firstlineno` follow.
    code_file: usize,
    bytecode: usize,
    /// `unicode_object.state`; `length` and `asciiobject_size` follow.
    text_state: usize,
}

const PYTHON_3_13: Words = Words {
    interpreter_next: 8,
    threads: 9,
    thread_next: 21,
    frame_previous: 29,
    code_file: 35,
    bytecode: 43,
    text_state: 68,
};

const PYTHON_3_14: Words = Words {
    interpreter_next: 8,
    threads: 9,
    thread_next: 24,
    frame_previous: 32,
    code_file: 40,
    bytecode: 48,
    text_state: 78,
};

/// What stands at `runtime`.
pub(super) fn read(
    memory: &impl Memory,
    runtime: u64,
    version: Version,
) -> Result<Offsets, NotFound> {
    let words = match (version.major, version.minor) {
        (3, 13) => PYTHON_3_13,
        (3, 14) => PYTHON_3_14,
        _ => return Err(NotFound::UnknownVersion(version)),
    };
    let mut bytes = [0; WORDS * 8];
    memory.read(runtime, &mut bytes).ok_or(NotFound::Unreadable)?;
    let table: Vec<u64> =
        bytes.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word)).collect();
    let &[cookie, hex, free_threaded, ..] = table.as_slice() else {
        return Err(NotFound::BadLayout(version));
    };
    if cookie != COOKIE
        || hex >> 16 != u64::from(u16::from_be_bytes([version.major, version.minor]))
    {
        return Err(NotFound::BadLayout(version));
    }
    if free_threaded != 0 {
        return Err(NotFound::FreeThreaded(version));
    }
    words.offsets(&Table(&table)).ok_or(NotFound::BadLayout(version))
}

struct Table<'a>(&'a [u64]);

impl Table<'_> {
    fn within(&self, word: usize, limit: u64) -> Option<u32> {
        let offset = *self.0.get(word)?;
        (offset < limit).then(|| u32::try_from(offset).ok())?
    }

    fn large(&self, word: usize) -> Option<u32> {
        self.within(word, MAX_OFFSET)
    }

    fn small(&self, word: usize) -> Option<u32> {
        self.within(word, MAX_SMALL)
    }
}

impl Words {
    fn offsets(&self, table: &Table<'_>) -> Option<Offsets> {
        let bytecode = table.small(self.bytecode)?;
        let ascii = table.small(self.text_state + 2)?;
        Some(Offsets {
            interpreters: table.large(5)?,
            interpreter: InterpreterState {
                next: table.large(self.interpreter_next)?,
                threads: table.large(self.threads)?,
            },
            thread: ThreadState {
                next: table.small(self.thread_next)?,
                interpreter: table.small(self.thread_next + 1)?,
                frame: table.small(self.thread_next + 2)?,
                identity: Identity::Native(table.small(self.thread_next + 4)?),
                cframe: None,
            },
            frame: Frame {
                previous: table.small(self.frame_previous)?,
                code: table.small(self.frame_previous + 1)?,
                instruction: Instruction::Address(table.small(self.frame_previous + 2)?),
                run: Run::Shim { owner: table.small(self.frame_previous + 4)? },
            },
            code: Code {
                file: table.small(self.code_file)?,
                name: table.small(self.code_file + 2)?,
                lines: table.small(self.code_file + 3)?,
                first_line: table.small(self.code_file + 4)?,
                line_format: LineFormat::Locations,
                // `_co_firsttraceable` is not told. It, and a pointer, are before the instructions:
                // https://github.com/python/cpython/blob/v3.14.0/Include/cpython/code.h#L105-L111
                instructions: Instructions::Within {
                    begin: bytecode,
                    first: bytecode.checked_sub(16)?,
                },
            },
            text: Text {
                state: table.small(self.text_state)?,
                length: table.small(self.text_state + 1)?,
                ascii,
                // The length and the address of its UTF-8 are between.
                compact: ascii + 16,
            },
            values: Values::Handlers {
                locals: table.small(self.frame_previous + 3)?,
                table: HANDLERS,
            },
        })
    }
}
