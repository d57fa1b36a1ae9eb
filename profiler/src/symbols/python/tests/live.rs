//! Against interpreters that run: what is read from outside must be what they say of themselves.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs::File,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use object::ReadCache;
use offwake_recording::units::{Tgid, Tid};
use profiler_ebpf::python::MAX_FRAMES;

use super::super::{
    code::{CodeNames, Named, PythonFunction},
    image::Image,
    interpreter::{Interpreter, MappedAt, Part},
    memory::{Memory, ProcessMemory},
    merge::ChainEnd,
    own_storage,
    threads::{Tasks, thread_states},
    walk::walk,
};
use crate::symbols::address_spaces::proc_maps;

/// Waits in many places, and says where.
const WAITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/symbols/python/tests/waits.py");

/// More interpreters to test with, each a path, with colons between.
const OTHERS: &str = "OFFWAKE_TEST_PYTHONS";

pub(super) fn pythons() -> Vec<OsString> {
    let others = env::var_os(OTHERS).unwrap_or_default();
    let others = env::split_paths(&others).map(OsString::from).filter(|path| !path.is_empty());
    others.chain([OsString::from("python3")]).collect()
}

/// What a program says of one of its threads: the function that it is to wait in, and its frames.
type Told = (String, Vec<PythonFunction>);

struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(python: &OsString) -> Self {
        let mut command = Command::new(python);
        command.arg(WAITS).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, output: BufReader::new(output) }
    }

    fn tgid(&self) -> Tgid {
        Tgid(self.child.id())
    }

    fn ask(&mut self) -> BTreeMap<Tid, Told> {
        self.input.write_all(b"\n").unwrap();
        let mut threads: BTreeMap<Tid, Told> = BTreeMap::new();
        let mut current = Tid(0);
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the program ended");
            let words: Vec<_> = line.trim_end_matches('\n').splitn(4, ' ').collect();
            match words[..] {
                ["thread", tid, waits_in] => {
                    current = Tid(tid.parse().unwrap());
                    threads.insert(current, (waits_in.to_owned(), Vec::new()));
                }
                ["frame", name, line, file] => {
                    let (name, file) = (name.to_owned(), file.to_owned());
                    let function = PythonFunction { name, file, line: line.parse().ok() };
                    threads.get_mut(&current).unwrap().1.push(function);
                }
                _ => return threads,
            }
        }
    }

    /// What it says as soon as all its threads wait where they are to.
    fn wait_until_all_wait(&mut self) -> BTreeMap<Tid, Told> {
        let mut before = BTreeMap::new();
        loop {
            let told = self.ask();
            let waits = told.iter().all(|(&tid, (waits_in, frames))| {
                frames.first().is_some_and(|leaf| leaf.name.ends_with(waits_in.as_str()))
                    && self.is_asleep(tid)
            });
            if waits && told == before {
                return told;
            }
            before = told;
        }
    }

    fn is_asleep(&self, tid: Tid) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/task/{tid}/stat", self.tgid()));
        stat.unwrap().rsplit(')').next().unwrap().starts_with(" S")
    }

    fn interpreter(&self, memory: &impl Memory) -> Interpreter {
        find_interpreter(self.tgid(), memory)
    }
}

/// The CPython that a process runs.
pub(super) fn find_interpreter(tgid: Tgid, memory: &impl Memory) -> Interpreter {
    let (lines, _) = proc_maps::read(tgid).unwrap();
    let found = lines.iter().filter(|line| line.name.starts_with('/')).find_map(|line| {
        let file = ReadCache::new(File::open(&line.name).unwrap());
        let image = Image::read(&file, &line.name).ok()?;
        let mapped = MappedAt { start: line.start, offset: line.offset };
        Some(Interpreter::find(&image, mapped, memory).unwrap())
    });
    found.unwrap()
}

impl Drop for Program {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn what_is_read_from_outside_is_what_the_interpreter_says() {
    for python in pythons() {
        let mut program = Program::start(&python);
        let told = program.wait_until_all_wait();
        let memory = ProcessMemory::open(program.tgid()).unwrap();
        let interpreter = program.interpreter(&memory);
        let states = thread_states(&interpreter, &memory, &Tasks::read(program.tgid()));
        // The main thread is the one that tells.
        assert_eq!(states.threads.len(), told.len() + 1, "{states:?}");
        assert_eq!((states.ambiguous, states.unknown, states.is_cut), (0, 0, false));
        let storage = own_storage::find(&interpreter, &memory, &states.threads);
        assert!(storage.is_some(), "threads keep their states somewhere else: {python:?}");
        let mut names = CodeNames::default();
        for thread in &states.threads {
            let (captured, end) = walk(&memory, thread, &interpreter.layout()).unwrap();
            let mut read = Vec::new();
            for frame in &captured {
                if interpreter.part(frame) == Part::Shim {
                    continue;
                }
                match names.name(program.tgid(), &interpreter, &memory, frame) {
                    Named::Function(function) => read.push(function),
                    Named::NotShown => {}
                    Named::Unknown => panic!("{frame:x?} of {thread:?} after {read:?}"),
                }
            }
            let Some((_, frames)) = told.get(&thread.tid) else {
                assert_eq!(thread.tid.0, program.tgid().0);
                assert_eq!(read.last().unwrap().name, "<module>");
                continue;
            };
            match end {
                ChainEnd::First => assert_eq!(read, *frames),
                ChainEnd::CutShort => assert_eq!(read, frames[..read.len()]),
            }
            assert_eq!(end == ChainEnd::CutShort, frames.len() > MAX_FRAMES);
        }
    }
}
