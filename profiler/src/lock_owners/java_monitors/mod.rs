//! Who has the monitors (`synchronized`) and other locks ([`synchronizers`]) that Java threads wait for, by
//! what the JVM keeps of its threads.
//!
//! ```text
//! JavaThread ──_osthread──▶ OSThread::_thread_id                               the waiter
//!     └──_current_pending_monitor──▶ ObjectMonitor::_owner ──▶ JavaThread ──▶  the owner
//! ```
//!
//! `HotSpot` publishes where all of this lies, for debuggers of its own: [`structs`]. Until a thread that
//! has a monitor notices that others want it, the monitor can name a place on that thread's stack
//! instead of the thread, or nobody: then the thread has the object among those that it has locked
//! ([`ObjectMonitor`](https://github.com/openjdk/jdk17u/blob/jdk-17.0.15%2B6/src/hotspot/share/runtime/objectMonitor.hpp),
//! [`LockStack`](https://github.com/openjdk/jdk25u/blob/jdk-25%2B36/src/hotspot/share/runtime/lockStack.hpp)).

mod library;
mod objects;
mod structs;
mod synchronizers;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

use offwake_recording::{LockKind, LockOwner, units::Tgid};

use super::{OpenFutexWait, candidates::Sharing, layouts::NamedTid, pages::Pages, threads};
use crate::{
    reader_process,
    symbols::python::memory::{Memory, ProcessMemory},
};
use library::MappedLibrary;
use objects::Heap;
use structs::{JvmStructs, OwnerForm, ThreadList};

/// The file that the JVM's code is in.
const LIBRARY: &str = "/libjvm.so";
/// How the names of files end that have classes as the JVM keeps them in memory.
const ARCHIVE: &str = ".jsa";
/// Threads of a JVM that are looked at.
const MAX_THREADS: usize = 4_096;
/// Objects that a thread says it has locked. `LockStack::CAPACITY` is 8.
const MAX_LOCKED: u64 = 64;
/// What `ObjectMonitor::_owner` is if the monitor does not know who has it (`ANONYMOUS_OWNER`). 2 is the
/// JVM's own (`DEFLATER_MARKER`), and 0 nobody.
const ANONYMOUS: u64 = 1;
const FIRST_OWNER: u64 = 3;

/// Finds the owners of the monitors and locks that these waits of one process are for.
pub(super) fn find_owners(
    process: Tgid,
    waits: &[OpenFutexWait],
    memory: &impl Memory,
) -> Vec<LockOwner> {
    let Some(jvm) = MappedJvm::find(process) else { return Vec::new() };
    let memory = JvmMemory { resident: memory, jvm: &jvm };
    let mut first = find_pairs(&jvm.structs, &Pages::new(&memory));
    if !first.is_empty() {
        // What is read twice was so in between.
        let again: HashSet<Pair> =
            find_pairs(&jvm.structs, &Pages::new(&memory)).into_iter().collect();
        first.retain(|pair| again.contains(pair));
    }
    first.into_iter().filter_map(|pair| find_wait(process, waits, pair)).collect()
}

/// A JVM that a process runs.
struct MappedJvm {
    structs: JvmStructs,
    /// Where archives of classes are mapped.
    archives: Vec<Range<u64>>,
    memory: ProcessMemory,
}

impl MappedJvm {
    /// Finds where the JVM of a process keeps its threads; none if it runs none.
    fn find(process: Tgid) -> Option<Self> {
        let mappings = reader_process::read_mappings(process).ok()?.lines;
        let code = mappings.iter().find(|line| line.name.ends_with(LIBRARY))?;
        let memory = ProcessMemory::open(process).ok()?;
        let structs = {
            let pages = memory.cache_pages();
            let library = MappedLibrary::find(&pages, code.start.checked_sub(code.offset)?)?;
            JvmStructs::read(&pages, |symbol| library.find_symbol(symbol))?
        };
        let archives = mappings.iter().filter(|line| line.name.ends_with(ARCHIVE));
        let archives = archives.map(|line| line.start..line.end).collect();
        Some(Self { structs, archives, memory })
    }
}

