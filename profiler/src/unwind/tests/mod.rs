//! Real stacks of real programs, and made-up ones.

mod apart;
mod chains;
mod decoded;
mod hostile;
mod own;
mod process;
mod programs;

use super::*;

/// Whatever it is, what is said of it holds.
fn check(unwound: &Unwound, code: &[Code], copy: &StackCopy) {
    let frames = &unwound.frames;
    assert!((1..=MAX_FRAMES).contains(&frames.len()));
    let leaf =
        UnwoundFrame { address: copy.registers.ip, kind: AddressKind::Instruction, at: None };
    assert_eq!(frames[0], leaf);
    for frame in &frames[1..] {
        assert!(find(code, frame.address - frame.kind.before()).is_some(), "{frame:x?}");
    }
    let mut above = 0;
    for frame in frames {
        let Some(at) = frame.at else { continue };
        assert!(at as usize >= above && at % 8 == 0, "{at} after {above}");
        above = at as usize + 8;
        let word = copy.bytes[at as usize..].first_chunk().unwrap();
        assert_eq!(u64::from_le_bytes(*word), frame.address);
    }
}
