//! How much is looked up of a frame, and where.

use std::{fs, path::Path};

use offwake_recording::{AddressSpace, Function, units::StackId};

use super::{PROGRAM, Running, compile, finish, processor, resymbolize::objcopy, seen};
use crate::symbols::{DebugDirectories, Detail, NameSources, clock::monotonic_now};

/// The functions of the return address in `outer`.
fn outer(program: &Path, sources: NameSources) -> Vec<Function> {
    let mut running = Running::start(program);
    let address = running.address();
    let mut stacks = processor().with_name_sources(sources);
    let space = AddressSpace::Process(running.tgid());
    // The first address of a stack is not returned to.
    stacks.add_walked_stack(StackId(1), space, monotonic_now(), &[address, address]);
    let (table, _) = finish(stacks, &mut |_, _| {});
    seen(&table)[1].functions.clone()
}

fn detail(detail: Detail) -> NameSources {
    NameSources { detail, ..NameSources::default() }
}

/// The lines of [`PROGRAM`] that have these words, as file and line.
fn places(program: &Path, words: [&str; 2]) -> [(String, u32); 2] {
    let source = program.with_extension("c").display().to_string();
    let line = |words: &str| PROGRAM.lines().zip(1..).find(|(line, _)| line.contains(words));
    words.map(|words| (source.clone(), line(words).unwrap().1))
}

fn places_of(functions: &[Function]) -> Vec<Option<(String, u32)>> {
    let place = |function: &Function| Some((function.file.as_deref()?.to_owned(), function.line?));
    functions.iter().map(place).collect()
}

#[test]
fn each_function_has_the_line_that_was_at_hand_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "program", PROGRAM, &[]);
    let functions = outer(&program, detail(Detail::Lines));
    let expected = places(&program, ["void *p = leaf();", "void *p = inner();"]);
    assert_eq!(places_of(&functions), expected.map(Some));
    // Both are in one file, of which there is one name.
    let [Some(inner), Some(outer)] = [0, 1].map(|n| functions[n].file.as_ref()) else { panic!() };
    assert!(std::sync::Arc::ptr_eq(inner, outer));
}

#[test]
fn what_is_not_asked_for_is_not_there() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "program", PROGRAM, &[]);
    let inlined = outer(&program, detail(Detail::Inlined));
    assert_eq!(inlined, ["inner", "outer"].map(Function::named));
    let of_table = outer(&program, detail(Detail::SymbolTable));
    assert_eq!(of_table, [Function::named("outer")]);
}

/// A stripped program that nobody linked to its debug information, which lies in `place`.
fn stripped(directory: &Path, place: &Path) -> std::path::PathBuf {
    let options = ["-Wl,--build-id=0xabcdef0123", "-pie", "-fPIE", "-Wl,-Ttext-segment=0x30000"];
    let program = compile(directory, "program", PROGRAM, &options);
    let folder = place.join(".build-id/ab");
    fs::create_dir_all(&folder).unwrap();
    objcopy(&["--only-keep-debug"], &program, &folder.join("cdef0123.debug"));
    objcopy(&["--strip-all"], &program, &program);
    program
}

#[test]
fn debug_information_that_is_kept_apart_names_what_is_being_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("debug");
    let program = stripped(directory.path(), &place);
    let sources = |detail| NameSources {
        detail,
        debug_directories: DebugDirectories::new([place.clone()]),
        ..NameSources::default()
    };
    let functions = outer(&program, sources(Detail::Lines));
    let expected = places(&program, ["void *p = leaf();", "void *p = inner();"]);
    assert_eq!(places_of(&functions), expected.map(Some));
    assert_eq!(outer(&program, sources(Detail::SymbolTable)), [Function::named("outer")]);
    assert_eq!(outer(&program, NameSources::default()), []);
}

#[test]
fn debug_information_of_another_build_names_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("debug");
    let program = stripped(directory.path(), &place);
    let options = ["-Wl,--build-id=0xabcdef0124"];
    let other = compile(directory.path(), "other", PROGRAM, &options);
    fs::copy(other, place.join(".build-id/ab/cdef0123.debug")).unwrap();
    let debug_directories = DebugDirectories::new([place]);
    let functions = outer(&program, NameSources { debug_directories, ..NameSources::default() });
    assert_eq!(functions, []);
}
