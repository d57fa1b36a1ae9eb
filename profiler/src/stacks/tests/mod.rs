mod detail;
mod files;
mod go;
mod parser_process;
mod perf_maps;
mod resymbolize;
mod sleepers;
mod streaming;

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use offwake_recording::{
    AddressKind, AddressSpace, Frame, StackTable,
    loss::Diagnostics,
    units::{StackId, Tgid, Timestamp},
};
use offwake_unwind::Method;

use super::StackProcessor;
use crate::{
    parser::{Parser, ParserRole},
    symbols::{
        address_spaces::proc_maps,
        clock::monotonic_now,
        name_limit::{MAX_NAME, cut_name},
        serve,
    },
    unwinder_process::UnwinderClient,
};

/// Prints, one a line: a return address in `outer` (where `inner` is inlined), and the return
/// address of a call that is the last instruction of `last`. Then it waits for its input to close.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) void *leaf(void) { return __builtin_return_address(0); }
static inline __attribute__((always_inline)) void *inner(void) {
    void *p = leaf(); __asm__ volatile("" ::: "memory"); return p;
}
__attribute__((noinline)) void *outer(void) {
    void *p = inner(); __asm__ volatile("" ::: "memory"); return p;
}
__attribute__((noinline, noreturn)) void die(void) {
    printf("%p\n", __builtin_return_address(0)); fflush(stdout);
    while (getchar() != EOF) {}
    _Exit(0);
}
__attribute__((noinline)) void last(void) { die(); }
int main(void) { printf("%p\n", outer()); last(); }
"#;

/// Waits for a line, loads the library that it names and prints the address of its `loaded`.
const LOADER: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
int main(void) {
    char path[4096];
    puts("ready"); fflush(stdout);
    if (!fgets(path, sizeof path, stdin)) return 1;
    path[strcspn(path, "\n")] = 0;
    void *library = dlopen(path, RTLD_NOW);
    printf("%p\n", library ? dlsym(library, "loaded") : 0); fflush(stdout);
    while (getchar() != EOF) {}
}
"#;

pub(crate) fn compile(directory: &Path, name: &str, source: &str, options: &[&str]) -> PathBuf {
    let output = directory.join(name);
    let input = directory.join(format!("{name}.c"));
    fs::write(&input, source).unwrap();
    let status = Command::new("cc")
        .args(["-g", "-O2", "-o"])
        .arg(&output)
        .arg(&input)
        .args(options)
        .status();
    assert!(status.unwrap().success(), "cc could not compile {name}");
    output
}

