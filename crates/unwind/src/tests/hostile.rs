//! Bytes that are anything.

use std::sync::{Arc, LazyLock};

use proptest::{collection::vec, prelude::*};

use offwake_recording::ModuleId;

use super::live_process::{Process, check};
use crate::{
    CodeBacking, CodeMapping, FileContent, Method, MissingPages, ModuleFiles, Registers, StackCopy,
    Unwinder,
};

static PROCESS: LazyLock<Process> = LazyLock::new(|| Process::new("self"));
const STACK: u64 = 0x7000_0000;

/// A word: anything, code, or somewhere on the stack.
fn word() -> impl Strategy<Value = u64> {
    let code = (any::<prop::sample::Index>(), any::<u64>()).prop_map(|(index, within)| {
        let code = index.get(&PROCESS.code);
        code.start + within % (code.end - code.start)
    });
    prop_oneof![any::<u64>(), code, (0..600_u64).prop_map(|index| STACK + index * 8)]
}

fn registers() -> impl Strategy<Value = Registers> {
    let sp = prop_oneof![9 => Just(STACK), 1 => any::<u64>()];
    (word(), sp, word()).prop_map(|(ip, sp, fp)| Registers { ip, sp, fp })
}

fn method() -> impl Strategy<Value = Method> {
    prop_oneof![Just(Method::Auto), Just(Method::FramePointers), Just(Method::Dwarf)]
}

proptest! {
    // Each reads the unwind data of this program anew.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_stack_over_real_code_does_no_harm(
        method in method(),
        registers in registers(),
        words in vec(word(), 0..600),
    ) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        PROCESS.unwind(method, registers, &bytes);
    }
}

/// The vDSO: a small ELF file with unwind data.
fn small_file() -> Vec<u8> {
    let image = PROCESS.code.iter().find_map(|code| {
        let CodeBacking::File(module) = code.backing else { return None };
        match PROCESS.content(module)? {
            FileContent::Image(image) => Some(image.to_vec()),
            FileContent::File(_) => None,
        }
    });
    image.unwrap()
}

struct Image(Arc<[u8]>);

impl ModuleFiles for Image {
    fn content(&self, _module: ModuleId) -> Option<FileContent> {
        Some(FileContent::Image(Arc::clone(&self.0)))
    }
}

#[test]
fn a_damaged_file_does_no_harm() {
    let whole = small_file();
    let code = [CodeMapping {
        start: 0x1000,
        end: 0x1000 + whole.len() as u64,
        offset: 0,
        backing: CodeBacking::File(ModuleId(0)),
    }];
    let bytes = [0x10; 256];
    let unwind = |image: Vec<u8>| {
        let image = Image(image.into());
        let mut unwinder = Unwinder::new(Method::Dwarf);
        let mut kinds = std::collections::HashSet::new();
        for ip in (0x1000..code[0].end).step_by(37) {
            let copy = StackCopy {
                registers: Registers { ip, sp: STACK, fp: 0 },
                red_zone: &[],
                bytes: &bytes,
                missing: MissingPages::default(),
            };
            let unwound = unwinder.unwind(&code, &image, &copy);
            check(&unwound, &code, &copy);
            kinds.insert(std::mem::discriminant(&unwound.end));
        }
        assert!(!unwinder.diagnostics().contains_key("unwind_panics"));
        kinds.len()
    };
    assert!(unwind(whole.clone()) > 1, "some of it is covered, and some is not");
    for at in (0..whole.len()).step_by(29) {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut image = whole.clone();
            image[at] = value;
            unwind(image);
        }
    }
    for length in (0..whole.len()).step_by(97) {
        unwind(whole[..length].to_vec());
    }
}
