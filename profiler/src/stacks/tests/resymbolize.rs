//! Names that are looked up later, by build id.

use std::{
    fs,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::Command,
};

use offwake_recording::{
    AddressKind, AddressSpace, BuildId, Frame, FrameId, Function, Module, ModuleId, Segment,
    StackTable, loss::Diagnostics, units::StackId,
};
use offwake_unwind::elf::{build_id, layout::CodeLayout};
use tempfile::TempDir;

use super::{PROGRAM, Running, compile, is_root, joined, own, parser, processor, schedule};
use crate::symbols::{
    DebugDirectories, NameSources, RecordedIn, Resymbolized, address_spaces::proc_maps,
    clock::monotonic_now, naming, resymbolize,
};

/// A program whose names are in a file of their own, and a recording of it.
///
/// Its code is at other addresses than offsets: whoever takes one for the other finds no names.
struct Stripped {
    directory: TempDir,
    program: PathBuf,
    names: PathBuf,
    table: StackTable,
}

impl Stripped {
    fn record() -> Self {
        Self::record_linked(&["-pie", "-Wl,-Ttext-segment=0x30000"])
    }

    fn record_linked(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = [&["-fPIE", "-Wl,--build-id=0xabcdef0123"], options].concat();
        let program = compile(directory.path(), "program", PROGRAM, &options);
        let names = directory.path().join("names");
        objcopy(&["--only-keep-debug"], &program, &names);
        objcopy(&["--strip-all"], &program, &program);
        let mut running = Running::start(&program);
        let addresses = [running.address(), running.address()];
        let mut stacks = processor();
        let space = AddressSpace::Process(running.tgid());
        stacks.add_walked_stack(
            StackId(1),
            space,
            monotonic_now(),
            &[addresses[0], addresses[0], addresses[1]],
        );
        let (new, found, _) = stacks.finish().resolve(&mut parser(), &mut |_, _| {});
        assert!(found.is_empty(), "{found:?}");
        let mut table = StackTable::default();
        table.add(new);
        Self { directory, program, names, table }
    }

    /// As if it were not known where the code was.
    fn without_segments(mut self) -> Self {
        self.set_segments(&[]);
        self
    }

    fn set_segments(&mut self, segments: &[Segment]) {
        for module in self.table.modules.values_mut() {
            module.segments = segments.to_vec();
        }
    }

    /// The folder for `--debug-dir`.
    fn place(&self) -> PathBuf {
        self.directory.path().join("place")
    }

    /// Puts a file where the names of this build are looked for.
    fn place_by_build_id(&self, file: &Path, suffix: &str) -> PathBuf {
        let folder = self.place().join(".build-id/ab");
        fs::create_dir_all(&folder).unwrap();
        let to = folder.join(format!("cdef0123{suffix}"));
        fs::copy(file, &to).unwrap();
        to
    }

    fn resymbolize(&mut self) -> Resymbolized {
        let place = self.place();
        resymbolize_in(&mut self.table, &place, RecordedIn::AnotherBoot)
    }

    fn names(&self) -> Vec<String> {
        let frames = self.table.frames_of(StackId(1));
        frames.map(joined).collect()
    }
}

fn resymbolize_in(table: &mut StackTable, place: &Path, boot: RecordedIn) -> Resymbolized {
    resymbolize(table, &sources(place), boot, &mut |_, _| {})
}

fn sources(place: &Path) -> NameSources {
    NameSources {
        debug_directories: DebugDirectories::new([place.to_owned()]),
        ..NameSources::default()
    }
}

pub(super) fn objcopy(options: &[&str], from: &Path, to: &Path) {
    let status = Command::new("objcopy").args(options).arg(from).arg(to).status();
    assert!(status.unwrap().success(), "objcopy could not copy {}", from.display());
}

const NAMES: [&str; 2] = ["inner outer", "last"];

#[test]
fn a_stripped_binary_has_its_names_from_the_file_with_its_build_id() {
    let mut recorded = Stripped::record();
    recorded.place_by_build_id(&recorded.names, ".debug");
    let mut steps = Vec::new();
    let sources = sources(&recorded.place());
    let done =
        resymbolize(&mut recorded.table, &sources, RecordedIn::AnotherBoot, &mut |n, all| {
            steps.push((n, all));
        });
    assert_eq!((done.modules_found, done.frames_named), (1, 3), "{done:?}");
    assert_eq!(recorded.names()[1..], NAMES);
    assert_eq!(steps, [(0, 3), (3, 3)]);
}

#[test]
fn names_are_found_by_the_name_of_the_file_too() {
    for name in ["program.debug", "program"] {
        let mut recorded = Stripped::record();
        fs::create_dir(recorded.place()).unwrap();
        fs::copy(&recorded.names, recorded.place().join(name)).unwrap();
        let done = recorded.resymbolize();
        assert_eq!(recorded.names()[1..], NAMES, "{name} {done:?}");
    }
}

