//! What is handed on while recording.

use std::{process::Command, time::Instant};

use object::{Object, ObjectSection};
use offwake_recording::{
    AddressKind, AddressSpace, BuildId, NewStacks, StackTable,
    units::{StackId, Tgid},
};
use offwake_unwind::elf::build_id;

use super::{PROGRAM, Running, a_function_of_this_test, compile, own, parser, processor};
use crate::{
    stacks::StackProcessor,
    symbols::{
        address_spaces::{AddressOwner, ResolvedAddress, kernel, proc_maps},
        clock::monotonic_now,
        frame_table::FrameTable,
    },
};

/// Takes what is new until no module is missing.
fn drain_all(stacks: &mut StackProcessor) -> NewStacks {
    let began = Instant::now();
    let mut all = stacks.drain_new();
    while all.frames.iter().any(|(_, frame)| {
        frame.module.is_some_and(|wanted| all.modules.iter().all(|(id, _)| *id != wanted))
    }) {
        assert!(began.elapsed().as_secs() < 10, "{all:?}");
        all.modules.append(&mut stacks.drain_new().modules);
    }
    all
}

fn observe(stacks: &mut StackProcessor, id: u64, tgid: Tgid, addresses: &[u64]) {
    stacks.add_walked_stack(StackId(id), AddressSpace::Process(tgid), monotonic_now(), addresses);
}

#[test]
fn everything_is_handed_on_once_and_stacks_as_often_as_they_come() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "program", PROGRAM, &["-Wl,--build-id=0xabcd0123"]);
    let mut running = Running::start(&program);
    let address = running.address();
    let tgid = running.tgid();

    let mut stacks = processor();
    observe(&mut stacks, 1, tgid, &[address, address]);
    let first = drain_all(&mut stacks);
    assert_eq!(first.modules.len(), 1);
    let (module, build_id) = (&first.modules[0].1, BuildId::new(b"\xab\xcd\x01\x23"));
    assert_eq!(module.path, program.display().to_string());
    assert_eq!(module.build_id, build_id);
    let kinds: Vec<_> = first.frames.iter().map(|(_, frame)| frame.kind).collect();
    assert_eq!(kinds, [AddressKind::Instruction, AddressKind::Return]);
    for (_, frame) in &first.frames {
        assert!(frame.functions.is_empty() && frame.module_offset.is_some(), "{frame:?}");
        assert_eq!((frame.address, frame.module), (address, Some(first.modules[0].0)));
    }
    let ids: Vec<_> = first.frames.iter().map(|(id, _)| *id).collect();
    assert_eq!(first.stacks.len(), 1);
    assert_eq!(first.stacks[0].1.frames, ids);
    assert_eq!(stacks.drain_new(), NewStacks::default());

    // The same stack again, and another one with one frame that is new.
    observe(&mut stacks, 1, tgid, &[address, address]);
    observe(&mut stacks, 2, tgid, &[address, address, address + 1]);
    let second = stacks.drain_new();
    assert_eq!(second.modules, []);
    assert_eq!(second.frames.len(), 1);
    let ids: Vec<_> = second.stacks.iter().map(|(id, _)| id.0).collect();
    assert_eq!(ids, [1, 2]);

    // The rest comes at the end, and the names of all.
    observe(&mut stacks, 3, tgid, &[address - 1]);
    let (rest, names, diagnostics) = stacks.finish().resolve(&mut parser(), &mut |_, _| {});
    assert_eq!((rest.modules.len(), rest.frames.len(), rest.stacks.len()), (0, 1, 1));
    assert_eq!(names.len(), 4, "{diagnostics:?}");
    let mut table = StackTable::default();
    for new in [first, second, rest] {
        table.add(new);
    }
    table.name(names);
    for frame in table.frames_of(StackId(2)) {
        assert_eq!(frame.names().next_back(), Some("outer"), "{frame:?}");
    }
}

#[test]
fn modules_without_a_frame_are_not_handed_on() {
    let mut stacks = processor();
    stacks.observe_process(own());
    assert_eq!(stacks.drain_new(), NewStacks::default());
    observe(&mut stacks, 1, own(), &[a_function_of_this_test()]);
    assert_eq!(drain_all(&mut stacks).modules.len(), 1);
}

#[test]
fn the_kernel_is_a_module_with_the_build_id_that_it_shows() {
    let mut stacks = processor();
    let addresses = [0xffff_ffff_ffff_0000, 0xffff_ffff_ffff_0004, 1];
    stacks.add_walked_stack(StackId(1), AddressSpace::Kernel, monotonic_now(), &addresses);
    let new = stacks.drain_new();
    assert_eq!(new.modules.len(), 1);
    assert_eq!(new.modules[0].1.path, "[kernel]");
    assert_eq!(new.modules[0].1.build_id, kernel::build_id());
    assert_eq!(new.modules[0].1.segments, []);
    let modules: Vec<_> = new.frames.iter().map(|(_, frame)| frame.module).collect();
    let kernel = Some(new.modules[0].0);
    assert_eq!(modules, [kernel, kernel, None]);
}

#[test]
fn the_vdso_has_its_build_id() {
    let (lines, _) = proc_maps::read(own()).unwrap();
    let line = lines.iter().find(|line| line.name == "[vdso]").expect("a vDSO");
    let mut stacks = processor();
    observe(&mut stacks, 1, own(), &[line.start + 1]);
    let new = stacks.drain_new();
    assert_eq!(new.modules[0].1.path, "[vdso]");
    assert!(new.modules[0].1.build_id.is_some());
    assert_eq!(new.modules[0].1.segments.len(), 1);
}

#[test]
fn the_build_id_is_the_one_that_the_linker_wrote() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "program", PROGRAM, &["-Wl,--build-id=sha1"]);
    let copy = |option: &str| {
        let output = directory.path().join("copy");
        let mut objcopy = Command::new("objcopy");
        assert!(objcopy.arg(option).arg(&program).arg(&output).status().unwrap().success());
        std::fs::read(output).unwrap()
    };
    let whole = std::fs::read(&program).unwrap();
    let elf = object::File::parse(whole.as_slice()).unwrap();
    let note = elf.section_by_name(".note.gnu.build-id").unwrap().data().unwrap();
    let expected = BuildId::new(&note[16..]);
    assert_eq!(expected.as_ref().map(|id| id.bytes().len()), Some(20));
    assert_eq!(build_id::from_file(whole.as_slice()), expected);
    for option in ["--strip-all", "--only-keep-debug"] {
        assert_eq!(build_id::from_file(copy(option).as_slice()), expected, "{option}");
    }
    // No section headers: only the segments say where the notes are.
    let mut bytes = whole.clone();
    bytes[0x28..0x30].fill(0);
    assert_eq!(build_id::from_file(bytes.as_slice()), expected);
    let without = compile(directory.path(), "without", PROGRAM, &["-Wl,--build-id=none"]);
    assert_eq!(build_id::from_file(std::fs::read(without).unwrap().as_slice()), None);
}

#[test]
fn frames_over_the_limit_are_refused_and_known_ones_are_not() {
    let mut frames = FrameTable::new(2);
    let unmapped = ResolvedAddress::without_offset(AddressOwner::Nothing);
    let mut intern = |address| frames.intern(address, AddressKind::Instruction, &unmapped);
    let (one, two) = (intern(1), intern(2));
    assert!(one.is_some() && two.is_some() && one != two);
    assert_eq!(intern(3), None);
    assert_eq!((intern(1), intern(2)), (one, two));
    assert_eq!(frames.drain_new().len(), 2);
}
