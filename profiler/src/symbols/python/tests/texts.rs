//! Strings as CPython has them in memory.

use super::{
    super::{
        objects,
        offsets::{Offsets, Text},
        version::Version,
    },
    fake::FakeMemory,
};
use crate::symbols::name_limit::MAX_NAME;

const AT: u64 = 0x7000;
const COMPACT: u32 = 1 << 5;
const ASCII: u32 = 1 << 6;

fn offsets(minor: u8) -> Text {
    Offsets::for_version(Version::python3(minor)).unwrap().text
}

fn read(text: &Text, length: u64, state: u32, begin: u32, data: &[u8]) -> Option<String> {
    let mut memory = FakeMemory::default();
    memory.write(AT, &[0; 72]);
    memory.write(AT + u64::from(text.state), &state.to_le_bytes());
    memory.write_word(AT + u64::from(text.length), length);
    memory.write(AT + u64::from(begin), data);
    objects::text(&memory, AT, text)
}

fn kind(bytes: u32) -> u32 {
    bytes << 2
}

#[test]
fn characters_of_every_size_are_read() {
    for (minor, ascii, compact) in [(9, 48, 72), (12, 40, 56)] {
        let text = offsets(minor);
        let read = |length, state, begin, data: &[u8]| read(&text, length, state, begin, data);
        // Interned or not makes no difference.
        let state = kind(1) | COMPACT | ASCII | 0b11;
        assert_eq!(read(4, state, ascii, b"main").as_deref(), Some("main"));
        assert_eq!(read(0, state, ascii, b"").as_deref(), Some(""));
        let state = kind(1) | COMPACT;
        assert_eq!(read(2, state, compact, b"\xfcb").as_deref(), Some("üb"));
        let utf16: Vec<u8> = "名前".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(read(2, kind(2) | COMPACT, compact, &utf16).as_deref(), Some("名前"));
        let utf32: Vec<u8> = "𐎠a".chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
        assert_eq!(read(2, kind(4) | COMPACT, compact, &utf32).as_deref(), Some("𐎠a"));
    }
}

#[test]
fn a_half_of_a_character_is_replaced() {
    let text = offsets(12);
    let state = kind(2) | COMPACT;
    assert_eq!(read(&text, 1, state, 56, &[0x00, 0xd8]).as_deref(), Some("\u{fffd}"));
    let state = kind(4) | COMPACT;
    assert_eq!(read(&text, 1, state, 56, &[0xff; 4]).as_deref(), Some("\u{fffd}"));
}

#[test]
fn what_is_no_string_in_one_piece_is_none() {
    let text = offsets(12);
    for state in [kind(1), kind(1) | ASCII, kind(3) | COMPACT, kind(0) | COMPACT] {
        assert_eq!(read(&text, 1, state, 56, b"abcd"), None, "{state:b}");
    }
    assert_eq!(objects::text(&FakeMemory::default(), AT, &text), None);
}

#[test]
fn a_long_string_is_cut_and_its_length_is_not_believed() {
    let text = offsets(12);
    let data = vec![b'x'; MAX_NAME + 10];
    for length in [MAX_NAME as u64 + 1, MAX_NAME as u64 + 10, u64::MAX] {
        let read = read(&text, length, kind(1) | COMPACT | ASCII, 40, &data).unwrap();
        assert_eq!(read, format!("{}…", "x".repeat(MAX_NAME)));
    }
}