#[test]
fn a_binary_that_is_gone_from_its_path_is_found_by_its_build_id() {
    let mut recorded = Stripped::record();
    recorded.place_by_build_id(&recorded.program, "");
    recorded.place_by_build_id(&recorded.names, ".debug");
    fs::remove_file(&recorded.program).unwrap();
    let done = recorded.resymbolize();
    assert_eq!(recorded.names()[1..], NAMES, "{done:?}");
}

#[test]
fn a_file_of_names_alone_is_enough_where_the_recording_tells_where_the_code_was() {
    let linked: [&[&str]; 4] = [
        &["-pie"],
        &["-pie", "-Wl,-Ttext-segment=0x30000"],
        &["-no-pie"],
        &["-no-pie", "-Wl,-z,noseparate-code"],
    ];
    for options in linked {
        let mut recorded = Stripped::record_linked(options);
        fs::remove_file(&recorded.program).unwrap();
        recorded.place_by_build_id(&recorded.names, ".debug");
        fs::remove_file(&recorded.names).unwrap();
        let done = recorded.resymbolize();
        assert_eq!((done.modules_found, done.frames_named), (1, 3), "{options:?} {done:?}");
        assert_eq!(recorded.names()[1..], NAMES, "{options:?}");
    }
}

#[test]
fn segments_that_can_not_be_do_no_harm() {
    let mut recorded = Stripped::record();
    fs::remove_file(&recorded.program).unwrap();
    recorded.place_by_build_id(&recorded.names, ".debug");
    let segment = |offset, address, size| Segment { offset, address, size };
    let true_ones = recorded.table.modules.values().next().unwrap().segments.clone();
    let &[code] = &*true_ones else { panic!("one segment of code: {true_ones:?}") };
    let refused: [&[Segment]; 6] = [
        &[],
        &[segment(u64::MAX, 0, 1)],
        &[segment(1, 0, u64::MAX)],
        &[code, segment(u64::MAX, u64::MAX, u64::MAX)],
        // What is in both has no one address.
        &[code, code],
        &[segment(0, 0, u64::MAX), code],
    ];
    for segments in refused {
        recorded.set_segments(segments);
        let done = recorded.resymbolize();
        assert_eq!((done.modules_without_code, done.frames_named), (1, 0), "{segments:x?}");
    }
    let useless: [&[Segment]; 5] = [
        &[segment(0, u64::MAX, u64::MAX)],
        &[segment(0, 0, 0)],
        &[segment(u64::MAX - 1, u64::MAX, 1)],
        &[segment(code.offset + code.size, code.address, code.size)],
        &(0..100_000).map(|n| segment(n << 32, n, 1)).collect::<Vec<_>>(),
    ];
    for segments in useless {
        recorded.set_segments(segments);
        let done = recorded.resymbolize();
        assert_eq!((done.modules_found, done.frames_named), (1, 0), "{segments:x?}");
    }
    assert_eq!(recorded.names(), ["", "", ""]);
    // A symbol without a size has no end: one of those may be found.
    for address in [1 << 63, u64::MAX - code.size, code.address + 1] {
        recorded.set_segments(&[segment(code.offset, address, code.size)]);
        let done = recorded.resymbolize();
        assert_eq!(
            (done.modules_found, &done.diagnostics),
            (1, &Diagnostics::new()),
            "{address:x}"
        );
    }
    // In any order.
    recorded.set_segments(&[segment(code.offset + code.size, 0, 1), code]);
    recorded.resymbolize();
    assert_eq!(recorded.names()[1..], NAMES);
}

#[test]
fn a_file_of_names_alone_does_not_tell_where_the_code_was() {
    let mut recorded = Stripped::record().without_segments();
    let names = recorded.place_by_build_id(&recorded.names, ".debug");
    let program = fs::read(&recorded.program).unwrap();
    fs::remove_file(&recorded.program).unwrap();
    let done = recorded.resymbolize();
    assert_eq!((done.modules_without_code, done.frames_named), (1, 0), "{done:?}");
    assert_eq!(recorded.names(), ["", "", ""]);

    // Some tools leave the program headers as they were, and then it does.
    let mut bytes = fs::read(&names).unwrap();
    let headers = 0x40..0x40 + 56 * usize::from(bytes[0x38]);
    assert_eq!((bytes[0x20], bytes[0x38]), (0x40, program[0x38]), "the usual place");
    bytes[headers.clone()].copy_from_slice(&program[headers]);
    fs::write(&names, bytes).unwrap();
    let done = recorded.resymbolize();
    assert_eq!((done.modules_found, done.frames_named), (1, 3), "{done:?}");
    assert_eq!(recorded.names()[1..], NAMES);
}