/// A child that ends when its input closes; killed and reaped when it is dropped.
struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(program: &Path) -> Self {
        Self::spawn(&mut Command::new(program)).unwrap()
    }

    /// None if there is no such program.
    fn spawn(command: &mut Command) -> Option<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let output = BufReader::new(child.stdout.take()?);
        Some(Self { child, output })
    }

    fn tgid(&self) -> Tgid {
        Tgid(self.child.id())
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn address(&mut self) -> u64 {
        let line = self.line();
        let address = u64::from_str_radix(line.strip_prefix("0x").unwrap_or(&line), 16);
        address.unwrap_or_else(|_| panic!("no address: {line:?}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What parses, in a thread: a test has no program that could be started.
fn parser() -> Parser {
    Parser::in_thread(serve)
}

/// A processor that unwinds nothing: the process for that is never started.
fn processor() -> StackProcessor {
    StackProcessor::new(UnwinderClient::new(Method::default(), Parser::new(ParserRole::Stacks)), 16)
}

fn own() -> Tgid {
    Tgid(std::process::id())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A frame, and the path of its module.
#[derive(Debug)]
struct Seen {
    frame: Frame,
    path: Option<String>,
}

impl std::ops::Deref for Seen {
    type Target = Frame;

    fn deref(&self) -> &Frame {
        &self.frame
    }
}

/// The names of a frame's functions, innermost first.
fn joined(frame: &Frame) -> String {
    frame.names().collect::<Vec<_>>().join(" ")
}

/// The frames of one stack of `tgid`, leaf first.
fn frames(tgid: Tgid, addresses: &[u64]) -> (Vec<Seen>, Diagnostics) {
    let mut stacks = processor();
    stacks.observe_process(tgid);
    stacks.add_walked_stack(StackId(1), AddressSpace::Process(tgid), monotonic_now(), addresses);
    frames_of(stacks)
}

fn frames_of(stacks: StackProcessor) -> (Vec<Seen>, Diagnostics) {
    let (table, diagnostics) = finish(stacks, &mut |_, _| {});
    (seen(&table), diagnostics)
}

fn finish(
    stacks: StackProcessor,
    progress: &mut dyn FnMut(usize, usize),
) -> (StackTable, Diagnostics) {
    let (new, names, diagnostics) = stacks.finish().resolve(&mut parser(), progress);
    let mut table = StackTable::default();
    table.add(new);
    table.name(names);
    (table, diagnostics)
}

fn seen(table: &StackTable) -> Vec<Seen> {
    let path = |frame| table.module_of(frame).map(|module| module.path.clone());
    let frames = table.frames_of(StackId(1));
    frames.map(|frame| Seen { frame: frame.clone(), path: path(frame) }).collect()
}

#[inline(never)]
fn a_function_of_this_test() -> u64 {
    std::hint::black_box(a_function_of_this_test as fn() -> u64 as usize as u64)
}

#[test]
fn own_functions_are_named_and_demangled() {
    let address = a_function_of_this_test();
    let (frames, diagnostics) = frames(own(), &[address, address + 1]);
    for frame in &frames {
        let name = frame.names().next_back().expect("a name");
        assert!(name.ends_with("::a_function_of_this_test"), "{frame:?} {diagnostics:?}");
        let executable = std::env::current_exe().unwrap();
        assert_eq!(frame.path.as_deref(), executable.to_str());
    }
    assert_eq!(frames[0].address, address);
    assert_eq!(frames[1].address, address + 1);
}

#[test]
fn a_deleted_binary_is_named_after_its_process_ended() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "program", PROGRAM, &[]);
    let mut running = Running::start(&program);
    let (inlined, last) = (running.address(), running.address());
    let tgid = running.tgid();
    fs::remove_file(&program).unwrap();

    let mut stacks = processor();
    stacks.observe_process(tgid);
    drop(running);
    assert!(!Path::new(&format!("/proc/{tgid}")).exists());
    let mut steps = Vec::new();
    stacks.add_walked_stack(
        StackId(1),
        AddressSpace::Process(tgid),
        monotonic_now(),
        &[inlined, inlined, last],
    );
    let (table, diagnostics) = finish(stacks, &mut |done, total| steps.push((done, total)));
    let frames = seen(&table);
    assert_eq!(joined(&frames[1]), "inner outer", "{diagnostics:?}");
    // The call is the last instruction of `last`; what it returns to is another function.
    assert_eq!(joined(&frames[2]), "last", "{diagnostics:?}");
    let name = format!("{} (deleted)", program.display());
    assert_eq!(frames[2].path.as_deref(), Some(name.as_str()));
    assert!(frames[2].module_offset.is_some_and(|offset| offset > 0 && offset < last));
    assert_eq!(steps.last(), Some(&(3, 3)));
}

#[test]
fn a_library_that_was_loaded_after_first_sight_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "loader", LOADER, &["-ldl"]);
    let options = ["-shared", "-fPIC"];
    let library =
        compile(directory.path(), "library.so", "int loaded(int i) { return i + 1; }", &options);
    let mut running = Running::start(&program);
    assert_eq!(running.line(), "ready");

    let mut stacks = processor();
    stacks.observe_process(running.tgid());
    writeln!(running.child.stdin.as_ref().unwrap(), "{}", library.display()).unwrap();
    let address = running.address();
    let space = AddressSpace::Process(running.tgid());
    stacks.add_walked_stack(
        StackId(1),
        space,
        Timestamp(monotonic_now().0 + 1_000_000_000),
        &[address],
    );
    let (frames, diagnostics) = frames_of(stacks);
    assert_eq!(joined(&frames[0]), "loaded", "{diagnostics:?}");
    assert_eq!(frames[0].path.as_deref(), library.to_str());
}

#[test]
fn the_vdso_is_named() {
    use object::{Object, ObjectSymbol};
    let (lines, _) = proc_maps::read(own()).unwrap();
    let line = lines.iter().find(|line| line.name == "[vdso]").expect("a vDSO");
    let mut image = vec![0; usize::try_from(line.end - line.start).unwrap()];
    fs::File::open("/proc/self/mem").unwrap().read_exact_at(&mut image, line.start).unwrap();
    let elf = object::File::parse(image.as_slice()).unwrap();
    let symbol = elf.dynamic_symbols().find(|symbol| symbol.name() == Ok("__vdso_clock_gettime"));
    let offset = symbol.expect("a clock in the vDSO").address();

    let (frames, diagnostics) = frames(own(), &[line.start + offset]);
    assert_eq!(frames[0].path.as_deref(), Some("[vdso]"));
    assert_eq!(frames[0].module_offset, Some(offset));
    let name = frames[0].names().next_back().expect("a name");
    assert!(name.ends_with("clock_gettime"), "{name} {diagnostics:?}");
}

/// The address of a function that every kernel has; none if kallsyms keeps it from us.
fn schedule() -> Option<u64> {
    let kallsyms = fs::read_to_string("/proc/kallsyms").unwrap();
    let address = kallsyms.lines().find_map(|line| {
        let (address, name) = line.split_once(' ')?;
        (name == "T schedule").then(|| u64::from_str_radix(address, 16).ok())?
    });
    let address = address.expect("schedule() in kallsyms");
    assert!(address != 0 || !is_root());
    (address != 0).then_some(address)
}

#[test]
fn kernel_addresses_have_the_names_of_kallsyms() {
    let Some(address) = schedule() else {
        eprintln!("NOT RUN, kallsyms has no addresses without root: kernel_addresses_have_…");
        return;
    };
    let mut stacks = processor();
    let addresses = [address, address + 4, 1, 0xffff_ffff_ffff_f000];
    stacks.add_walked_stack(StackId(1), AddressSpace::Kernel, monotonic_now(), &addresses);
    let (frames, diagnostics) = frames_of(stacks);
    assert_eq!(joined(&frames[0]), "schedule", "{diagnostics:?}");
    assert_eq!(joined(&frames[1]), "schedule");
    assert_eq!(frames[0].path.as_deref(), Some("[kernel]"));
    assert_eq!(frames[0].kind, AddressKind::Instruction);
    assert_eq!(frames[1].kind, AddressKind::Return);
    for garbage in &frames[2..] {
        assert!(garbage.functions.is_empty(), "{garbage:?}");
    }
    // The one is no address of the kernel, the other is, and there is nothing.
    assert_eq!(frames[2].path, None);
    assert_eq!(frames[3].path.as_deref(), Some("[kernel]"));
}

#[test]
fn garbage_addresses_stay_without_a_module() {
    let addresses = [0, 1, 0x1000, 0x8000_0000_0000_0000, u64::MAX];
    let (frames, _) = frames(own(), &addresses);
    assert_eq!(frames.len(), addresses.len());
    for (frame, address) in frames.iter().zip(addresses) {
        assert_eq!(frame.address, address);
        assert!(frame.module.is_none() && frame.module_offset.is_none(), "{frame:?}");
        assert!(frame.functions.is_empty(), "{frame:?}");
    }
}

#[test]
fn a_child_that_was_gone_before_it_was_looked_at_has_its_parents_mappings() {
    let mut stacks = processor();
    stacks.observe_process(own());
    // No process has this number: it is above the highest possible `pid_max`.
    let child = Tgid(4_194_305);
    let at = monotonic_now();
    stacks.observe_fork(own(), child, at);
    stacks.observe_exit(child, Timestamp(at.0 + 10));
    let stack = [a_function_of_this_test()];
    let space = AddressSpace::Process(child);
    stacks.add_walked_stack(StackId(1), space, Timestamp(at.0 + 5), &stack);
    let (frames, _) = frames_of(stacks);
    let name = frames[0].names().next_back().expect("a name");
    assert!(name.ends_with("::a_function_of_this_test"));
}

#[test]
fn long_names_are_cut_between_characters() {
    let name = "é".repeat(MAX_NAME);
    let short = cut_name(&name);
    assert!(short.ends_with("é…") && short.len() <= MAX_NAME + "…".len());
    assert_eq!(cut_name("short"), "short");
}

#[test]
fn a_kernel_thread_is_not_a_process_that_was_missed() {
    // kthreadd has this number, in the host's PID namespace alone.
    if fs::read_to_string("/proc/2/comm").is_ok_and(|comm| comm.trim_end() == "kthreadd") {
        let (_, diagnostics) = frames(Tgid(2), &[]);
        assert_eq!(diagnostics, Diagnostics::new());
    } else {
        eprintln!("NOT RUN, no kernel threads are seen from here: a_kernel_thread_is_not_…");
    }
}

#[test]
fn a_late_stack_of_an_ended_process_begins_no_new_one() {
    let mut stacks = processor();
    stacks.observe_process(own());
    let child = Tgid(4_194_305);
    stacks.observe_fork(own(), child, Timestamp(10));
    stacks.observe_exit(child, Timestamp(20));
    stacks.add_walked_stack(StackId(1), AddressSpace::Process(child), Timestamp(15), &[1]);
    let (_, diagnostics) = frames_of(stacks);
    // Other tests map and unmap files of this process meanwhile, which may count as something else.
    assert_eq!(diagnostics.get("symbols_processes_gone"), None, "{diagnostics:?}");
}
