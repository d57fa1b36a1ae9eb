//! Mapped files that are not what they seem.

use std::{fs, io::Write, path::Path};

use offwake_recording::{AddressSpace, BuildId, FrameId, loss::Diagnostics, units::StackId};

use super::{PROGRAM, compile, frames, frames_of, own, processor};
use crate::symbols::{
    Detail,
    address_spaces::modules::Module,
    clock::monotonic_now,
    frame_table::UnnamedFrame,
    naming::{
        elf_names::{self, DebugFiles},
        names::NameTable,
        open_file::{FileForParser, OpenFile},
    },
};

/// Maps a file as code into this process; unmapped when it is dropped.
struct Mapped(*mut libc::c_void);

impl Mapped {
    fn new(path: &Path) -> Self {
        use std::os::fd::AsRawFd;
        let file = fs::File::open(path).unwrap();
        let protection = libc::PROT_READ | libc::PROT_EXEC;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                protection,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        Self(start)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it is this mapping's address and length, and nobody refers to it.
        unsafe { libc::munmap(self.0, 4096) };
    }
}

#[test]
fn a_mapped_file_that_is_no_elf_file_keeps_module_and_offset() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&[b'x'; 4096]).unwrap();
    let mapped = Mapped::new(file.path());
    let (frames, diagnostics) = frames(own(), &[mapped.0 as u64 + 0x234]);
    assert_eq!(frames[0].path.as_deref(), file.path().to_str());
    assert_eq!(frames[0].module_offset, Some(0x234));
    assert!(frames[0].functions.is_empty());
    assert_eq!(diagnostics.get("symbols_files_not_elf"), Some(&1));
}

#[test]
fn a_file_that_was_written_to_is_not_believed() {
    let directory = tempfile::tempdir().unwrap();
    let options = ["-shared", "-fPIC"];
    let library = compile(directory.path(), "l.so", "int f(int i) { return i; }", &options);
    let mapped = Mapped::new(&library);
    let mut stacks = processor();
    let addresses = [mapped.0 as u64 + 0x10];
    stacks.add_walked_stack(StackId(1), AddressSpace::Process(own()), monotonic_now(), &addresses);
    fs::OpenOptions::new().append(true).open(&library).unwrap().write_all(b"x").unwrap();
    let (frames, diagnostics) = frames_of(stacks);
    assert!(frames[0].functions.is_empty());
    assert_eq!(diagnostics.get("symbols_files_changed"), Some(&1));
}

struct NoOthers;

impl DebugFiles for NoOthers {
    fn stored(&mut self, _build_id: &BuildId) -> Vec<OpenFile> {
        Vec::new()
    }

    fn fetch(&mut self, _build_id: &BuildId) -> Option<OpenFile> {
        None
    }
}

#[test]
fn garbled_elf_files_do_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    let whole = fs::read(compile(directory.path(), "program", PROGRAM, &[])).unwrap();
    let path = directory.path().join("garbled");
    let offsets = [0, 1, 0x1000, 0x1130, 0x1180, 0x2000, u64::MAX];
    let mut diagnostics = Diagnostics::new();
    let mut try_it = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let ids = (0..).map(FrameId);
        let wanted: Vec<_> =
            ids.zip(offsets).map(|(frame, at)| UnnamedFrame { frame, at }).collect();
        let FileForParser { file, trust } =
            FileForParser::from_module(&Module::held(&path).content).unwrap().unwrap();
        let mapped = OpenFile { file: file.into(), trust };
        elf_names::name_frames(
            mapped,
            &mut NoOthers,
            Detail::Inlined,
            &wanted,
            &mut diagnostics,
            &mut NameTable::new(),
        );
    };
    for length in (0..whole.len()).step_by(whole.len() / 100) {
        try_it(&whole[..length]);
    }
    // The same garbage every time (xorshift64), much of it in the headers of file and sections.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    for round in 0..400 {
        let mut bytes = whole.clone();
        for _ in 0..1 + round % 16 {
            let length = bytes.len();
            let at = match random(3) {
                0 => random(64),
                1 => length - 1 - random(40 * 64),
                _ => random(length),
            };
            bytes[at] = u8::try_from(random(256)).unwrap();
        }
        try_it(&bytes);
    }
    assert_eq!(diagnostics.get("symbols_symbolizer_panics"), None, "{diagnostics:?}");
}
