//! The stacks of threads that sleep already when the recording begins.
//!
//! ```text
//!           opening survey: registers, count of sleeps     its stack is read; the same count?
//!  thread ----------|------------------------------------------|-----> asleep all the while
//! ```
//!
//! The kernel half can't read the memory of a process that it does not run in, and has no need to:
//! as long as the thread has not woken, its stack is what it was.
//!
//! As the recording begins, those of the target's threads are read, and of those that may wait for
//! locks. Of the others, the closing survey offers the stacks: which of them are wanted, nobody knows
//! before the target's waits are followed to who could end them.

use std::{
    collections::HashMap,
    fs::File,
    io::{BufRead as _, BufReader},
};

use offwake_recording::units::{Tgid, Tid};

use crate::{
    decode::{CopyPurpose, UserStackCopy},
    symbols::python::memory::ProcessMemory,
};

/// Bytes that are read of a stack: as many as the kernel half copies at most.
const MAX_BYTES: usize = 64 << 10;

/// Where the stacks of threads are that have slept since before the recording, without their bytes: some
/// 200 bytes for each thread, of which there are no more than the kernel half tracks.
#[derive(Default)]
pub(crate) struct OfferedStacks(HashMap<Tid, UserStackCopy<'static>>);

impl OfferedStacks {
    /// Keeps a stack in mind that is offered. Returns any other, which is to be unwound at once.
    pub(crate) fn keep_offered<'c>(
        &mut self,
        copy: UserStackCopy<'c>,
    ) -> Option<UserStackCopy<'c>> {
        let CopyPurpose::StillAsleep { voluntary_switches } = copy.purpose else {
            return Some(copy);
        };
        let UserStackCopy { id, call_site, cached_id, copied, tgid, tid, ip, sp, fp, .. } = copy;
        let UserStackCopy { python, size, missing, code_epoch, .. } = copy;
        // From now on it is read as those are that were asked for as the window opened.
        let purpose = CopyPurpose::BeforeWindow { voluntary_switches };
        let (red_zone, bytes): (&[u8], &[u8]) = (&[], &[]);
        #[rustfmt::skip]
        let offered = UserStackCopy {
            id, call_site, cached_id, purpose, copied, tgid, tid, ip, sp, fp, python, size,
            red_zone, bytes, missing, code_epoch,
        };
        self.0.insert(tid, offered);
        None
    }

    /// Removes the stack of a thread, if it was offered, and returns it.
    pub(crate) fn remove(&mut self, tid: Tid) -> Option<UserStackCopy<'static>> {
        self.0.remove(&tid)
    }
}

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
