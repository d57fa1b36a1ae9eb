//! Lists of threads made by hand.

use super::{
    super::{
        own_storage,
        threads::{Tasks, ThreadState, thread_states},
    },
    fake::{FakeMemory, RUNTIME, interpreter},
};
use offwake_recording::units::Tid;

const INTERPRETER: u64 = 0x20_0000;
const STATE: u64 = 0x30_0000;

fn tasks() -> Tasks {
    // In a container: 1 to 9 there are 101 to 109 here.
    (1..10).map(|own| (own, Tid(100 + own))).collect()
}

/// Interpreters of 3.11, each with the threads of these numbers.
fn memory(interpreters: &[&[u64]]) -> FakeMemory {
    let mut memory = FakeMemory::default();
    memory.write_word(RUNTIME + 40, if interpreters.is_empty() { 0 } else { INTERPRETER });
    let mut state = STATE;
    for (index, threads) in (0..).zip(interpreters) {
        let at = INTERPRETER + index * 0x1000;
        let is_last = index as usize + 1 == interpreters.len();
        memory.write_word(at, if is_last { 0 } else { at + 0x1000 });
        memory.write_word(at + 16, if threads.is_empty() { 0 } else { state });
        for (position, &thread) in threads.iter().enumerate() {
            let next = state + 0x1000;
            memory.write_word(state + 8, if position + 1 == threads.len() { 0 } else { next });
            memory.write_word(state + 16, at);
            memory.write_word(state + 160, thread);
            state = next;
        }
    }
    memory
}

fn thread(tid: u32, state: u64, identity: u64) -> ThreadState {
    ThreadState { tid: Tid(tid), state, identity }
}

#[test]
fn the_threads_of_all_interpreters_are_found() {
    let found = thread_states(&interpreter(11), &memory(&[&[2, 1], &[], &[3]]), &tasks());
    let expected =
        [thread(101, STATE + 0x1000, 1), thread(102, STATE, 2), thread(103, STATE + 0x2000, 3)];
    assert_eq!(found.threads, expected);
    assert_eq!((found.ambiguous, found.unknown, found.is_cut), (0, 0, false));
}

#[test]
fn a_thread_with_two_states_has_none() {
    let found = thread_states(&interpreter(11), &memory(&[&[1, 2], &[2], &[2]]), &tasks());
    assert_eq!(found.threads, [thread(101, STATE, 1)]);
    assert_eq!(found.ambiguous, 1);
}

#[test]
fn a_state_of_an_unknown_thread_is_left_out() {
    let found = thread_states(&interpreter(11), &memory(&[&[1, 77, 1 << 40, 2]]), &tasks());
    assert_eq!(found.threads.len(), 2);
    assert_eq!(found.unknown, 2);
}

#[test]
fn what_does_not_point_back_to_its_interpreter_is_no_state() {
    let mut memory = memory(&[&[1, 2, 3]]);
    memory.write_word(STATE + 0x1000 + 16, INTERPRETER + 8);
    let found = thread_states(&interpreter(11), &memory, &tasks());
    assert_eq!((found.threads.len(), found.unknown), (1, 1));
}

#[test]
fn lists_that_go_round_come_to_an_end() {
    let mut threads = memory(&[&[1, 2]]);
    threads.write_word(STATE + 0x1000 + 8, STATE);
    assert!(thread_states(&interpreter(11), &threads, &tasks()).is_cut);
    let mut interpreters = memory(&[&[1], &[2]]);
    interpreters.write_word(INTERPRETER + 0x1000, INTERPRETER);
    assert!(thread_states(&interpreter(11), &interpreters, &tasks()).is_cut);
}

/// A thread of 3.9, of which `at` what `pthread_self()` gives holds a number.
fn with_pthread(numbers: &[(u64, u32)]) -> FakeMemory {
    const SELF: u64 = 0x40_0000;
    let mut memory = FakeMemory::default();
    memory.write_word(RUNTIME + 32, INTERPRETER);
    memory.write_word(INTERPRETER, 0);
    memory.write_word(INTERPRETER + 8, STATE);
    memory.write_word(STATE + 8, 0);
    memory.write_word(STATE + 16, INTERPRETER);
    memory.write_word(STATE + 176, SELF);
    for &(at, number) in numbers {
        memory.write(SELF + at, &number.to_le_bytes());
    }
    memory
}

#[test]
fn before_3_11_the_c_library_says_which_thread_it_is() {
    let found = |numbers: &[(u64, u32)]| {
        let found = thread_states(&interpreter(9), &with_pthread(numbers), &tasks());
        found.threads.first().map(|thread| thread.tid)
    };
    assert_eq!(found(&[(0x2d0, 4)]), Some(Tid(104)), "glibc");
    assert_eq!(found(&[(0x30, 5)]), Some(Tid(105)), "musl");
    assert_eq!(found(&[(0x2d0, 4), (0x30, 0xdead)]), Some(Tid(104)));
    assert_eq!(found(&[(0x2d0, 4), (0x30, 5)]), None, "either could be it");
    assert_eq!(found(&[(0x2d0, 77)]), None, "none of the process's");
    assert_eq!(found(&[]), None);
}

/// A thread of 3.11 whose storage is at `storage`, with the pointer to its state in these places.
fn with_storage(memory: &mut FakeMemory, number: u64, places: &[u64]) -> ThreadState {
    let (state, storage) = (STATE + number * 0x1000, 0x50_0000 + number * 0x1000);
    memory.write(storage, &[0; 0x900]);
    memory.write_word(storage, storage);
    memory.write_word(state + 152, storage);
    memory.write_word(state + 160, number);
    for place in places {
        memory.write_word(storage + place, state);
    }
    thread(100 + number as u32, state, number)
}

#[test]
fn where_threads_keep_the_pointer_to_their_state_is_the_same_in_all_of_them() {
    let mut memory = FakeMemory::default();
    let found = |memory: &FakeMemory, threads: &[ThreadState]| {
        own_storage::find(&interpreter(11), memory, threads)
            .map(|found| (found.state_pointer, found.thread_pointer))
    };
    let one = with_storage(&mut memory, 1, &[0x200, 0x318]);
    let two = with_storage(&mut memory, 2, &[0x318, 0x600]);
    assert_eq!(found(&memory, &[one, two]), Some((0x318, 152)));
    // Nothing in common, no pointer at all, no thread.
    let three = with_storage(&mut memory, 3, &[0x328]);
    assert_eq!(found(&memory, &[one, two, three]), None);
    let four = with_storage(&mut memory, 4, &[]);
    assert_eq!(found(&memory, &[four]), None);
    assert_eq!(found(&memory, &[]), None);
    // What does not point to itself is no thread's storage.
    memory.write_word(0x50_0000 + 0x1000, 7);
    assert_eq!(found(&memory, &[one]), None);
}