/// The memory of a JVM that is resident, and its archives of classes: names of fields lie there that nobody
/// has read since the JVM began.
struct JvmMemory<'a, M> {
    resident: &'a M,
    jvm: &'a MappedJvm,
}

impl<M: Memory> Memory for JvmMemory<'_, M> {
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        self.resident.read(address, into).or_else(|| {
            let is_archived = self.jvm.archives.iter().any(|archive| archive.contains(&address));
            is_archived.then(|| self.jvm.memory.read(address, into))?
        })
    }
}

/// A thread that waits for a monitor or a lock and the one that has it, and where the lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Pair {
    waiter: NamedTid,
    owner: NamedTid,
    kind: LockKind,
    lock: u64,
}

/// Finds the wait of a pair, if it goes on and both threads live.
fn find_wait(process: Tgid, waits: &[OpenFutexWait], pair: Pair) -> Option<LockOwner> {
    let futex = waits.iter().find(|wait| wait.futex.sharing == Sharing::Private)?.futex;
    let find = |named| threads::find_thread(process, named, &futex);
    let (waiter, owner) = (find(pair.waiter)?, find(pair.owner)?);
    let wait = waits.iter().find(|wait| wait.tid == waiter.tid)?;
    threads::is_waiting(process, wait.tid, &wait.futex).then(|| LockOwner {
        waiter: wait.tid,
        futex: wait.futex.address,
        kind: pair.kind,
        owner,
        owner_comm: threads::read_name(owner),
    })
}

/// Finds the threads that wait for a monitor or a lock whose owner can be told.
fn find_pairs(structs: &JvmStructs, memory: &impl Memory) -> Vec<Pair> {
    let jvm = Jvm { structs, memory };
    let threads = jvm.threads();
    let mut pairs = jvm.find_monitor_pairs(&threads);
    if let Some(structs) = &structs.heap {
        let parked = Heap { structs, memory }.find_parked(&threads);
        pairs.extend(parked.into_iter().filter_map(|parked| {
            let (waiter, owner) = (jvm.tid(parked.thread)?, jvm.tid(parked.owner)?);
            Some(Pair { waiter, owner, kind: LockKind::JavaLock, lock: parked.synchronizer })
        }));
    }
    pairs
}

/// Reads the threads and monitors of a JVM.
struct Jvm<'a, M> {
    structs: &'a JvmStructs,
    memory: &'a M,
}

