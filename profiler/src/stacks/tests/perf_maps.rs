//! Code in memory, named by `/tmp/perf-PID.map`.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown, symlink},
    path::PathBuf,
    process::Command,
};

use offwake_recording::{
    AddressSpace, Function,
    units::{StackId, Tgid},
};

use super::{Running, compile, frames, frames_of, is_root, joined, processor};
use crate::symbols::clock::monotonic_now;

/// Prints the address of an executable page without a file.
const JIT: &str = r#"
#include <stdio.h>
#include <sys/mman.h>
int main(void) {
    printf("%p\n", mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    fflush(stdout);
    while (getchar() != EOF) {}
}
"#;

/// Removes the file when it is dropped.
struct PerfMapFile(PathBuf);

impl PerfMapFile {
    fn write(tgid: Tgid, text: &str) -> Self {
        let path = PathBuf::from(format!("/tmp/perf-{tgid}.map"));
        fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for PerfMapFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_perf_map_names_code_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "jit", JIT, &[]);
    let mut running = Running::start(&program);
    let page = running.address();
    let text = format!(
        "{page:x} 10 first\nnot a line\n{:x} 10 old name\n{:x} 10 new name\n{:x} 1",
        page + 0x10,
        page + 0x10,
        page + 0x20
    );
    let _file = PerfMapFile::write(running.tgid(), &text);

    let mut stacks = processor();
    let space = AddressSpace::Process(running.tgid());
    let addresses = [page, page + 0x10, page + 0x18, page + 0x20, page + 0x800];
    stacks.add_walked_stack(StackId(1), space, monotonic_now(), &addresses);
    drop(running);
    let (frames, diagnostics) = frames_of(stacks);
    let names: Vec<_> = frames.iter().map(|frame| joined(frame)).collect();
    // A return address right behind a function belongs to that function.
    assert_eq!(names, ["first", "first", "new name", "new name", ""], "{diagnostics:?}");
    assert_eq!(frames[4].path.as_deref(), Some("[anon]"));
    assert_eq!(frames[4].module_offset, Some(0x800));
}

#[test]
fn processes_that_ended_without_a_perf_map_leave_room_for_others() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "jit", JIT, &[]);
    let mut running = Running::start(&program);
    let page = running.address();
    let _file = PerfMapFile::write(running.tgid(), &format!("{page:x} 10 function\n"));
    let mut stacks = processor();
    stacks.observe_process(running.tgid());
    // One more than there is room for. No process has such a number.
    let children = 4_194_305..4_194_305 + 65_537;
    for tgid in children.map(Tgid) {
        let began = monotonic_now();
        stacks.observe_fork(running.tgid(), tgid, began);
        stacks.add_walked_stack(StackId(2), AddressSpace::Process(tgid), began, &[page]);
        stacks.observe_exit(tgid, monotonic_now());
        // A late one.
        stacks.add_walked_stack(StackId(2), AddressSpace::Process(tgid), began, &[page]);
    }
    let space = AddressSpace::Process(running.tgid());
    stacks.add_walked_stack(StackId(1), space, monotonic_now(), &[page]);
    let (frames, diagnostics) = frames_of(stacks);
    assert_eq!(diagnostics.get("symbols_perf_maps_over_limit"), None, "{diagnostics:?}");
    assert_eq!(joined(&frames[0]), "function", "{diagnostics:?}");
}

#[test]
fn a_strangers_perf_map_is_refused() {
    if !is_root() {
        eprintln!("NOT RUN, only root can give a file away: a_strangers_perf_map_is_refused");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "jit", JIT, &[]);
    let mut running = Running::start(&program);
    let page = running.address();
    let file = PerfMapFile::write(running.tgid(), &format!("{page:x} 1000 planted\n"));
    chown(&file.0, Some(12_345), None).unwrap();
    let (frames, diagnostics) = frames(running.tgid(), &[page]);
    assert!(frames[0].functions.is_empty(), "{frames:?}");
    assert_eq!(diagnostics.get("symbols_perf_maps_refused"), Some(&1));
}

#[test]
fn a_perf_map_that_others_can_write_to_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "jit", JIT, &[]);
    for (mode, is_read) in
        [(0o644, true), (0o600, true), (0o664, false), (0o646, false), (0o620, false)]
    {
        let mut running = Running::start(&program);
        let page = running.address();
        let file = PerfMapFile::write(running.tgid(), &format!("{page:x} 1000 function\n"));
        fs::set_permissions(&file.0, fs::Permissions::from_mode(mode)).unwrap();
        let (frames, diagnostics) = frames(running.tgid(), &[page]);
        assert_eq!(!frames[0].functions.is_empty(), is_read, "{mode:o}: {frames:?}");
        let refused = diagnostics.get("symbols_perf_maps_refused").copied().unwrap_or(0);
        assert_eq!(refused, u64::from(!is_read), "{mode:o}");
    }
}

#[test]
fn a_perf_map_that_is_a_link_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "jit", JIT, &[]);
    let mut running = Running::start(&program);
    let page = running.address();
    let other = directory.path().join("other.map");
    fs::write(&other, format!("{page:x} 1000 planted\n")).unwrap();
    let file = PerfMapFile(PathBuf::from(format!("/tmp/perf-{}.map", running.tgid())));
    symlink(&other, &file.0).unwrap();
    let (frames, diagnostics) = frames(running.tgid(), &[page]);
    assert!(frames[0].functions.is_empty(), "{frames:?}");
    assert_eq!(diagnostics.get("symbols_perf_maps_refused"), Some(&1));
}

/// Compiles a function by calling it, and waits for its input to close.
const SCRIPT: &str = "
function hot(n) { let s = 0; for (let i = 0; i < n; i++) s += i % 7; return s; }
for (let i = 0; i < 3000; i++) hot(1000);
console.log('ready');
process.stdin.resume();
";

#[test]
fn what_node_compiled_has_its_name_its_script_and_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("hot.js");
    fs::write(&script, SCRIPT).unwrap();
    let mut command = Command::new("node");
    // It leaves a log where it runs.
    command.current_dir(directory.path()).arg("--perf-basic-prof").arg(&script);
    let Some(mut running) = Running::spawn(&mut command) else {
        eprintln!("NOT RUN, there is no node here: what_node_compiled_has_…");
        return;
    };
    let file = PerfMapFile(PathBuf::from(format!("/tmp/perf-{}.map", running.tgid())));
    assert_eq!(running.line(), "ready");
    let map = fs::read_to_string(&file.0).unwrap();
    // Compiled, not bytecode.
    let line = map.lines().rfind(|line| line.contains(" JS:*hot ")).expect("hot is compiled");
    let start = line.split(' ').next().and_then(|hex| u64::from_str_radix(hex, 16).ok());
    let (frames, diagnostics) = frames(running.tgid(), &[start.unwrap() + 1]);
    let expected =
        Function { name: "hot".to_owned(), file: script.to_str().map(Into::into), line: Some(2) };
    assert_eq!(frames[0].functions, [expected], "{diagnostics:?}");
}

#[test]
fn a_perf_map_that_is_a_fifo_is_refused_and_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "jit", JIT, &[]);
    let mut running = Running::start(&program);
    let page = running.address();
    let file = PerfMapFile(PathBuf::from(format!("/tmp/perf-{}.map", running.tgid())));
    assert!(Command::new("mkfifo").arg(&file.0).status().unwrap().success());
    let (frames, diagnostics) = frames(running.tgid(), &[page]);
    assert!(frames[0].functions.is_empty(), "{frames:?}");
    assert_eq!(diagnostics.get("symbols_perf_maps_refused"), Some(&1));
}
