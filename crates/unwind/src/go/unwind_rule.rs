//! How the frames of Go code are found by Go's own table of functions: it says how far the stack
//! pointer is below the caller's at each instruction, and which functions begin a stack.
//!
//! <https://github.com/golang/go/blob/go1.24.0/src/runtime/symtab.go>, `pcHeader` and `_func`

use offwake_recording::AddressKind;

use super::table::{FunctionTable, MAX_FUNCTION_STEPS};
use crate::{
    rule::{Cfa, FrameRule, SavedRegister, UnwindRule},
    state::{RBP, RSP},
};

/// The flag of a function that a stack begins with.
const TOP_FRAME: u8 = 1;
/// The flag of a function that sets the stack pointer to whatever it likes.
const WRITES_SP: u8 = 2;

/// The rule for an address, or none if the table has none.
pub(crate) fn rule(table: &[u8], address: u64, kind: AddressKind) -> Option<UnwindRule> {
    let table = FunctionTable::parse(table)?;
    // The loader writes the start into position-independent programs.
    let pc = address.checked_sub(table.text_start).filter(|_| table.text_start != 0)?;
    let function = table.function(pc)?;
    let flags = function.flags()?;
    let mut is_called_by_others = false;
    match (table.name(function)?, kind) {
        // Go's own walk ends here. The first may have been started by C code, and the other is
        // where the kernel has a signal handled.
        (b"runtime.mstart" | b"runtime.sigtramp", _) => is_called_by_others = true,
        // The first function of a thread, and what left a goroutine alone to go on with the stack
        // of the thread from its top.
        (b"runtime.clone" | b"runtime.mcall", AddressKind::Return) => {
            return Some(UnwindRule::EntryPoint);
        }
        _ if flags & TOP_FRAME != 0 => return Some(UnwindRule::EntryPoint),
        _ if flags & WRITES_SP != 0 => return Some(UnwindRule::OtherStack),
        _ => {}
    }
    // 0 is for functions that have no such table.
    let depths = function.field(4).filter(|&depths| depths != 0)?;
    // How far the stack pointer is below where it was when the function was called.
    let below = table.value(depths, function, pc, &mut MAX_FUNCTION_STEPS.into())?;
    let below = Some(i64::from(below)).filter(|&below| below >= 0 && below % 8 == 0)?;
    // A function without a frame leaves `rbp` as it was. Where others save it is not in the table,
    // and nothing in Go needs it.
    let saved = if below == 0 { Vec::new() } else { vec![(RBP, SavedRegister::Undefined)] };
    let frame = FrameRule {
        cfa: Cfa::Register { number: RSP, offset: below.checked_add(8)? },
        return_address: SavedRegister::AtCfa(-8),
        saved,
        resumes: AddressKind::Return,
    };
    let frame = frame.into();
    Some(if is_called_by_others { UnwindRule::TopOfGo(frame) } else { UnwindRule::Frame(frame) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: u64 = 0x40_1000;
    /// Since Go 1.20, and of Go 1.18 and 1.19, and where a record has its kind.
    const MAGIC: [(u32, usize); 2] = [(0xffff_fff1, 40), (0xffff_fff0, 36)];

    /// A table of functions of 0x100 bytes each: their names and flags. The stack pointer is 0,
    /// then from byte 4 on 24 below, and from byte 0xf0 on 0 again.
    fn table((magic, flags_at): (u32, usize), functions: &[(&str, u8)]) -> Vec<u8> {
        let (mut names, mut rows, mut fields) = (vec![0], Vec::new(), Vec::new());
        let fields_begin = functions.len() * 8 + 4;
        for (&(name, flags), entry) in functions.iter().zip((0_u32..).step_by(0x100)) {
            rows.extend(entry.to_le_bytes());
            rows.extend(((fields_begin + fields.len()) as u32).to_le_bytes());
            let mut of_function = vec![0; flags_at + 4];
            of_function[..4].copy_from_slice(&entry.to_le_bytes());
            of_function[4..8].copy_from_slice(&(names.len() as u32).to_le_bytes());
            of_function[16] = 1;
            of_function[flags_at + 1] = flags;
            fields.extend(of_function);
            names.extend(name.bytes().chain([0]));
        }
        rows.extend((functions.len() as u32 * 0x100).to_le_bytes());
        let steps = [0, 2, 4, 48, 0xec, 1, 47, 0x10, 0];
        let mut table = magic.to_le_bytes().to_vec();
        table.extend([0, 0, 1, 8]);
        let (names_at, steps_at) = (72, 72 + names.len() as u64);
        let rows_at = steps_at + steps.len() as u64;
        let count = functions.len() as u64;
        for number in [count, 0, TEXT, names_at, 0, 0, steps_at, rows_at] {
            table.extend(number.to_le_bytes());
        }
        [table, names, steps.to_vec(), rows, fields].concat()
    }

    fn below(table: &[u8], address: u64) -> Option<i64> {
        match rule(table, address, AddressKind::Return)? {
            UnwindRule::Frame(frame) => match frame.cfa {
                Cfa::Register { number: RSP, offset } => Some(offset - 8),
                _ => None,
            },
            _ => None,
        }
    }

    #[test]
    fn a_function_has_its_caller_where_its_table_says() {
        for version in MAGIC {
            let table = table(version, &[("main.first", 0), ("main.second", 0)]);
            let at = |offset| below(&table, TEXT + offset);
            assert_eq!([at(0), at(3), at(4), at(0xef), at(0xf0)], [0, 0, 24, 24, 0].map(Some));
            assert_eq!([at(0x100), at(0x104), at(0x1ff)], [0, 24, 0].map(Some));
            assert_eq!([at(0x200), below(&table, TEXT - 1)], [None, None]);
        }
    }

    #[test]
    fn a_stack_begins_where_go_says() {
        let functions = [
            ("runtime.goexit", TOP_FRAME),
            ("runtime.mcall", WRITES_SP),
            ("runtime.systemstack", WRITES_SP),
            ("runtime.clone", 0),
            ("runtime.mstart", TOP_FRAME),
            ("runtime.sigtramp", TOP_FRAME),
        ];
        let table = table(MAGIC[0], &functions);
        let at = |index: u64, kind| rule(&table, TEXT + index * 0x100, kind).unwrap();
        use AddressKind::{Instruction, Return};
        for index in [0, 1, 3] {
            assert!(matches!(at(index, Return), UnwindRule::EntryPoint));
        }
        assert!(matches!(at(2, Return), UnwindRule::OtherStack));
        assert!(matches!(at(1, Instruction), UnwindRule::OtherStack));
        // That is the parent, in the call.
        assert!(matches!(at(3, Instruction), UnwindRule::Frame(_)));
        for index in [4, 5] {
            assert!(matches!(at(index, Return), UnwindRule::TopOfGo(_)));
        }
    }

    #[test]
    fn a_damaged_table_does_no_harm() {
        let whole = table(MAGIC[0], &[("main.first", 0), ("main.second", 0)]);
        let all = |table: &[u8]| {
            for offset in 0..0x210 {
                rule(table, TEXT + offset, AddressKind::Return);
            }
        };
        for at in 0..whole.len() {
            all(&whole[..at]);
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut table = whole.clone();
                table[at] = value;
                all(&table);
            }
        }
    }
}
