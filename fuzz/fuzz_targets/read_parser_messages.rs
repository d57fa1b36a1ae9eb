//! Any messages from the process that parses: names that are believed are those of addresses that
//! were asked about, and no longer than names may be.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offwake::{parser::MAX_MESSAGE, symbols::receive_names};
use offwake_fuzz::messages;

/// A byte for the number of addresses, and messages: each with two bytes for its length in front.
fn read_messages(input: &[u8]) -> Option<()> {
    let (&addresses, input) = input.split_first()?;
    let mut channel = messages::channel(input)?;
    for (frame, functions) in receive_names(&mut channel, addresses.into()).ok()? {
        assert!(frame.0 < addresses.into() && !functions.is_empty());
        let texts =
            functions.iter().flat_map(|function| [Some(&*function.name), function.file.as_deref()]);
        assert!(texts.flatten().map(str::len).sum::<usize>() < MAX_MESSAGE);
    }
    Some(())
}

fuzz_target!(|input: &[u8]| {
    let _too_short = read_messages(input);
});
