//! Code that was made at run time, and stacks that were made up.

use offwake_recording::{AddressKind, ModuleId};

use super::live_process::check;
use crate::{
    CodeBacking, CodeMapping, FileContent, Method, MissingPages, ModuleFiles, Registers, StackCopy,
    UnwindEnd, Unwinder, UnwoundStack,
};

/// Where the code lies.
const CODE: u64 = 0x10_0000;
/// Where the stack begins.
const STACK: u64 = 0x7000_0000;

/// A module of nothing but a trampoline at offset 0x200.
struct Trampoline;

impl ModuleFiles for Trampoline {
    fn content(&self, _module: ModuleId) -> Option<FileContent> {
        let mut bytes = vec![0xcc; 0x300];
        bytes[0x200..0x209].copy_from_slice(b"\x48\xc7\xc0\x0f\0\0\0\x0f\x05");
        Some(FileContent::Image(bytes.into()))
    }
}

fn code() -> [CodeMapping; 2] {
    let (start, end) = (CODE, CODE + 0x1000);
    [
        CodeMapping { start, end, offset: 0, backing: CodeBacking::Memory },
        CodeMapping {
            start: end,
            end: end + 0x1000,
            offset: 0,
            backing: CodeBacking::File(ModuleId(0)),
        },
    ]
}

fn unwind(method: Method, fp: u64, words: &[u64]) -> UnwoundStack {
    unwind_without(MissingPages::default(), method, fp, words)
}

fn unwind_without(missing: MissingPages, method: Method, fp: u64, words: &[u64]) -> UnwoundStack {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let copy = StackCopy {
        registers: Registers { ip: CODE, sp: STACK, fp },
        red_zone: &[],
        bytes: &bytes,
        missing,
    };
    let unwound = Unwinder::new(method).unwind(&code(), &Trampoline, &copy);
    check(&unwound, &code(), &copy);
    unwound
}

fn offsets(unwound: &UnwoundStack) -> Vec<u64> {
    unwound.frames.iter().map(|frame| frame.address - CODE).collect()
}

/// The address of a word of the stack.
fn word(index: u64) -> u64 {
    STACK + index * 8
}

#[test]
fn a_chain_of_frame_pointers_ends_at_0() {
    for method in [Method::Auto, Method::FramePointers] {
        let stack = [7, word(4), CODE + 1, 7, 0, CODE + 2, 7, 7];
        let unwound = unwind(method, word(1), &stack);
        assert_eq!(offsets(&unwound), [0, 1, 2]);
        assert_eq!(unwound.end, UnwindEnd::EntryPoint);
        let kinds: Vec<_> =
            unwound.frames.iter().map(|frame| (frame.kind, frame.stack_offset)).collect();
        let returned = |index: u32| (AddressKind::Return, Some(index * 8));
        assert_eq!(kinds, [(AddressKind::Instruction, None), returned(2), returned(5)]);
    }
}

/// ```text
///  page 0       page 1     page 2
///  | frames     |          | frames |
/// ```
#[test]
fn a_page_that_is_missing_matters_where_a_frame_is_in_it() {
    let mut stack = [0; 3 * 512];
    (stack[1], stack[2]) = (word(1024), CODE + 1);
    (stack[1024], stack[1025]) = (0, CODE + 2);
    let unwind = |missing| unwind_without(missing, Method::Auto, word(1), &stack);
    let over_it = unwind(MissingPages(0b010));
    assert_eq!((offsets(&over_it), over_it.end), (vec![0, 1, 2], UnwindEnd::EntryPoint));
    let into_it = unwind(MissingPages(0b100));
    assert_eq!((offsets(&into_it), into_it.end), (vec![0, 1], UnwindEnd::PageMissing));
}

#[test]
fn a_frame_pointer_of_0_is_no_evidence_of_an_entry_point() {
    for method in [Method::Auto, Method::FramePointers] {
        assert_eq!(
            unwind(method, 0, &[CODE + 1; 8]).end,
            UnwindEnd::NoUnwindInfo { address: CODE }
        );
    }
}