impl<M: Memory> Jvm<'_, M> {
    fn at(&self, base: u64, offset: u64) -> Option<u64> {
        self.memory.word(base.checked_add(offset)?)
    }

    fn half_at(&self, base: u64, offset: u64) -> Option<u32> {
        self.memory.half(base.checked_add(offset)?)
    }

    /// Returns the addresses of the JVM's threads.
    fn threads(&self) -> Vec<u64> {
        match self.structs.threads {
            ThreadList::Array { list, length, threads } => {
                let begin_and_length = || {
                    let list = self.memory.word(list)?;
                    Some((self.at(list, threads)?, self.half_at(list, length)?))
                };
                let Some((begin, length)) = begin_and_length() else { return Vec::new() };
                (0..u64::from(length).min(MAX_THREADS as u64))
                    .map_while(|index| self.at(begin, 8 * index))
                    .collect()
            }
            ThreadList::Linked { first, next } => {
                let mut threads = Vec::new();
                let mut thread = self.memory.word(first).unwrap_or(0);
                while thread != 0 && threads.len() < MAX_THREADS {
                    threads.push(thread);
                    thread = self.at(thread, next).unwrap_or(0);
                }
                threads
            }
        }
    }

    /// Finds the threads that wait for a monitor whose owner can be told.
    fn find_monitor_pairs(&self, threads: &[u64]) -> Vec<Pair> {
        let pending =
            |&thread: &u64| Some((thread, self.at(thread, self.structs.pending_monitor)?));
        let mut waiters: Vec<(u64, u64)> = threads.iter().filter_map(pending).collect();
        waiters.retain(|&(_, monitor)| monitor != 0);
        if waiters.is_empty() {
            return Vec::new();
        }
        let names = self.names(threads);
        (waiters.into_iter())
            .filter_map(|(waiter, monitor)| {
                let owner = self.tid(self.find_owner(&names, monitor)?)?;
                let kind = LockKind::JavaMonitor;
                Some(Pair { waiter: self.tid(waiter)?, owner, kind, lock: monitor })
            })
            .collect()
    }

    /// Returns the number of a thread in its own PID namespace.
    fn tid(&self, thread: u64) -> Option<NamedTid> {
        let tid = self.half_at(self.at(thread, self.structs.os_thread)?, self.structs.thread_id)?;
        (tid != 0).then_some(NamedTid(tid))
    }

    /// Gathers what monitors can name threads by.
    fn names(&self, threads: &[u64]) -> ThreadNames {
        let mut names = ThreadNames::default();
        for &thread in threads {
            match self.structs.owner_form {
                OwnerForm::Id(id) => add_name(&mut names.words, self.at(thread, id), thread),
                OwnerForm::Address { stack } => {
                    add_name(&mut names.words, Some(thread), thread);
                    let range = stack.and_then(|fields| self.stack_of(thread, fields));
                    names.stacks.extend(range.map(|range| (range, thread)));
                }
            }
            for object in self.locked_objects(thread).unwrap_or_default() {
                add_name(&mut names.objects, Some(object), thread);
            }
        }
        names
    }

    /// Finds the only thread that can have a monitor.
    fn find_owner(&self, names: &ThreadNames, monitor: u64) -> Option<u64> {
        let owner = self.at(monitor, self.structs.owner)?;
        match owner {
            ANONYMOUS => {
                let object = self.memory.word(self.at(monitor, self.structs.object?)?)?;
                *names.objects.get(&object)?
            }
            0..FIRST_OWNER => None,
            _ => match names.words.get(&owner) {
                Some(named) => *named,
                None => {
                    let mut on = names.stacks.iter().filter(|(stack, _)| stack.contains(&owner));
                    on.next().filter(|_| on.next().is_none()).map(|&(_, thread)| thread)
                }
            },
        }
    }

    fn stack_of(
        &self,
        thread: u64,
        structs::StackFields { base, size }: structs::StackFields,
    ) -> Option<Range<u64>> {
        let base = self.at(thread, base)?;
        Some(base.checked_sub(self.at(thread, size)?)?..base)
    }

    /// Returns the objects that a thread has locked.
    fn locked_objects(&self, thread: u64) -> Option<HashSet<u64>> {
        let fields = self.structs.lock_stack?;
        let begin = thread.checked_add(fields.first)?;
        // The top is an offset from the beginning of the thread.
        let end = thread.checked_add(u64::from(self.half_at(thread, fields.top)?))?;
        let count = end.checked_sub(begin)? / 8;
        let objects = (0..count).map_while(|index| self.at(begin, 8 * index));
        (count <= MAX_LOCKED).then(|| objects.filter(|&object| object != 0).collect())
    }
}

/// What monitors can name threads by. What two threads have names neither.
#[derive(Default)]
struct ThreadNames {
    /// Addresses or numbers of threads.
    words: HashMap<u64, Option<u64>>,
    /// Objects that threads have locked.
    objects: HashMap<u64, Option<u64>>,
    stacks: Vec<(Range<u64>, u64)>,
}

fn add_name(names: &mut HashMap<u64, Option<u64>>, name: Option<u64>, thread: u64) {
    if let Some(name) = name {
        names.entry(name).and_modify(|known| *known = None).or_insert(Some(thread));
    }
}
