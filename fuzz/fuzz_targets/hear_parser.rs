//! Whatever the process that parses says: names are those of addresses that were asked about, and no longer than
//! names may be.
#![no_main]

use std::{
    io::Write as _,
    net::Shutdown,
    os::{fd::OwnedFd, unix::net::UnixStream},
};

use libfuzzer_sys::fuzz_target;
use offwake::{
    parser::{Channel, MAX_MESSAGE},
    symbols::hear,
};

/// What fits into a socket that nobody reads from.
const MAX_INPUT: usize = 16 << 10;

/// A byte for the number of addresses, and messages: each with two bytes for its length in front.
fn listen(input: &[u8]) -> Option<()> {
    let (&addresses, mut input) = input.split_first()?;
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
    let mut channel = Channel::to_trusted(OwnedFd::from(ours));
    for (frame, functions) in hear(&mut channel, addresses.into()).ok()? {
        assert!(frame.0 < addresses.into() && !functions.is_empty());
        let texts =
            functions.iter().flat_map(|function| [Some(&*function.name), function.file.as_deref()]);
        assert!(texts.flatten().map(str::len).sum::<usize>() < MAX_MESSAGE);
    }
    Some(())
}

fuzz_target!(|input: &[u8]| {
    let _too_short = listen(&input[..input.len().min(MAX_INPUT)]);
});
