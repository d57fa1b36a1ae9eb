//! The stacks of threads that sleep already when the recording begins.
//!
//! ```text
//!           opening survey: registers, count of sleeps     its stack is read; the same count?
//!  thread ----------|------------------------------------------|-----> asleep all the while
//! ```
//!
//! The kernel half can't read the memory of a process that it does not run in, and has no need to:
//! as long as the thread has not woken, its stack is what it was.

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
};

use offwake_recording::units::{Tgid, Tid};

use crate::{decode::UserStackCopy, symbols::python::memory::ProcessMemory};

/// Bytes that are read of a stack: as many as the kernel half copies at most.
const MAX_BYTES: usize = 64 << 10;

/// Reads the stack of a thread that has gone to sleep `voluntary_switches` times, from the stack
/// pointer on, and what `python` returns meanwhile. None if the thread has woken since.
pub(crate) fn read_if_asleep<T>(
    copy: &UserStackCopy,
    voluntary_switches: u64,
    python: impl FnOnce() -> T,
) -> Option<(Vec<u8>, T)> {
    let UserStackCopy { tgid, tid, sp, .. } = *copy;
    let bytes = ProcessMemory::open(tgid).ok()?.read_prefix(sp, MAX_BYTES);
    let python = python();
    (count_sleeps(tgid, tid)? == voluntary_switches).then_some((bytes, python))
}

/// How often a thread has gone to sleep.
fn count_sleeps(tgid: Tgid, tid: Tid) -> Option<u64> {
    let status = File::open(format!("/proc/{tgid}/task/{tid}/status")).ok()?;
    let mut lines = BufReader::new(status).split(b'\n').map_while(Result::ok);
    lines.find_map(|line| {
        let count = line.strip_prefix(b"voluntary_ctxt_switches:")?;
        std::str::from_utf8(count).ok()?.trim().parse().ok()
    })
}