#[test]
fn offsets_become_the_addresses_that_readelf_shows() {
    let recorded = Stripped::record();
    let layout =
        CodeLayout::from_file(fs::read(&recorded.program).unwrap().as_slice()).expect("a layout");
    let module = recorded.table.modules.values().next().unwrap();
    let output = Command::new("readelf").args(["-lW"]).arg(&recorded.program).output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let line = output.lines().find(|line| line.contains("LOAD") && line.contains("R E"));
    let hex = |text: &str| u64::from_str_radix(text.strip_prefix("0x").unwrap(), 16).unwrap();
    let fields: Vec<_> = line.expect("code").split_whitespace().collect();
    let (offset, address, size) = (hex(fields[1]), hex(fields[2]), hex(fields[4]));
    assert_ne!(offset, address);
    assert_eq!(module.segments, [Segment { offset, address, size }]);
    assert_eq!(layout.address(offset), Some(address));
    assert_eq!(layout.address(offset + size - 1), Some(address + size - 1));
    assert_eq!(layout.address(offset + size), None);
    assert_eq!(layout.address(u64::MAX), None);
}

#[test]
fn another_build_at_the_same_path_is_refused() {
    let mut recorded = Stripped::record();
    let other = "int outer(int i) { return i; } int last(int i) { return i; } int main() {}";
    compile(recorded.directory.path(), "program", other, &["-Wl,--build-id=0xabcdef0124"]);
    recorded.place_by_build_id(&recorded.program, ".debug");
    let done = recorded.resymbolize();
    assert_eq!((done.modules_of_another_build, done.frames_named), (1, 0), "{done:?}");
    assert_eq!(recorded.names(), ["", "", ""]);
}

#[test]
fn without_a_build_id_the_path_is_not_believed() {
    let mut recorded = Stripped::record();
    recorded.place_by_build_id(&recorded.names, ".debug");
    for module in recorded.table.modules.values_mut() {
        module.build_id = None;
    }
    let done = recorded.resymbolize();
    assert_eq!((done.modules_without_build_id, done.frames_named), (1, 0), "{done:?}");
}

#[test]
fn what_is_not_found_keeps_its_names() {
    let mut recorded = Stripped::record().without_segments();
    fs::remove_file(&recorded.program).unwrap();
    for frame in recorded.table.frames.values_mut() {
        frame.functions = vec![Function::named("kept")];
    }
    let done = recorded.resymbolize();
    assert_eq!((done.modules_without_file, done.frames_named), (1, 0), "{done:?}");
    assert_eq!(recorded.names(), ["kept"; 3]);
    recorded.place_by_build_id(&recorded.names, ".debug");
    let done = recorded.resymbolize();
    assert_eq!((done.modules_without_code, done.frames_named), (1, 0), "{done:?}");
    assert_eq!(recorded.names(), ["kept"; 3]);
}

#[test]
fn a_strangers_file_is_read_too() {
    if !is_root() {
        eprintln!("NOT RUN, only root can give a file away: a_strangers_file_is_read_too");
        return;
    }
    let mut recorded = Stripped::record();
    let names = recorded.place_by_build_id(&recorded.names, ".debug");
    chown(&names, Some(12_345), None).unwrap();
    chown(&recorded.program, Some(12_345), None).unwrap();
    let done = recorded.resymbolize();
    assert_eq!(recorded.names()[1..], NAMES, "{done:?}");
}

#[test]
fn paths_that_lead_to_anything_do_no_harm() {
    let mut recorded = Stripped::record();
    let place = recorded.place();
    fs::create_dir_all(place.join(".build-id/ab/cdef0123.debug")).unwrap();
    let fifo = recorded.directory.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let fifo = fifo.display().to_string();
    let long = format!("/{}", "x/".repeat(100_000));
    let hostile = [
        "",
        "/",
        "..",
        "/..",
        "/dev/zero",
        "/dev/stdin",
        "/proc/self/mem",
        "/proc/kmsg",
        "/sys/kernel/notes",
        "/proc/kcore",
        "[kernel]",
        "[vdso]",
        "\0",
        "/\0",
        "relative",
        "//",
        &fifo,
        &long,
    ];
    let module = *recorded.table.modules.keys().next().unwrap();
    for path in hostile {
        let build_id = BuildId::new(b"\xab\xcd\xef\x01\x23");
        recorded
            .table
            .modules
            .insert(module, Module { path: path.to_owned(), build_id, segments: Vec::new() });
        let done = recorded.resymbolize();
        assert_eq!(done.frames_named, 0, "{path:?} {done:?}");
    }
    // Build ids of any length.
    for length in 1..=BuildId::MAX {
        let build_id = BuildId::new(&vec![0xab; length]);
        let path = recorded.program.display().to_string();
        recorded.table.modules.insert(module, Module { path, build_id, segments: Vec::new() });
        assert_eq!(recorded.resymbolize().frames_named, 0);
    }
}

