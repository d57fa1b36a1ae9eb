//! Frames from instructions, beside those that unwind data has of the same code.

use std::{fs::File, path::Path};

use iced_x86::FlowControl;

use gimli::UnwindContext;
use offwake_recording::{AddressKind, ModuleId};

use crate::{
    FileContent, ModuleFiles,
    instructions::{InstructionDecoder, instructions},
    location::CodeLocation,
    module_cache::ModuleCache,
    rule::{Cfa, FrameRule, SavedRegister, UnwindRule},
    state::RSP,
};

/// A file that is all there is.
struct Only(String);

impl ModuleFiles for Only {
    fn content(&self, _module: ModuleId) -> Option<FileContent> {
        File::open(&self.0).ok().map(FileContent::File)
    }
}

/// In how many locations instructions and unwind data give the same frame.
#[derive(Debug, Default)]
struct Compared {
    same: usize,
    not_decoded: usize,
    others: Vec<(u64, String)>,
}

/// Looks at every call, and at every `syscall`, in a part of the functions.
fn compared(path: &str, one_in: usize) -> Compared {
    let files = Only(path.to_owned());
    let (mut decoder, mut modules) = (InstructionDecoder::new(), ModuleCache::new());
    let mut context = UnwindContext::new();
    let mut compared = Compared::default();
    for (begin, end) in decoder.function_ranges(ModuleId(0), &files).into_iter().step_by(one_in) {
        let all = instructions(files.content(ModuleId(0)).unwrap(), begin, end);
        for instruction in all {
            let flow = instruction.flow_control();
            if !matches!(flow, FlowControl::Call | FlowControl::IndirectCall) {
                continue;
            }
            let is_function = instruction.is_call_near() || flow == FlowControl::IndirectCall;
            let (offset, kind) = match is_function {
                true => (instruction.next_ip() - 1, AddressKind::Return),
                false => (instruction.next_ip(), AddressKind::Instruction),
            };
            let location = CodeLocation { module: ModuleId(0), offset, kind };
            let UnwindRule::Frame(truth) = modules.rule(location, &files, &mut context) else {
                continue;
            };
            decoder.begin_stack();
            let UnwindRule::Decoded(decoded) = decoder.rule(location, &files) else {
                compared.not_decoded += 1;
                continue;
            };
            match decoded.from_begin.as_ref().map(|(_, rule)| &**rule) {
                None => compared.not_decoded += 1,
                Some(frame) => match differs(frame, &truth) {
                    None => compared.same += 1,
                    Some(how) => compared.others.push((location.ip_offset(), how)),
                },
            }
        }
    }
    compared
}

fn differs(frame: &FrameRule, truth: &FrameRule) -> Option<String> {
    let (Cfa::Register { number, offset }, Cfa::Register { number: of, offset: by }) =
        (&frame.cfa, &truth.cfa)
    else {
        return Some("no register".into());
    };
    // By the frame pointer, it is another way to say the same.
    if *of == RSP && (number, offset) != (of, by) {
        return Some(format!("{:?}, not {:?}", frame.cfa, truth.cfa));
    }
    frame.saved.iter().find_map(|(number, saved)| {
        let of_truth = truth.saved.iter().find(|(of, _)| of == number).map(|(_, saved)| saved);
        match (saved, of_truth) {
            (SavedRegister::Undefined, _) => None,
            (SavedRegister::AtCfa(at), Some(SavedRegister::AtCfa(of))) if at == of => None,
            _ => Some(format!("{number} is {saved:?}, not {of_truth:?}")),
        }
    })
}

#[test]
fn instructions_say_what_unwind_data_says() {
    let libc = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"];
    let libc = libc.into_iter().find(|path| Path::new(path).exists()).unwrap();
    let Compared { same, not_decoded, others } = compared(libc, 4);
    assert!(others.is_empty(), "{others:x?}");
    assert!(same > 4 * not_decoded && same > 500, "{same} of {}", same + not_decoded);
}