#[test]
fn what_can_be_no_frame_pointer_is_not_followed() {
    let nowhere = UnwindEnd::NoUnwindInfo { address: CODE };
    // Below the stack pointer, unaligned, far away, at the end of all addresses.
    for fp in [STACK - 8, STACK + 1, STACK + (2 << 20), u64::MAX - 7, u64::MAX] {
        assert_eq!(unwind(Method::Auto, fp, &[CODE + 1; 8]).end, nowhere, "{fp:x}");
    }
    // The word above it is no address of code.
    assert_eq!(unwind(Method::Auto, STACK, &[word(2), 5, 0, 0]).end, nowhere);
    let not_code = UnwindEnd::NotCode { address: 5 };
    assert_eq!(unwind(Method::FramePointers, STACK, &[word(2), 5, 0, 0]).end, not_code);
}

#[test]
fn a_chain_that_turns_back_ends() {
    let unwound = unwind(Method::Auto, STACK, &[STACK, CODE + 1, 0, 0]);
    assert_eq!(offsets(&unwound), [0, 1]);
    assert_eq!(unwound.end, UnwindEnd::NoUnwindInfo { address: CODE + 1 });
}

#[test]
fn a_chain_that_goes_on_behind_the_copy_is_told() {
    let unwound = unwind(Method::Auto, STACK, &[word(100), CODE + 1]);
    assert_eq!(offsets(&unwound), [0, 1]);
    assert_eq!(unwound.end, UnwindEnd::CopyTooShort);
}

#[test]
fn code_made_at_run_time_has_no_unwind_data() {
    let unwound = unwind(Method::Dwarf, STACK, &[word(2), CODE + 1, 0, CODE + 2]);
    assert_eq!(unwound.end, UnwindEnd::NoUnwindInfo { address: CODE });
}

#[test]
fn an_address_outside_of_all_code_is_the_last() {
    let registers = Registers { ip: 5, sp: STACK, fp: STACK };
    let copy =
        StackCopy { registers, red_zone: &[], bytes: &[0; 64], missing: MissingPages::default() };
    let unwound = Unwinder::new(Method::Auto).unwind(&code(), &Trampoline, &copy);
    assert_eq!(unwound.end, UnwindEnd::NotCode { address: 5 });
    assert_eq!(unwound.frames.len(), 1);
}

/// A handler that was called by a frame pointer's function, and what it interrupted.
fn interrupted(sp: u64) -> [u64; 40] {
    let mut stack = [7; 40];
    stack[0] = word(30);
    stack[1] = CODE + 0x1200;
    // The context begins at word 2: `rbp`, `rsp` and `rip`.
    stack[2 + 15] = word(36);
    stack[2 + 20] = sp;
    stack[2 + 21] = CODE + 3;
    stack[36..39].copy_from_slice(&[0, CODE + 4, 7]);
    stack
}

#[test]
fn a_trampoline_without_unwind_data_is_known_by_its_code() {
    let unwound = unwind(Method::Auto, STACK, &interrupted(word(34)));
    assert_eq!(offsets(&unwound), [0, 0x1200, 3, 4]);
    assert_eq!(unwound.frames[2].kind, AddressKind::Instruction);
    assert_eq!(unwound.frames[2].stack_offset, Some((2 + 21) * 8));
    assert_eq!(unwound.end, UnwindEnd::EntryPoint);
}

#[test]
fn a_signal_that_came_on_another_stack_ends_there() {
    let below = unwind(Method::Auto, STACK, &interrupted(STACK - 4096));
    assert_eq!(offsets(&below), [0, 0x1200]);
    assert_eq!(below.end, UnwindEnd::OtherStack);
}

#[test]
fn a_file_that_can_not_be_had_is_not_guessed_about() {
    struct Nothing;
    impl ModuleFiles for Nothing {
        fn content(&self, _module: ModuleId) -> Option<FileContent> {
            None
        }
    }
    let bytes: Vec<u8> =
        [word(2), CODE + 1, 0, CODE + 2].iter().flat_map(|word| word.to_le_bytes()).collect();
    let ip = CODE + 0x1000;
    let copy = StackCopy {
        registers: Registers { ip, sp: STACK, fp: STACK },
        red_zone: &[],
        bytes: &bytes,
        missing: MissingPages::default(),
    };
    let mut unwinder = Unwinder::new(Method::Auto);
    assert_eq!(unwinder.unwind(&code(), &Nothing, &copy).end, UnwindEnd::Broken { address: ip });
    assert_eq!(unwinder.diagnostics()["unwind_modules_unread"], 1);
}
