//! Any messages from the process that unwinds: frames that are believed are in code, and on the
//! stack.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offwake::unwinder_process::{UnwindRequest, receive_stacks};
use offwake_fuzz::{frames, messages};
use offwake_recording::ModuleId;
use offwake_unwind::{
    CodeBacking, CodeMapping, FileContent, MissingPages, ModuleFiles, Registers, StackCopy,
};

/// Where code is.
const CODE: u64 = 0x100;

struct NoFiles;

impl ModuleFiles for NoFiles {
    fn content(&self, _module: ModuleId) -> Option<FileContent> {
        None
    }
}

/// A byte for the number of words on the stack, the words, a byte each, and messages: each with two
/// bytes for its length in front.
fn read_messages(input: &[u8]) -> Option<()> {
    let (&words, input) = input.split_first()?;
    let (words, input) = input.split_at_checked(words.into())?;
    let stack: Vec<u8> = words.iter().flat_map(|&word| u64::from(word).to_le_bytes()).collect();
    let code = [CodeMapping { start: 0, end: CODE, offset: 0, backing: CodeBacking::Memory }];
    let registers = Registers { ip: 1, sp: 0x1000, fp: 0 };
    let copy =
        StackCopy { registers, red_zone: &[], bytes: &stack, missing: MissingPages::default() };
    let mut channel = messages::channel(input)?;
    let request = UnwindRequest { code: code.into(), copy };
    for unwound in receive_stacks(&mut channel, &[request], &NoFiles).ok()? {
        frames::check(&unwound.frames, &stack, |address| address < CODE);
    }
    Some(())
}

fuzz_target!(|input: &[u8]| {
    let _too_short = read_messages(input);
});
