//! Code objects: the names of functions, and their lines.

use std::{collections::HashMap, rc::Rc};

use offwake_recording::units::Tgid;

use super::{
    interpreter::{Captured, Interpreter},
    lines::Lines,
    memory::Memory,
    objects,
    offsets::{self, Instruction, Instructions, Offsets, SIZE, TYPE},
};

/// Bytes of a code object before its instructions.
const MAX_HEADER: usize = 256;
/// Bytes of a table of lines. A large generated function has some 10 KiB.
pub(super) const MAX_TABLE: u64 = 256 << 10;
/// Bytes that the names and lines of all processes take at most; then all are forgotten and read
/// again.
pub(super) const MAX_BYTES: usize = 64 << 20;
/// Where a frame is whose first instruction has not run, in bytes: one code unit before that.
const BEFORE: i64 = -2;

/// A function of Python, and where in it a frame was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PythonFunction {
    /// With the classes and functions that it is in, from 3.11 on.
    pub name: String,
    /// As the interpreter has it: it can be relative, or no file's (`<string>`).
    pub file: String,
    /// None where the interpreter itself knows of none.
    pub line: Option<u32>,
}

/// What is found of a captured frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// The function that it ran.
    Function(PythonFunction),
    /// The frame had not begun yet, or was the interpreter's own: Python shows no such frame
    /// either.
    NotShown,
    /// The code object can't be read, or there is none any more that the frame can have run.
    Unknown,
}

/// Names of code objects that were read before.
#[derive(Default)]
pub(crate) struct CodeNames {
    codes: HashMap<Key, Rc<Code>>,
    bytes: usize,
}

/// What makes a code object the same one: all of it is read anew each time.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    process: Tgid,
    address: u64,
    name: u64,
    file: u64,
    lines: u64,
    first_line: u32,
    length: u64,
}

struct Code {
    name: String,
    file: String,
    lines: Option<Lines>,
}

impl CodeNames {
    /// Names a frame of a process.
    pub(crate) fn name(
        &mut self,
        process: Tgid,
        interpreter: &Interpreter,
        memory: &impl Memory,
        frame: &Captured,
    ) -> Named {
        self.find(process, interpreter, memory, frame).unwrap_or(Named::Unknown)
    }

    /// Bytes that what is known takes, and how many code objects it is.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        (self.bytes, self.codes.len())
    }

    /// A process ended, or runs another program.
    pub(crate) fn forget(&mut self, process: Tgid) {
        self.codes.retain(|key, _| key.process != process);
        self.bytes = self.codes.values().map(|code| code.size()).sum();
    }

    fn find(
        &mut self,
        process: Tgid,
        interpreter: &Interpreter,
        memory: &impl Memory,
        frame: &Captured,
    ) -> Option<Named> {
        let offsets = &interpreter.offsets;
        let header = Header::read(process, interpreter, memory, frame.code)?;
        let byte = header.byte(frame, offsets)?;
        if byte < header.begin && !interpreter.is_generator(frame) {
            return Some(Named::NotShown);
        }
        let key = header.key;
        let code = match self.codes.get(&key) {
            Some(code) => Rc::clone(code),
            None => self.read(key, offsets, memory)?,
        };
        // Before the first instruction it is on its way into the function.
        let line = match u32::try_from(byte) {
            Ok(byte) => code.lines.as_ref().and_then(|lines| lines.at(byte)),
            Err(_negative) => Some(key.first_line),
        };
        Some(Named::Function(PythonFunction {
            name: code.name.clone(),
            file: code.file.clone(),
            line,
        }))
    }

    fn read(&mut self, key: Key, offsets: &Offsets, memory: &impl Memory) -> Option<Rc<Code>> {
        // Where a line is not known, a name is still worth having.
        let table = objects::bytes(memory, key.lines, MAX_TABLE);
        let format = offsets.code.line_format;
        let code = Rc::new(Code {
            name: objects::text(memory, key.name, &offsets.text)?,
            file: objects::text(memory, key.file, &offsets.text)?,
            lines: table.map(|table| Lines::read(&table, format, key.first_line)),
        });
        if self.bytes.saturating_add(code.size()) > MAX_BYTES {
            self.codes.clear();
            self.bytes = 0;
        }
        self.bytes += code.size();
        self.codes.insert(key, Rc::clone(&code));
        Some(code)
    }
}

impl Code {
    fn size(&self) -> usize {
        let lines = self.lines.as_ref().map_or(0, Lines::size);
        size_of::<(Key, Rc<Self>, Self)>() + self.name.len() + self.file.len() + lines
    }
}

/// What a code object says at first.
struct Header {
    key: Key,
    /// The first byte of the instructions that belong to the function's own lines.
    begin: i64,
}

impl Header {
    /// None if there is no code object.
    fn read(
        process: Tgid,
        interpreter: &Interpreter,
        memory: &impl Memory,
        address: u64,
    ) -> Option<Self> {
        let code = &interpreter.offsets.code;
        let instructions = match code.instructions {
            Instructions::Object(at) | Instructions::Within { first: at, .. } => at,
        };
        let wanted = [code.file, code.name, code.first_line, code.lines, instructions];
        let end = wanted.into_iter().max()? as usize + 8;
        let mut bytes = [0; MAX_HEADER];
        let bytes = bytes.get_mut(..end)?;
        memory.read(address, bytes)?;
        let half = |at: u32| Some(u32::from_le_bytes(*bytes.get(at as usize..)?.first_chunk()?));
        let word = |at: u32| Some(u64::from_le_bytes(*bytes.get(at as usize..)?.first_chunk()?));
        if interpreter.code_type.is_some_and(|code_type| word(TYPE) != Some(code_type)) {
            return None;
        }
        let (length, begin) = match code.instructions {
            Instructions::Object(pointer) => (objects::length(memory, word(pointer)?)?, BEFORE),
            Instructions::Within { first, .. } => {
                (word(SIZE)?.checked_mul(2)?, 2 * i64::from(half(first)?))
            }
        };
        let key = Key {
            process,
            address,
            name: word(code.name)?,
            file: word(code.file)?,
            lines: word(code.lines)?,
            first_line: half(code.first_line)?,
            length,
        };
        Some(Self { key, begin })
    }

    /// The byte of the code that a frame is at, negative just before the first one; none if it is
    /// nowhere in this code.
    fn byte(&self, frame: &Captured, offsets: &Offsets) -> Option<i64> {
        let index = |at: u32| offsets::captured(frame.instruction, at) as u32;
        let byte = match (offsets.frame.instruction, offsets.code.instructions) {
            (Instruction::Byte(at), _) => i64::from(index(at).cast_signed()),
            (Instruction::Unit(at), _) => 2 * i64::from(index(at).cast_signed()),
            (Instruction::Address(_), Instructions::Within { begin, .. }) => {
                let begin = self.key.address.wrapping_add(u64::from(begin));
                frame.instruction.wrapping_sub(begin).cast_signed()
            }
            (Instruction::Address(_), Instructions::Object(_)) => return None,
        };
        (byte >= BEFORE && byte < i64::try_from(self.key.length).ok()?).then_some(byte)
    }
}
