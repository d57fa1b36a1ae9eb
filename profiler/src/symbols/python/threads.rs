//! Which threads run Python, and where their states are.

use std::{collections::HashMap, io::BufRead};

use offwake_recording::units::{Tgid, Tid};

use super::{interpreter::Interpreter, memory::Memory, offsets::Identity};

/// Interpreters of a process that are looked at: one, and those that extensions make.
const MAX_INTERPRETERS: usize = 256;
/// Threads of a process that are looked at.
const MAX_THREADS: usize = 65_536;
/// States that are looked at for each thread that a process has: a thread can have one in each
/// interpreter, and some programs leave those of threads that ended.
const STATES_PER_THREAD: usize = 4;
/// States that are looked at however few threads there are.
const MIN_STATES: usize = 256;

/// Where the C libraries keep the number of a thread behind what `pthread_self()` gives, on x86_64.
/// What is there is taken only if it is one of the process's threads.
///
/// glibc 2.36: <https://sourceware.org/git/?p=glibc.git;a=blob;f=nptl/descr.h;hb=glibc-2.36>
/// (`header` is 704 bytes, `list` 16); musl 1.2:
/// <https://git.musl-libc.org/cgit/musl/tree/src/internal/pthread_impl.h?h=v1.2.4>
const PTHREAD_TID: [u64; 2] = [0x2d0, 0x30];

/// The threads of a process: the number that each has for itself, and the one that it has here.
///
/// The two are different in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tasks(HashMap<u32, Tid>);

impl Tasks {
    /// Reads the threads that a process has now. Threads that end meanwhile are left out.
    pub(crate) fn read(tgid: Tgid) -> Self {
        let Ok(entries) = std::fs::read_dir(format!("/proc/{tgid}/task")) else {
            return Self::default();
        };
        let tids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let own = |tid: u32| {
            let file = std::fs::File::open(format!("/proc/{tgid}/task/{tid}/status")).ok()?;
            let mut lines = std::io::BufReader::new(file).split(b'\n').map_while(Result::ok);
            let own = lines.find_map(|line| own_number(&line));
            Some((own?, Tid(tid)))
        };
        tids.take(MAX_THREADS).filter_map(own).collect()
    }

    /// How many states are looked at: a list can go round.
    fn max_states(&self) -> usize {
        self.0.len().saturating_mul(STATES_PER_THREAD).clamp(MIN_STATES, MAX_THREADS)
    }

    fn get(&self, own: u64) -> Option<Tid> {
        self.0.get(&u32::try_from(own).ok()?).copied()
    }
}

impl FromIterator<(u32, Tid)> for Tasks {
    fn from_iter<T: IntoIterator<Item = (u32, Tid)>>(tasks: T) -> Self {
        Self(tasks.into_iter().collect())
    }
}

/// The last number in `NSpid:`, which lists them from our namespace to the innermost.
fn own_number(line: &[u8]) -> Option<u32> {
    let numbers = std::str::from_utf8(line.strip_prefix(b"NSpid:")?).ok()?;
    numbers.split_ascii_whitespace().next_back()?.parse().ok()
}

/// A thread that runs Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ThreadState {
    pub tid: Tid,
    /// The address of its `PyThreadState`.
    pub state: u64,
    /// What stands there as long as it is this thread's
    /// ([`profiler_ebpf::python::PythonThreadState::identity`]).
    pub identity: u64,
}

/// The threads of a CPython.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadStates {
    /// By tid.
    pub threads: Vec<ThreadState>,
    /// Threads with a state in each of several interpreters: which one they are in is not known, so
    /// they are not among `threads`.
    pub ambiguous: usize,
    /// States whose thread is not known, or whose memory did not hold up.
    pub unknown: usize,
    /// Whether there were more than the limits.
    pub is_cut: bool,
}

/// The threads that run Python now. The lists can change while they are read; whatever is found is
/// checked, and what is missed can be found the next time.
pub(crate) fn thread_states(
    interpreter: &Interpreter,
    memory: &impl Memory,
    tasks: &Tasks,
) -> ThreadStates {
    let offsets = &interpreter.offsets;
    let mut found = ThreadStates::default();
    let mut by_tid: HashMap<Tid, Option<ThreadState>> = HashMap::new();
    let at = |base: u64, offset: u32| memory.word(base.wrapping_add(u64::from(offset)));
    let mut interpreters = 0;
    let mut seen = 0;
    let mut next_interpreter = at(interpreter.runtime, offsets.interpreters).unwrap_or(0);
    while next_interpreter != 0 {
        let current = next_interpreter;
        interpreters += 1;
        if interpreters > MAX_INTERPRETERS {
            found.is_cut = true;
            break;
        }
        next_interpreter = at(current, offsets.interpreter.next).unwrap_or(0);
        let mut next_state = at(current, offsets.interpreter.threads).unwrap_or(0);
        while next_state != 0 {
            let state = next_state;
            seen += 1;
            if seen > tasks.max_states() {
                found.is_cut = true;
                break;
            }
            next_state = at(state, offsets.thread.next).unwrap_or(0);
            if at(state, offsets.thread.interpreter) != Some(current) {
                found.unknown += 1;
                // What does not point back is none, nor is what follows it.
                break;
            }
            let identity = offsets.thread.identity;
            let Some(owner) = at(state, identity.offset()) else { break };
            let Some(tid) = tid(identity, owner, memory, tasks) else {
                found.unknown += 1;
                continue;
            };
            let thread = ThreadState { tid, state, identity: owner };
            by_tid.entry(tid).and_modify(|other| *other = None).or_insert(Some(thread));
        }
    }
    found.ambiguous = by_tid.values().filter(|thread| thread.is_none()).count();
    found.threads = by_tid.into_values().flatten().collect();
    found.threads.sort_unstable();
    found
}

fn tid(identity: Identity, owner: u64, memory: &impl Memory, tasks: &Tasks) -> Option<Tid> {
    match identity {
        Identity::Native(_) => tasks.get(owner),
        Identity::Pthread(_) => {
            let mut tids = PTHREAD_TID.iter().filter_map(|&offset| {
                tasks.get(u64::from(memory.half(owner.wrapping_add(offset))?))
            });
            let tid = tids.next()?;
            // Two numbers that could be it: neither is believed.
            tids.all(|other| other == tid).then_some(tid)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_in_a_container_has_the_number_that_it_has_there() {
        assert_eq!(own_number(b"NSpid:\t4242\t17\t3"), Some(3));
        assert_eq!(own_number(b"NSpid:\t4242"), Some(4242));
        for other in [&b"NSpid:"[..], b"Pid:\t1", b"NSpid:\t\xff", b"NSpid:\t-1", b""] {
            assert_eq!(own_number(other), None);
        }
    }
}
