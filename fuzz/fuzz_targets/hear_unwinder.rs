//! Whatever the process that unwinds says: frames are in code, and on the stack.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offwake::{
    recording::{ModuleId},
    unwind::{Asked, Code, CodeFile, Content, Files, MissingPages, Registers, StackCopy, hear},
};
use offwake_fuzz::{frames, said};

/// Where code is.
const CODE: u64 = 0x100;

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
    let (words, input) = input.split_at_checked(words.into())?;
    let stack: Vec<u8> = words.iter().flat_map(|&word| u64::from(word).to_le_bytes()).collect();
    let code = [Code { start: 0, end: CODE, offset: 0, file: CodeFile::Memory }];
    let registers = Registers { ip: 1, sp: 0x1000, fp: 0 };
    let copy = StackCopy { registers, bytes: &stack, missing: MissingPages::default() };
    let mut channel = said::channel(input)?;
    let asked = Asked { code: code.into(), copy };
    let unwound = hear(&mut channel, &asked, &NoFiles).ok()?;
    frames::check(&unwound.frames, &stack, |address| address < CODE);
    Some(())
}

fuzz_target!(|input: &[u8]| {
    let _too_short = listen(input);
});
