//! Where the threads of a CPython keep the pointers to their states, so that a thread that has just
//! started is known without anybody having looked for it.
//!
//! ```text
//!  fs register ──> struct pthread ── data of the key ──> PyThreadState ── thread_id ──┐
//!                       ^                                                             |
//!                       `-------------------------------------------------------------┘
//! ```
//!
//! CPython keeps that pointer as the thread's data of a key (`autoTSSkey`), whether the thread has
//! the interpreter's lock or not. glibc has the data of the first 32 keys in its `struct pthread`
//! ([`specific_1stblock`](https://sourceware.org/git/?p=glibc.git;a=blob;f=nptl/descr.h;hb=glibc-2.36)).
//! Where exactly is found by looking for the pointers of threads whose states are known. musl keeps
//! it elsewhere, and there nothing is found.

use std::collections::BTreeSet;

use profiler_ebpf::python::PythonProcess;

use super::{interpreter::Interpreter, memory::Memory, threads::ThreadState};

/// The size of `struct pthread` in glibc 2.31 to 2.41 is between this and 2.5 KiB; the data of keys
/// ends before.
const STORAGE_BYTES: usize = 2_048;
/// The threads whose storage is read at most.
const MAX_THREADS: usize = 4;

/// Finds where threads have the pointers to their states. None if it is not in the same place in all
/// of these.
pub(super) fn find(
    interpreter: &Interpreter,
    memory: &impl Memory,
    threads: &[ThreadState],
) -> Option<PythonProcess> {
    let thread_pointer = interpreter.offsets.thread.pthread()?;
    let mut common: Option<BTreeSet<u32>> = None;
    for thread in threads.iter().take(MAX_THREADS) {
        let places = places_of_state(memory, thread.state, thread_pointer)?;
        common = Some(match common {
            Some(common) => common.intersection(&places).copied().collect(),
            None => places,
        });
    }
    let state_pointer = common?.first().copied()?;
    Some(PythonProcess { state_pointer, thread_pointer, layout: interpreter.layout() })
}

/// Returns where a thread's storage has pointers to its state.
fn places_of_state(memory: &impl Memory, state: u64, thread_pointer: u32) -> Option<BTreeSet<u32>> {
    let storage = memory.word(state.checked_add(u64::from(thread_pointer))?)?;
    // On x86_64 the register points to its own value.
    if memory.word(storage)? != storage {
        return None;
    }
    let mut bytes = [0; STORAGE_BYTES];
    memory.read(storage, &mut bytes)?;
    let (words, _) = bytes.as_chunks::<8>();
    let places = words.iter().zip((0..).step_by(8));
    Some(places.filter(|(word, _)| u64::from_le_bytes(**word) == state).map(|(_, at)| at).collect())
}
