//! Reads any memory as that of a CPython, for the fuzzer.

use offwake_recording::units::{Tgid, Tid};

use super::{
    code::{CodeNames, Named},
    debug_offsets,
    image::{Image, NotFound},
    interpreter::{Captured, Interpreter},
    locks::LockReader,
    memory::Memory,
    offsets::Offsets,
    threads::{Tasks, thread_states},
    version::Version,
    walk::walk,
};
use crate::symbols::name_limit::MAX_NAME;

/// Where the interpreter has its state.
const RUNTIME: u64 = 0x10_0000;
/// The versions that are known, from 3.9 on, and one that is not.
const VERSIONS: u8 = 7;
/// Numbers of threads that are there.
const THREADS: u32 = 64;
/// Threads whose frames are named.
const NAMED_THREADS: usize = 4;

/// Bytes of a text at most, with the mark of one that was cut.
const MAX_TEXT: usize = MAX_NAME + "…".len();

/// A few bytes that repeat: wherever a word leads, there is something.
struct Repeated<'a>(&'a [u8]);

impl Memory for Repeated<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        for (index, byte) in (0..).zip(into) {
            let at = address.wrapping_add(index).checked_rem(self.0.len() as u64)?;
            *byte = *self.0.get(usize::try_from(at).ok()?)?;
        }
        Some(())
    }
}

/// Finds the threads of a CPython in memory, walks their frames and names them. The first byte says which
/// version it is, three words which frame the kernel half captured; the rest is memory.
pub(crate) fn read(bytes: &[u8]) -> Option<()> {
    let (&minor, rest) = bytes.split_first()?;
    let (words, rest) = rest.split_first_chunk::<24>()?;
    let [code, instruction, marks] = words.as_chunks().0 else { return None };
    let [code, instruction, marks] =
        [code, instruction, marks].map(|word| u64::from_le_bytes(*word));
    let memory = Repeated(rest);
    let version = Version::python3(9 + minor % VERSIONS);
    let offsets = Offsets::for_version(version)
        .or_else(|| debug_offsets::read(&memory, RUNTIME, version).ok())?;
    let interpreter = Interpreter::with(RUNTIME, offsets)?;
    let tasks: Tasks = (0..THREADS).map(|own| (own, Tid(own))).collect();
    let states = thread_states(&interpreter, &memory, &tasks);
    let mut frames = vec![Captured { code, instruction, marks }];
    let locks = LockReader::new(&interpreter, &memory);
    for state in states.threads.iter().take(NAMED_THREADS) {
        let held = locks.held_locks(state);
        let awaited = locks.awaited_lock(state, code);
        let _owners: Vec<_> = held.into_iter().chain(awaited).map(|it| locks.owner(it)).collect();
        let walked = walk(&memory, state, &interpreter.layout());
        frames.extend(walked.into_iter().flat_map(|(frames, _end)| frames));
    }
    let mut names = CodeNames::default();
    for frame in &frames {
        let first = names.name(Tgid(1), &interpreter, &memory, frame);
        // What is remembered is what was read.
        assert_eq!(names.name(Tgid(1), &interpreter, &memory, frame), first);
        let Named::Function(function) = first else { continue };
        let longest = function.name.len().max(function.file.len());
        assert!(longest <= MAX_TEXT, "{longest}");
    }
    Some(())
}

/// Reads where in a file CPython keeps its state.
pub(crate) fn read_image(bytes: &[u8], path: &str) -> Result<(), NotFound> {
    Image::read(bytes, path).map(drop)
}
