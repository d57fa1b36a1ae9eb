//! Code objects that say absurd things of themselves: what they say is not believed, and costs no more than allowed.

use offwake_recording::units::Tgid;

use super::{
    super::{
        code::{CodeNames, MAX_BYTES, MAX_TABLE, Named, PythonFunction},
        interpreter::{Captured, Interpreter},
        memory::Memory,
        offsets::{BYTES, Instructions, SIZE},
    },
    fake::{FakeMemory, interpreter},
};
use crate::symbols::name_limit::MAX_NAME;

const CODE: u64 = 0x5000;
const NAME: u64 = 0x6000;
const TABLE: u64 = 0x7000;
/// What a code object of CPython 3.11 says of its own length, in code units.
const UNITS: u64 = 10;

/// `state` of a text in one piece that is ASCII, or has characters of so many bytes.
fn state(kind: u32) -> u32 {
    kind << 2 | 1 << 5 | u32::from(kind == 1) << 6
}

fn text(memory: &mut FakeMemory, address: u64, length: u64, state: u32, bytes: &[u8]) {
    memory.write(address, &[0; 72]);
    memory.write_word(address + 16, length);
    memory.write(address + 32, &state.to_le_bytes());
    // Texts that are ASCII begin there; the others behind two more words.
    let is_ascii = state >> 6 & 1 == 1;
    memory.write(address + if is_ascii { 48 } else { 72 }, bytes);
}

/// A function `f` that begins in line 7, with a table of one entry: all of it is in line 8.
fn sound() -> FakeMemory {
    let code = interpreter(11).offsets.code;
    let mut memory = FakeMemory::default();
    memory.write(CODE, &[0; 256]);
    memory.write_word(CODE + u64::from(SIZE), UNITS);
    for (at, address) in [(code.name, NAME), (code.file, NAME), (code.lines, TABLE)] {
        memory.write_word(CODE + u64::from(at), address);
    }
    memory.write(CODE + u64::from(code.first_line), &7_u32.to_le_bytes());
    text(&mut memory, NAME, 1, state(1), b"f");
    memory.write(TABLE, &[0; 40]);
    memory.write_word(TABLE + u64::from(SIZE), 1);
    memory.write(TABLE + u64::from(BYTES), &[0x80 | 11 << 3 | 7]);
    memory
}

fn first_instruction(interpreter: &Interpreter) -> Captured {
    let begin = match interpreter.offsets.code.instructions {
        Instructions::Within { begin, .. } => begin,
        Instructions::Object(_) => 0,
    };
    Captured { code: CODE, instruction: CODE + u64::from(begin), marks: 0 }
}

fn name(memory: &impl Memory) -> Named {
    let interpreter = interpreter(11);
    let frame = first_instruction(&interpreter);
    CodeNames::default().name(Tgid(1), &interpreter, memory, &frame)
}

fn function(name: &str, line: Option<u32>) -> Named {
    Named::Function(PythonFunction { name: name.to_owned(), file: "f".to_owned(), line })
}

#[test]
fn a_code_object_is_believed_about_what_can_be() {
    assert_eq!(name(&sound()), function("f", Some(8)));
}

/// Of ten code units a frame can be in the first; of none, and of more than an address space holds, in none.
#[test]
fn a_length_that_can_not_be_is_of_no_function() {
    for units in [0, u64::MAX, u64::MAX / 2, 1 << 62] {
        let mut memory = sound();
        memory.write_word(CODE + u64::from(SIZE), units);
        assert_eq!(name(&memory), Named::Unknown, "{units}");
    }
}

#[test]
fn a_name_that_is_no_text_is_none() {
    let with_name = |length: u64, state: u32, bytes: &[u8]| {
        let mut memory = sound();
        let code = interpreter(11).offsets.code;
        let other = 0x8000;
        memory.write_word(CODE + u64::from(code.name), other);
        text(&mut memory, other, length, state, bytes);
        name(&memory)
    };
    // Not in one piece; of characters that no text has; longer than what is there.
    assert_eq!(with_name(1, state(1) & !(1 << 5), b"g"), Named::Unknown);
    for kind in [0, 3, 5, 6, 7] {
        assert_eq!(with_name(1, state(kind), &[b'g'; 64]), Named::Unknown, "{kind}");
    }
    for length in [100, u64::MAX, 1 << 63] {
        assert_eq!(with_name(length, state(1), b"g"), Named::Unknown, "{length}");
    }
    // Halves of characters, and numbers that are none.
    assert_eq!(with_name(1, state(2), &[0x00, 0xd8]), function("\u{fffd}", Some(8)));
    assert_eq!(with_name(1, state(4), &[0xff; 4]), function("\u{fffd}", Some(8)));
    // One that never ends is cut.
    let long = vec![b'g'; MAX_NAME + 1];
    let Named::Function(found) = with_name(u64::MAX, state(1), &long) else { panic!() };
    assert!(found.name.len() <= MAX_NAME + "…".len(), "{}", found.name.len());
}

