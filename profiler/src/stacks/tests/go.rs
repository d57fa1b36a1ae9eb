//! Go programs, however much was stripped from them.

use std::{fs, path::Path, process::Command};

use offwake_recording::{AddressSpace, Function, units::StackId};

use super::{Running, finish, processor, seen};
use crate::symbols::{Detail, NameSources, clock::monotonic_now};

/// Prints the addresses that `here` returns to, the leaf's first, and waits for its input to close.
const PROGRAM: &str = r#"package main

import (
	"fmt"
	"os"
	"runtime"

	"example.com/own/pack.v3"
)

type Server struct{ served int }

//go:noinline
func (s *Server) Serve(f func()) {
	f() // of Serve
	s.served++
}

var mapped int

//go:noinline
func Map[T any](x T, f func(T)) {
	f(x)
	mapped++
}

//go:noinline
func here() {
	var pcs [6]uintptr
	runtime.Callers(2, pcs[:])
	for n, pc := range pcs {
		// Of the inlined function and of the one that it is inlined into, the second is made up.
		if n != 1 {
			fmt.Printf("0x%x\n", pc)
		}
	}
}

func inlined(f func()) {
	f()
	mapped++
}

//go:noinline
func outer() {
	inlined(here)
	mapped++
}

func main() {
	s := &Server{}
	s.Serve(func() { Map(1, func(int) { pack.Call(outer) }) })
	os.Stdin.Read(make([]byte, 1))
}
"#;

const PACKAGE: &str = "package pack

var called int

//go:noinline
func Call(f func()) {
	f() // of Call
	called++
}
";

/// Leaf first.
const NAMES: [&str; 5] = [
    "main.outer",
    "example.com/own/pack.v3.Call",
    "main.main.func1.1",
    "main.Map[...]",
    "main.main.func1",
];

/// Builds the program. None if there is no Go here.
fn build(directory: &Path, options: &[&str]) -> Option<std::path::PathBuf> {
    let package = directory.join("pack.v3");
    fs::create_dir_all(&package).unwrap();
    fs::write(package.join("pack.go"), PACKAGE).unwrap();
    fs::write(directory.join("main.go"), PROGRAM).unwrap();
    fs::write(directory.join("go.mod"), "module example.com/own\n\ngo 1.19\n").unwrap();
    let mut command = Command::new("go");
    command.current_dir(directory).args(["build", "-o", "program"]).args(options);
    match command.env("GOTOOLCHAIN", "local").env("GOPROXY", "off").output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(directory.join("program"))
        }
        Err(_) => {
            eprintln!("NOT RUN, there is no go here");
            None
        }
    }
}

/// The functions of the frames in [`NAMES`], innermost first.
fn functions(options: &[&str], detail: Detail) -> Option<Vec<Vec<Function>>> {
    let directory = tempfile::tempdir().unwrap();
    let mut running = Running::start(&build(directory.path(), options)?);
    let mut addresses = vec![0];
    addresses.extend(NAMES.iter().map(|_| running.address()));
    let mut stacks =
        processor().with_name_sources(NameSources { detail, ..NameSources::default() });
    let space = AddressSpace::Process(running.tgid());
    stacks.add_walked_stack(StackId(1), space, monotonic_now(), &addresses);
    let (table, _) = finish(stacks, &mut |_, _| {});
    Some(seen(&table).into_iter().skip(1).map(|seen| seen.frame.functions).collect())
}

fn line(source: &str, words: &str) -> Option<u32> {
    source.lines().zip(1..).find(|(line, _)| line.contains(words)).map(|(_, number)| number)
}

#[test]
fn functions_have_their_names_however_much_was_stripped() {
    for options in [
        &[][..],
        &["-ldflags=-s -w"],
        &["-ldflags=-w"],
        &["-buildmode=pie"],
        &["-buildmode=pie", "-ldflags=-s -w"],
    ] {
        let Some(functions) = functions(options, Detail::SymbolTable) else { return };
        let named = NAMES.map(|name| vec![Function::named(name)]);
        assert_eq!(functions, named, "{options:?}");
    }
}

#[test]
fn a_stripped_program_still_has_lines_but_for_what_is_inlined() {
    for options in [&["-ldflags=-s -w"][..], &["-buildmode=pie", "-ldflags=-s -w"]] {
        let Some(functions) = functions(options, Detail::Lines) else { return };
        let place = |n: usize| {
            let [function] = &functions[n][..] else { panic!("{:?}", functions[n]) };
            let file = function.file.as_deref().map(|file| file.rsplit('/').next().unwrap());
            (file, function.line)
        };
        // The line would be one of `inlined`, of which nothing else is known.
        assert_eq!(place(0), (None, None), "{options:?}");
        assert_eq!(place(1), (Some("pack.go"), line(PACKAGE, "of Call")), "{options:?}");
        let calls = line(PROGRAM, "pack.Call(outer)");
        assert_eq!(place(2), (Some("main.go"), calls), "{options:?}");
        assert_eq!(place(3), (Some("main.go"), line(PROGRAM, "f(x)")), "{options:?}");
    }
}

#[test]
fn a_program_with_debug_information_has_its_inlined_functions_too() {
    let Some(functions) = functions(&[], Detail::Lines) else { return };
    let names: Vec<_> = functions[0].iter().map(|function| function.name.as_str()).collect();
    assert_eq!(names, ["main.inlined", "main.outer"]);
    assert_eq!(functions[0][1].line, line(PROGRAM, "inlined(here)"));
    assert_eq!(functions[1][0].line, line(PACKAGE, "of Call"));
}
