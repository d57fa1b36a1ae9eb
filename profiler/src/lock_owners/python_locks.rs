//! Who has the locks of Python's `threading` module that threads wait for.
//!
//! ```text
//! waiter's innermost frame ──▶ Lock, whose semaphore is the futex ──▶ the only thread in a `with` block of it
//!                              RLock, likewise                    ──▶ the thread that it names
//! ```
//!
//! A lock that was acquired without a `with` block, and names nobody, has no owner here.

use std::collections::{HashMap, HashSet};

use offwake_recording::{
    LockKind, LockOwner, ThreadRef,
    units::{Tgid, Tid},
};

use super::{OpenFutexWait, WaitLength, candidates::Sharing, pages::Pages, threads};
use crate::symbols::python::{
    Interpreter, find_known_interpreter,
    locks::{LockReader, PythonLock},
    memory::Memory,
    threads::{Tasks, ThreadState, thread_states},
};

/// Threads of a process whose frames are looked at.
const MAX_THREADS: usize = 512;

/// Finds the owners of the locks that these waits of one process are for.
pub(super) fn find_owners(
    process: Tgid,
    waits: &[OpenFutexWait],
    memory: &impl Memory,
) -> Vec<LockOwner> {
    let mut waits: Vec<&OpenFutexWait> =
        waits.iter().filter(|wait| may_be_semaphore(wait)).collect();
    let Some(interpreter) = find_known_interpreter(process).filter(|_| !waits.is_empty()) else {
        return Vec::new();
    };
    let tasks = Tasks::read(process);
    let find = |waits: &[&OpenFutexWait]| find_once(&interpreter, memory, &tasks, waits);
    let first = find(&waits);
    waits.retain(|wait| first.contains_key(&wait.tid));
    if waits.is_empty() {
        return Vec::new();
    }
    // What is read twice was so in between.
    let again = find(&waits);
    (waits.into_iter())
        .filter_map(|wait| {
            let &(lock, owner) = first.get(&wait.tid)?;
            let owner = ThreadRef { tid: owner, tgid: process };
            let is_same = again.get(&wait.tid) == Some(&(lock, owner.tid))
                && memory.half(wait.futex.address) == Some(0)
                && threads::is_waiting(process, wait.tid, &wait.futex);
            is_same.then(|| LockOwner {
                waiter: wait.tid,
                futex: wait.futex.address,
                kind: LockKind::PythonLock,
                owner,
                owner_comm: threads::read_name(owner),
            })
        })
        .collect()
}

/// Returns whether a wait is long and may be for a semaphore, as which CPython has its locks: it waits while the
/// value is 0
/// ([`sem_waitcommon.c`](https://sourceware.org/git/?p=glibc.git;a=blob;f=nptl/sem_waitcommon.c;hb=glibc-2.36)).
fn may_be_semaphore(wait: &OpenFutexWait) -> bool {
    wait.length == WaitLength::Long
        && wait.futex.value == 0
        && wait.futex.sharing == Sharing::Private
        && wait.futex.is_plain_wait()
}

/// Reads each wait's lock and its owner, by the waiter.
fn find_once(
    interpreter: &Interpreter,
    memory: &impl Memory,
    tasks: &Tasks,
    waits: &[&OpenFutexWait],
) -> HashMap<Tid, (PythonLock, Tid)> {
    let pages = Pages::new(memory);
    let states = thread_states(interpreter, &pages, tasks).threads;
    let reader = LockReader::new(interpreter, &pages);
    let by_tid: HashMap<Tid, &ThreadState> =
        states.iter().map(|state| (state.tid, state)).collect();
    let awaited: Vec<(Tid, PythonLock)> = (waits.iter())
        .filter_map(|wait| {
            let state = by_tid.get(&wait.tid)?;
            Some((wait.tid, reader.awaited_lock(state, wait.futex.address)?))
        })
        .collect();
    if awaited.is_empty() {
        return HashMap::new();
    }
    let mut holders: HashMap<PythonLock, HashSet<Tid>> = HashMap::new();
    for state in states.iter().take(MAX_THREADS) {
        for lock in reader.held_locks(state) {
            holders.entry(lock).or_default().insert(state.tid);
        }
    }
    let by_pthread: HashMap<u64, Tid> =
        states.iter().filter_map(|state| Some((reader.pthread(state)?, state.tid))).collect();
    (awaited.into_iter())
        .filter_map(|(waiter, lock)| {
            let owner = match reader.has_owner(lock) {
                true => *by_pthread.get(&reader.owner(lock)?)?,
                false => {
                    let holders = holders.get(&lock)?;
                    *holders.iter().next().filter(|_| holders.len() == 1)?
                }
            };
            Some((waiter, (lock, owner)))
        })
        .collect()
}