/// The name is worth having all the same.
#[test]
fn a_table_of_lines_that_can_not_be_costs_the_lines() {
    for length in [MAX_TABLE + 1, u64::MAX, 1 << 63] {
        let mut memory = sound();
        memory.write_word(TABLE + u64::from(SIZE), length);
        assert_eq!(name(&memory), function("f", None), "{length}");
    }
    // It leads nowhere, and to the code itself.
    let code = interpreter(11).offsets.code;
    for (table, line) in [(0, None), (u64::MAX, None), (u64::MAX - 16, None)] {
        let mut memory = sound();
        memory.write_word(CODE + u64::from(code.lines), table);
        assert_eq!(name(&memory), function("f", line), "{table:x}");
    }
    // Before the first line, and beyond the last one, it wraps around and does no harm.
    for first in [0, u32::MAX] {
        let mut memory = sound();
        memory.write(CODE + u64::from(code.first_line), &first.to_le_bytes());
        assert_eq!(name(&memory), function("f", Some(first.wrapping_add(1))));
    }
}

/// Where it leads to itself, each of its words is an address, a length and a text at once.
#[test]
fn a_code_object_that_is_its_own_name_does_no_harm() {
    let code = interpreter(11).offsets.code;
    let mut memory = sound();
    for at in [code.name, code.file, code.lines] {
        memory.write_word(CODE + u64::from(at), CODE);
    }
    assert_eq!(name(&memory), Named::Unknown);
}

/// Ever new functions, each with a table as long as allowed, in which each byte begins a line.
struct Endless;

impl Memory for Endless {
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        let code = interpreter(11).offsets.code;
        let mut page = vec![0x80 | 11 << 3; 256];
        let mut word = |at: u32, word: u64| {
            page[at as usize..at as usize + 8].copy_from_slice(&word.to_le_bytes());
        };
        if address < 1 << 32 {
            // The code objects are a page apart.
            word(SIZE, UNITS);
            for (at, address) in [(code.name, 2 << 32), (code.file, 2 << 32), (code.lines, 1 << 32)]
            {
                word(at, address);
            }
            page[code.first_line as usize..][..4].copy_from_slice(&7_u32.to_le_bytes());
            if let Instructions::Within { first, .. } = code.instructions {
                page[first as usize..][..4].copy_from_slice(&[0; 4]);
            }
        } else if address < 2 << 32 {
            word(SIZE, MAX_TABLE);
        } else {
            word(16, 1);
            word(32, u64::from(state(1)));
            page[48] = b'f';
        }
        let from = usize::try_from(address % 4096).ok()?;
        for (index, byte) in (from..).zip(into) {
            *byte = page.get(index).copied().unwrap_or(0x80 | 11 << 3);
        }
        Some(())
    }
}

#[test]
fn code_objects_take_no_more_bytes_than_allowed() {
    let interpreter = interpreter(11);
    let first = first_instruction(&interpreter);
    let mut names = CodeNames::default();
    let (mut most, mut fewest) = (0, usize::MAX);
    for number in 0..48_u64 {
        let by = number * 4096;
        let frame = Captured { code: CODE + by, instruction: first.instruction + by, ..first };
        let named = names.name(Tgid(1), &interpreter, &Endless, &frame);
        assert!(matches!(named, Named::Function(found) if found.name == "f"), "{number}");
        let (bytes, codes) = names.size();
        assert!(bytes <= MAX_BYTES, "{bytes}");
        most = most.max(bytes);
        fewest = if number > 0 { fewest.min(codes) } else { fewest };
    }
    // They came near to it, and were forgotten then.
    assert!(most > MAX_BYTES / 2, "{most}");
    assert_eq!(fewest, 1);
}
