//! Any stack over any file: whatever is read in either, the frames are on the stack and in code.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use offwake_fuzz::frames;
use offwake_recording::ModuleId;
use offwake_unwind::{
    CodeBacking, CodeMapping, FileContent, Method, MissingPages, ModuleFiles, Registers, StackCopy,
    Unwinder,
};

/// Where the file is mapped.
const CODE: u64 = 0x40_0000;
/// Where the stack begins.
const STACK: u64 = 0x7fff_0000_0000;

struct Image(Arc<[u8]>);

impl ModuleFiles for Image {
    fn content(&self, _module: ModuleId) -> Option<FileContent> {
        Some(FileContent::Image(Arc::clone(&self.0)))
    }
}

/// Splits so many bytes off the front.
fn split_off<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}

/// A word. Its highest byte can make it one that leads into the file or to the stack.
fn word(bits: u64) -> u64 {
    let low = bits & 0xffff_ffff;
    match bits >> 56 {
        0xc0 => CODE + low,
        0x5a => STACK + low,
        _ => bits,
    }
}

/// A byte for the method, `rip` and `rbp`, how many words are on the stack in two bytes, the words,
/// and the file.
fn unwind(mut input: &[u8]) -> Option<()> {
    let [method] = split_off(&mut input)?;
    let [ip, fp] =
        [split_off(&mut input)?, split_off(&mut input)?].map(u64::from_le_bytes).map(word);
    let mut stack = Vec::new();
    for _ in 0..u16::from_le_bytes(split_off(&mut input)?) {
        stack.extend(word(u64::from_le_bytes(split_off(&mut input)?)).to_le_bytes());
    }
    let end = CODE + input.len().next_multiple_of(4096) as u64;
    let code = [
        CodeMapping { start: CODE, end, offset: 0, backing: CodeBacking::File(ModuleId(0)) },
        CodeMapping { start: end, end: end + 4096, offset: 0, backing: CodeBacking::Memory },
    ];
    let method = [Method::Auto, Method::Dwarf, Method::FramePointers][usize::from(method) % 3];
    let copy = StackCopy {
        registers: Registers { ip, sp: STACK, fp },
        red_zone: &[],
        bytes: &stack,
        missing: MissingPages::default(),
    };
    let unwound = Unwinder::new(method).unwind(&code, &Image(input.into()), &copy);
    frames::check(&unwound.frames, &stack, |address| (CODE..end + 4096).contains(&address));
    Some(())
}

fuzz_target!(|input: &[u8]| {
    let _too_short = unwind(input);
});
