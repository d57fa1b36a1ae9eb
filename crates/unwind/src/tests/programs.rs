//! Programs of many builds. Each says where its functions were called from.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use super::live_process::{Process, hex};
use crate::{Method, Registers, UnwindEnd, UnwoundStack};

const SOURCE: &str = r#"
#include <stdio.h>
#include <unistd.h>

static void *called_from[64];
static int calls;
#define HERE called_from[calls++] = __builtin_return_address(0)
#define FUNCTION __attribute__((noinline)) int

FUNCTION leaf(int n) {
    HERE;
    void *ip, *sp, *fp;
    __asm__ volatile("lea (%%rip), %0\n mov %%rsp, %1\n mov %%rbp, %2" : "=r"(ip), "=r"(sp), "=r"(fp));
    printf("%p %p %p\n", ip, sp, fp);
    while (calls--) printf("%p\n", called_from[calls]);
    puts("end");
    fflush(stdout);
    char byte;
    return read(0, &byte, 1) + n;
}
/* Of a size that is known when it runs alone: a frame by rbp whatever the flags. */
FUNCTION of_any_size(int n) { HERE; volatile char room[n * 100]; room[0] = 1; return leaf(n) + room[0]; }
/* More than a page, aligned. */
FUNCTION large(int n) {
    HERE;
    volatile char room[9000] __attribute__((aligned(64)));
    room[n] = 1;
    return of_any_size(n + 1) + room[n];
}
FUNCTION recursive(int n) { HERE; return n ? recursive(n - 1) + 1 : large(n) + 1; }
int main(void) { HERE; return recursive(9) == 1000; }
"#;

/// A program that waits.
struct Waiting {
    child: Child,
    process: Process,
    registers: Registers,
    /// Where `leaf` and all above were called from.
    truth: Vec<u64>,
    _folder: TempDir,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Waiting {
    fn compiled(flags: &str) -> Self {
        Self::mended(flags, |_| {})
    }

    /// Compiled with `flags`, then changed.
    fn mended(flags: &str, mend: impl Fn(&PathBuf)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("program.c"), folder.path().join("program"));
        fs::write(&source, SOURCE).unwrap();
        let mut cc = Command::new("cc");
        cc.args(flags.split_whitespace())
            .args(["-w", "-fno-optimize-sibling-calls"])
            .arg("-o")
            .arg(&program)
            .arg(&source);
        assert!(cc.status().unwrap().success(), "{flags}");
        mend(&program);
        let mut command = Command::new(&program);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let registers = said.next().unwrap();
        let [ip, sp, fp] = registers.split(' ').map(hex).collect::<Vec<_>>()[..] else {
            panic!("{registers}")
        };
        let truth = said.take_while(|line| line != "end").map(|line| hex(&line)).collect();
        let process = Process::new(&child.id().to_string());
        let registers = Registers { ip, sp, fp };
        Self { child, process, registers, truth, _folder: folder }
    }

    fn unwind(&self, method: Method) -> UnwoundStack {
        let stack = self.process.stack(self.registers.sp);
        self.process.unwind(method, self.registers, &stack)
    }

    /// All of its frames are found.
    fn is_whole(&self, method: Method, what: &str) {
        let unwound = self.unwind(method);
        let callers: Vec<_> = unwound.frames.iter().skip(1).map(|frame| frame.address).collect();
        assert_eq!(unwound.end, UnwindEnd::EntryPoint, "{what}: {callers:x?}");
        assert_eq!(callers[..self.truth.len()], self.truth, "{what}");
        assert_eq!(self.truth.len(), 14);
        assert!(callers.len() > self.truth.len(), "what calls main, too");
    }
}

#[test]
fn programs_of_all_builds_are_whole() {
    for flags in [
        "-O2",
        "-O0",
        "-O2 -fomit-frame-pointer -no-pie",
        "-O2 -static",
        "-O2 -static-pie",
        "-O2 -Wl,--no-eh-frame-hdr",
        "-O2 -Wl,-z,separate-code -Wl,-z,noseparate-code",
        "-O2 -s",
    ] {
        let waiting = Waiting::compiled(flags);
        waiting.is_whole(Method::Auto, flags);
        waiting.is_whole(Method::Dwarf, flags);
    }
}

/// Unwind data for debuggers alone, and frames that nothing else could find.
const DEBUG_FRAME: &str = "-O2 -g -fomit-frame-pointer -fno-asynchronous-unwind-tables \
                           -fno-unwind-tables -fno-exceptions";

#[test]
fn unwind_data_for_debuggers_is_read_plain_and_compressed() {
    for flags in ["-gz=none", "-gz=zlib", "-gz=zlib-gnu"] {
        let flags = format!("{DEBUG_FRAME} {flags}");
        Waiting::compiled(&flags).is_whole(Method::Dwarf, &flags);
    }
}

#[test]
fn code_without_unwind_data_ends_the_stack() {
    let waiting = Waiting::compiled(&format!("{DEBUG_FRAME} -s"));
    let UnwoundStack { frames, end } = waiting.unwind(Method::Dwarf);
    assert_eq!(frames.len(), 1);
    assert_eq!(end, UnwindEnd::NoUnwindInfo { address: waiting.registers.ip });
}

#[test]
fn code_without_unwind_data_is_walked_by_its_frame_pointers() {
    let flags = "-O2 -fno-omit-frame-pointer -fno-asynchronous-unwind-tables -fno-unwind-tables \
                 -fno-exceptions -s";
    let waiting = Waiting::compiled(flags);
    // Also what the C library has called, which has unwind data again.
    waiting.is_whole(Method::Auto, flags);
    let unwound = waiting.unwind(Method::FramePointers);
    let callers: Vec<_> = unwound.frames.iter().skip(1).map(|frame| frame.address).collect();
    assert_eq!(callers[..14], waiting.truth);
    assert_ne!(unwound.end, UnwindEnd::EntryPoint, "the C library has no frame pointers");
}

/// No unwind data, and no frame pointers.
const BARE: &str = "-O2 -fomit-frame-pointer -fno-asynchronous-unwind-tables -fno-unwind-tables \
                    -fno-exceptions";

#[test]
fn code_that_says_nothing_of_its_frames_is_read_itself() {
    for flags in ["", "-O0", "-no-pie", "-static", "-static-pie"] {
        let flags = format!("{BARE} {flags}");
        Waiting::compiled(&flags).is_whole(Method::Auto, &flags);
    }
}

#[test]
fn without_symbols_callers_are_known_by_what_they_call() {
    let flags = format!("{BARE} -s");
    let waiting = Waiting::compiled(&flags);
    let UnwoundStack { frames, end } = waiting.unwind(Method::Auto);
    let callers: Vec<_> = frames.iter().skip(1).map(|frame| frame.address).collect();
    // The C library has the address of `main` from nowhere in its code.
    assert_eq!(callers, waiting.truth[..13]);
    assert_eq!(end, UnwindEnd::NoUnwindInfo { address: waiting.truth[12] });
}

#[test]
fn a_file_without_section_headers_is_read_by_its_program_headers() {
    let stripped = |program: &PathBuf| {
        let mut bytes = fs::read(program).unwrap();
        // e_shoff; e_shentsize, e_shnum, e_shstrndx
        bytes[40..48].fill(0);
        bytes[58..64].fill(0);
        fs::write(program, bytes).unwrap();
    };
    for flags in ["-O2", "-O2 -no-pie"] {
        Waiting::mended(flags, stripped).is_whole(Method::Dwarf, flags);
    }
}
