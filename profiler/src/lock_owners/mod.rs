//! Who holds the locks in memory that threads still wait for, by the words around their futexes.
//!
//! ```text
//! open wait ──▶ candidates: kinds of lock  ──▶ layouts: the TID that ──▶ threads: a thread ──▶ LockOwner
//!               that its syscall allows        such a lock names         that lives
//! ```
//!
//! Locks of Python and monitors of Java have no owner around the futex: what the runtime keeps of its
//! threads tells it ([`python_locks`], [`java_monitors`]).
//!
//! Reading another process's memory may block for as long as that process likes: it holds the lock on
//! its own mappings, or serves its page faults itself. So a thread does it that is given up after a
//! while ([`ReaderThread`]), and reads pages that are in memory alone.

mod candidates;
mod java_monitors;
mod layouts;
mod pages;
mod python_locks;
mod threads;

use std::{collections::HashMap, sync::mpsc::Sender, time::Duration};

use offwake_recording::{
    LockOwner, Wait,
    units::{Nanos, Tgid, Tid},
};

use candidates::FutexWait;

use crate::{own_threads::OwnThread, reader_thread::ReaderThread, resident_memory::ResidentMemory};

/// The part of the window that a wait has to have taken.
const MIN_SHARE: u64 = 10;
/// What is long enough in any window.
const LONG: Nanos = Nanos(1_000_000_000);
/// The most waits that are looked into.
const MAX_WAITS: usize = 4_096;
/// The most processes whose runtimes are looked into.
const MAX_RUNTIMES: usize = 64;
/// How long it may take in all.
const PATIENCE: Duration = Duration::from_millis(250);

static READER: ReaderThread = ReaderThread::new(OwnThread::LockOwners);

/// Finds the owners of the locks that waits are for that have not ended, and are longer than a tenth of
/// the window or may be pieces of such a wait: those of the target first, then the waits of the owners themselves, then those of others.
pub(crate) fn find_lock_owners(open: &[Wait], window: Nanos) -> Vec<LockOwner> {
    let waits = select_waits(open, window);
    if waits.is_empty() {
        return Vec::new();
    }
    READER.collect(PATIENCE, move |found| read_owners(&waits, found))
}

/// A wait for a futex that may be a lock.
#[derive(Clone, Copy, Debug)]
struct OpenFutexWait {
    tgid: Tgid,
    tid: Tid,
    futex: FutexWait,
    length: WaitLength,
}

/// How long a wait was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitLength {
    /// A tenth of the window, or longer than any.
    Long,
    /// Shorter, with a timeout: it may be one piece of many. A JVM asks for a monitor again at least once
    /// a second.
    ShortWithTimeout,
}

/// Selects the waits to look into, in order of importance.
fn select_waits(open: &[Wait], window: Nanos) -> Vec<OpenFutexWait> {
    let least = LONG.min(Nanos(window.0 / MIN_SHARE));
    let length = |wait: &Wait| wait.on.since(wait.off);
    // Who is awake again waits for a CPU, if for anything.
    let is_wanted = |wait: &&Wait| length(wait) > least || wait.timeout.is_some();
    let mut waits: Vec<&Wait> =
        open.iter().filter(|wait| wait.wake.is_none()).filter(is_wanted).collect();
    waits.sort_by_key(|wait| (!wait.in_target, std::cmp::Reverse(length(wait))));
    (waits.into_iter())
        .filter_map(|wait| {
            let futex = FutexWait::from_wait(wait)?;
            let length = match length(wait) > least {
                true => WaitLength::Long,
                false => WaitLength::ShortWithTimeout,
            };
            Some(OpenFutexWait { tgid: wait.tgid, tid: wait.tid, futex, length })
        })
        .take(MAX_WAITS)
        .collect()
}

/// Sends the owners as they are found, until there are no more or nobody listens.
fn read_owners(waits: &[OpenFutexWait], found: &Sender<LockOwner>) {
    let mut memories: HashMap<Tgid, Option<ResidentMemory>> = HashMap::new();
    let mut by_process: Vec<(Tgid, Vec<OpenFutexWait>)> = Vec::new();
    for wait in waits {
        match by_process.iter().position(|(process, _)| *process == wait.tgid) {
            Some(place) => by_process[place].1.push(*wait),
            None if by_process.len() < MAX_RUNTIMES => by_process.push((wait.tgid, vec![*wait])),
            None => {}
        }
        let memory = (memories.entry(wait.tgid))
            .or_insert_with(|| ResidentMemory::open(wait.tgid).ok())
            .as_ref();
        let Some(memory) = memory.filter(|_| wait.length == WaitLength::Long) else { continue };
        for owner in find_owners(wait, memory) {
            if found.send(owner).is_err() {
                return;
            }
        }
    }
    for (process, waits) in by_process {
        let Some(Some(memory)) = memories.get(&process) else { continue };
        let of_python = python_locks::find_owners(process, &waits, memory);
        let owners = match of_python.is_empty() {
            true => java_monitors::find_owners(process, &waits, memory),
            false => of_python,
        };
        if owners.into_iter().any(|owner| found.send(owner).is_err()) {
            return;
        }
    }
}

/// Finds the thread that the words around a futex name, for each kind of lock that it could be.
fn find_owners(wait: &OpenFutexWait, memory: &ResidentMemory) -> Vec<LockOwner> {
    let &OpenFutexWait { tgid, tid, futex, .. } = wait;
    (futex.kinds())
        .filter_map(|kind| {
            let named = layouts::read_owner(kind, &futex, memory)?;
            let owner = threads::find_thread(tgid, named, &futex)?;
            let owner_comm = threads::read_name(owner);
            // The thread has to wait for the lock as before, and the lock has to name the same owner,
            // while that one lives: then this was so at one moment.
            let is_same = threads::is_waiting(tgid, tid, &futex)
                && layouts::read_owner(kind, &futex, memory) == Some(named)
                && threads::find_thread(tgid, named, &futex) == Some(owner);
            is_same.then_some(LockOwner {
                waiter: tid,
                futex: futex.address,
                kind,
                owner,
                owner_comm,
            })
        })
        .collect()
}

/// Parses any text as each of the files that are read here, for the fuzzer.
pub(crate) fn parse_hostile(text: &str) {
    threads::parse_hostile(text);
}

#[cfg(test)]
mod tests;
