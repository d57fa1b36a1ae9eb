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
    os::unix::fs::FileExt as _,
};

use offwake_recording::units::{Tgid, Tid};
use profiler_ebpf::user_stack::PAGE;

use crate::decode::UserStackCopy;

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
    let memory = File::open(format!("/proc/{tgid}/mem")).ok()?;
    let bytes = read_stack(&memory, sp);
    let python = python();
    (count_sleeps(tgid, tid)? == voluntary_switches).then_some((bytes, python))
}

/// Reads the stack up to the first page that can't be read.
fn read_stack(memory: &File, sp: u64) -> Vec<u8> {
    let mut bytes = vec![0; MAX_BYTES];
    let mut length = 0;
    while length < MAX_BYTES {
        let Some(address) = sp.checked_add(length as u64) else { break };
        let rest_of_page = PAGE - (address % PAGE as u64) as usize;
        let end = (length + rest_of_page).min(MAX_BYTES);
        if memory.read_exact_at(&mut bytes[length..end], address).is_err() {
            break;
        }
        length = end;
    }
    bytes.truncate(length);
    bytes
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
