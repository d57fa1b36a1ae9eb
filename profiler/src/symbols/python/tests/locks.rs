//! Locks: against interpreters that run, and tables of handlers by hand.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use offwake_recording::units::{Tgid, Tid};

use super::{
    super::{
        locks::{LockReader, handler_depth},
        memory::{Memory, ProcessMemory},
        threads::{Tasks, thread_states},
    },
    live,
};
use crate::thread_call::ThreadCall;

const LOCKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/symbols/python/tests/locks.py");

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Who waits for a lock of whom, by the names of the threads.
fn find_owners(tgid: Tgid, roles: &BTreeMap<Tid, String>) -> BTreeMap<String, Option<String>> {
    let memory = ProcessMemory::open(tgid).unwrap();
    let interpreter = live::find_interpreter(tgid, &memory);
    let states = thread_states(&interpreter, &memory, &Tasks::read(tgid)).threads;
    let reader = LockReader::new(&interpreter, &memory);
    let role = |tid: Tid| roles.get(&tid).cloned().unwrap_or_default();
    let mut found = BTreeMap::new();
    for state in &states {
        let Some(call) = ThreadCall::read(tgid, state.tid) else { continue };
        if i64::from(call.number) != libc::SYS_futex {
            continue;
        }
        let [futex, ..] = call.arguments;
        let Some(lock) = reader.awaited_lock(state, futex) else { continue };
        let owner = match reader.has_owner(lock) {
            true => {
                let owner = reader.owner(lock);
                states.iter().find(|other| owner.is_some() && reader.pthread(other) == owner)
            }
            false => {
                let mut holders =
                    states.iter().filter(|other| reader.held_locks(other).contains(&lock));
                let first = holders.next();
                assert!(holders.next().is_none(), "{} waits for two", role(state.tid));
                first
            }
        };
        assert_eq!(memory.half(futex), Some(0));
        found.insert(role(state.tid), owner.map(|owner| role(owner.tid)));
    }
    found
}

#[test]
fn who_has_a_lock_is_who_is_in_its_block_or_whom_it_names() {
    let expected = [
        ("left", Some("right")),
        ("right", Some("left")),
        ("waiter", Some("holder")),
        ("reader", Some("owner")),
        ("selfish", Some("selfish")),
        // Nobody is in a block of what these wait for.
        ("idle", None),
        ("unlucky", None),
        ("signalled", None),
        ("behind", None),
    ];
    let expected: BTreeMap<String, Option<String>> = (expected.into_iter())
        .map(|(waiter, owner)| (waiter.to_owned(), owner.map(str::to_owned)))
        .collect();
    for python in live::pythons() {
        let mut command = Command::new(&python);
        command.arg(LOCKS).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = Program(command.spawn().unwrap());
        let output = BufReader::new(program.0.stdout.take().unwrap());
        let lines = output.lines().map(Result::unwrap).take_while(|line| line != "end");
        let roles: BTreeMap<Tid, String> = lines
            .map(|line| {
                let (role, tid) = line.split_once(' ').unwrap();
                (Tid(tid.parse().unwrap()), role.to_owned())
            })
            .collect();
        assert_eq!(roles.len(), 14, "{python:?}: {roles:?}");
        let mut found = BTreeMap::new();
        // They say what they are going to do just before they do it.
        for _ in 0..100 {
            found = find_owners(Tgid(program.0.id()), &roles);
            if found == expected {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(found, expected, "{python:?}");
    }
}

/// The table of two blocks inside of each other, as CPython 3.11 makes it: start, length, handler, and
/// the depth with a flag behind it.
#[test]
fn a_handler_tells_how_many_values_are_live() {
    let table = [3 | 0x80, 2, 44, 3, 6 | 0x80, 2, 21, 5, 9 | 0x80, 12, 44, 3];
    for (unit, depth) in [(0, 0), (2, 0), (3, 1), (4, 1), (5, 0), (6, 2), (7, 2), (8, 0), (20, 1)] {
        assert_eq!(handler_depth(&table, unit), Some(depth), "{unit}");
    }
    // Numbers of several bytes: 130, 65, then the handler and its depth.
    let long = [0x80 | 0x40 | 2, 2, 0x40 | 1, 1, 0, 6];
    assert_eq!(handler_depth(&long, 129), Some(0));
    assert_eq!(handler_depth(&long, 194), Some(3));
    assert_eq!(handler_depth(&long, 195), Some(0));
    assert_eq!(handler_depth(&[], 7), Some(0));
    assert_eq!(handler_depth(&[3 | 0x80, 2], 9), None, "it is cut");
    assert_eq!(handler_depth(&[0x40; 64], 9), None, "no number is so long");
}