#[test]
fn a_damaged_table_does_no_harm() {
    let frame = |module, module_offset| Frame {
        address: u64::MAX,
        kind: AddressKind::Return,
        module,
        module_offset,
        functions: Vec::new(),
    };
    let mut recorded = Stripped::record();
    let module = recorded.table.modules.keys().next().copied();
    let frames = [
        frame(None, Some(1)),
        frame(Some(ModuleId(u32::MAX)), Some(1)),
        frame(module, None),
        frame(module, Some(0)),
        frame(module, Some(u64::MAX)),
    ];
    recorded.table.frames.extend((0..5).map(|id| FrameId(u32::MAX - id)).zip(frames));
    recorded.place_by_build_id(&recorded.names, ".debug");
    assert_eq!(recorded.resymbolize().frames_named, 3);
}

#[test]
fn garbled_files_of_names_do_no_harm() {
    let mut recorded = Stripped::record();
    let names = recorded.place_by_build_id(&recorded.names, ".debug");
    let whole = fs::read(&names).unwrap();
    let program = fs::read(&recorded.program).unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    let mut garble = |whole: &[u8]| {
        let mut bytes = whole.to_vec();
        let length = bytes.len();
        for _ in 0..1 + random(8) {
            let at = match random(3) {
                0 => random(0x40 + 13 * 56),
                1 => length - 1 - random(40 * 64),
                _ => random(length),
            };
            bytes[at] = u8::try_from(random(256)).unwrap();
        }
        bytes
    };
    let mut diagnostics = Vec::new();
    for _ in 0..200 {
        fs::write(&names, garble(&whole)).unwrap();
        fs::write(&recorded.program, garble(&program)).unwrap();
        diagnostics.push(recorded.resymbolize().diagnostics);
    }
    let panicked = |all: &&Diagnostics| all.contains_key("symbols_symbolizer_panics");
    assert_eq!(diagnostics.iter().find(panicked), None);
}

#[test]
fn the_kernel_is_named_only_if_it_is_the_same_and_was_not_booted_since() {
    let Some(schedule) = schedule() else {
        eprintln!("NOT RUN, kallsyms has no addresses without root: the_kernel_is_named_…");
        return;
    };
    let mut stacks = processor();
    // The last one is behind all that is in the kernel for good.
    let addresses = [schedule, 1, naming::kernel::built_in_range().expect("its text").end + 1];
    stacks.add_walked_stack(StackId(1), AddressSpace::Kernel, monotonic_now(), &addresses);
    let mut table = StackTable::default();
    table.add(stacks.drain_new());
    let nowhere = Path::new("/nonexistent");
    let done = resymbolize_in(&mut table, nowhere, RecordedIn::AnotherBoot);
    assert!(done.kernel_was_booted_since && done.frames_named == 0, "{done:?}");

    let mut other = table.clone();
    for module in other.modules.values_mut() {
        module.build_id = BuildId::new(b"another kernel");
    }
    let done = resymbolize_in(&mut other, nowhere, RecordedIn::ThisBoot);
    assert_eq!((done.modules_of_another_build, done.frames_named), (1, 0), "{done:?}");

    let done = resymbolize_in(&mut table, nowhere, RecordedIn::ThisBoot);
    assert_eq!((done.modules_found, done.frames_named), (1, 1), "{done:?}");
    let named: Vec<_> = table.frames.values().filter(|frame| !frame.functions.is_empty()).collect();
    assert_eq!(named.len(), 1);
    assert_eq!((named[0].address, joined(named[0])), (schedule, "schedule".to_owned()));
}

#[test]
fn our_own_vdso_has_names() {
    let (lines, _) = proc_maps::read(own()).unwrap();
    let line = lines.iter().find(|line| line.name == "[vdso]").expect("a vDSO");
    let image = proc_maps::read_own_vdso().unwrap();
    let build_id = build_id::from_file(image.as_slice());
    let module = Module { path: "[vdso]".to_owned(), build_id, segments: Vec::new() };
    let frame = |offset| Frame {
        address: line.start + offset,
        kind: AddressKind::Instruction,
        module: Some(ModuleId(7)),
        module_offset: Some(offset),
        functions: Vec::new(),
    };
    let mut table = StackTable::default();
    table.modules.insert(ModuleId(7), module);
    let frames = (0..line.end - line.start).step_by(16).map(frame);
    table.frames.extend((0..).map(FrameId).zip(frames));
    resymbolize_in(&mut table, Path::new("/nonexistent"), RecordedIn::AnotherBoot);
    let is_clock = |name: &str| name.ends_with("clock_gettime");
    assert!(table.frames.values().any(|frame| frame.names().any(is_clock)), "{table:?}");
}
