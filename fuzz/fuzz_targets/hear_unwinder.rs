//! Whatever the process that unwinds says: frames are in code, and on the stack.
#![no_main]

use std::{
    io::Write as _,
    net::Shutdown,
    os::{fd::OwnedFd, unix::net::UnixStream},
};

use libfuzzer_sys::fuzz_target;
use offwake::{
    parser::Channel,
    recording::{ModuleId, decode::MissingPages},
    unwind::{Asked, Code, CodeFile, Content, Files, MAX_FRAMES, Registers, StackCopy, hear},
};

/// Where code is.
const CODE: u64 = 0x100;
/// What fits into a socket that nobody reads from.
const MAX_INPUT: usize = 16 << 10;

struct NoFiles;

impl Files for NoFiles {
    fn content(&self, _module: ModuleId) -> Option<Content> {
        None
    }
}

/// A byte for the number of words on the stack, the words, a byte each, and messages: each with two bytes for
/// its length in front.
fn listen(input: &[u8]) -> Option<()> {
    let (&words, input) = input.split_first()?;
    let (words, mut input) = input.split_at_checked(words.into())?;
    let stack: Vec<u8> = words.iter().flat_map(|&word| u64::from(word).to_le_bytes()).collect();
    let (ours, mut its) = UnixStream::pair().ok()?;
    let mut messages = Vec::new();
    while let Some((length, rest)) = input.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (message, rest) = rest.split_at(length);
        messages.extend(u32::try_from(length).ok()?.to_le_bytes());
        messages.extend(message);
        input = rest;
    }
    its.write_all(&messages).ok()?;
    its.shutdown(Shutdown::Write).ok()?;
    let code = [Code { start: 0, end: CODE, offset: 0, file: CodeFile::Memory }];
    let registers = Registers { ip: 1, sp: 0x1000, fp: 0 };
    let copy = StackCopy { registers, bytes: &stack, missing: MissingPages::default() };
    let mut channel = Channel::to_trusted(OwnedFd::from(ours));
    let asked = Asked { code: code.into(), copy };
    let unwound = hear(&mut channel, &asked, &NoFiles).ok()?;
    assert!((1..=MAX_FRAMES).contains(&unwound.frames.len()));
    let mut above = 0;
    for frame in &unwound.frames[1..] {
        assert!(frame.address.wrapping_sub(frame.kind.before()) < CODE);
        let Some(at) = frame.at else { continue };
        assert!(at as usize >= above);
        above = at as usize + 8;
        assert_eq!(stack[at as usize..above], frame.address.to_le_bytes());
    }
    Some(())
}

fuzz_target!(|input: &[u8]| {
    let _too_short = listen(&input[..input.len().min(MAX_INPUT)]);
});
