//! Names addresses by any file, for the fuzzer.

use offwake_recording::{BuildId, FrameId, Function, loss::Diagnostics};

use super::{
    detail::Detail,
    elf_names::{self, DebugFiles, MAX_INLINED},
    names::NameTable,
    open_file::OpenFile,
    perf_map,
};
use crate::symbols::{frame_table::UnnamedFrame, name_limit::MAX_NAME};

/// Addresses that are named.
const ADDRESSES: u32 = 256;
/// How far they are from each other.
const DISTANCE: u64 = 16;
/// Bytes of a name at most, with the mark of one that was cut.
const MAX_TEXT: usize = MAX_NAME + "…".len();

/// No file knows more than the one at hand.
pub(super) struct NoOthers;

impl DebugFiles for NoOthers {
    fn stored(&mut self, _build_id: &BuildId) -> Vec<OpenFile> {
        Vec::new()
    }

    fn fetch(&mut self, _build_id: &BuildId) -> Option<OpenFile> {
        None
    }
}

fn wanted() -> Vec<UnnamedFrame> {
    let addresses = (0..u64::from(ADDRESSES)).map(|number| number * DISTANCE);
    (0..ADDRESSES)
        .map(FrameId)
        .zip(addresses)
        .map(|(frame, at)| UnnamedFrame { frame, at })
        .collect()
}

fn check(names: NameTable) {
    for (frame, functions) in names.into_vec() {
        assert!(frame.0 < ADDRESSES && (1..=MAX_INLINED + 1).contains(&functions.len()));
        for Function { name, file, .. } in &functions {
            let longest = file.as_deref().map_or(0, str::len).max(name.len());
            assert!(longest <= MAX_TEXT, "{longest}");
        }
    }
}

/// Names offsets in a file by its symbol table, its DWARF, or Go's table of functions.
pub(crate) fn name_by_file(bytes: &[u8]) {
    for detail in [Detail::SymbolTable, Detail::Lines] {
        let Ok(file) = OpenFile::from_image(bytes) else { return };
        let (mut diagnostics, mut names) = (Diagnostics::new(), NameTable::new());
        elf_names::name_frames(
            file,
            &mut NoOthers,
            detail,
            &wanted(),
            &mut diagnostics,
            &mut names,
        );
        check(names);
    }
}

/// Names addresses by a perf map.
pub(crate) fn name_by_perf_map(bytes: &[u8]) {
    let Ok(OpenFile { file, .. }) = OpenFile::from_image(bytes) else { return };
    let end = bytes.len() as u64;
    // All of it, and of a longer one its end.
    for range in [0..end, end / 2..end] {
        let (mut diagnostics, mut names) = (Diagnostics::new(), NameTable::new());
        perf_map::name_frames(&file, range, &wanted(), &mut diagnostics, &mut names);
        check(names);
    }
}
