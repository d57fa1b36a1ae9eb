use offwake_recording::LockKind;

use super::{
    candidates::{FUTEX_OWNER_DIED, FUTEX_WAITERS, FutexWait},
    layouts::{NamedTid, read_owner},
    threads::{SharedPage, is_call},
};
use crate::{symbols::python::memory::Memory, thread_call::ThreadCall};

/// Where the futex lies; the words before it are of whatever it is a part of.
const FUTEX: u64 = 0x7000;
const OWNER: u32 = 4_711;
const PRIVATE_WAIT: u32 = 0x80;
const PRIVATE_WAIT_BITSET: u32 = 0x89;
const SHARED_WAIT: u32 = 0;

/// Words from an address on, and nothing else.
struct Words(u64, Vec<u32>);

impl Memory for Words {
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        let bytes: Vec<u8> = self.1.iter().flat_map(|word| word.to_le_bytes()).collect();
        let begin = usize::try_from(address.checked_sub(self.0)?).ok()?;
        into.copy_from_slice(bytes.get(begin..begin.checked_add(into.len())?)?);
        Some(())
    }
}

fn mutex(op: u32, words: [u32; 5]) -> Option<u32> {
    owner(LockKind::Mutex, FutexWait::new(FUTEX, op, 2), &Words(FUTEX, words.to_vec()))
}

fn owner(kind: LockKind, futex: FutexWait, memory: &Words) -> Option<u32> {
    assert!(futex.kinds().any(|candidate| candidate == kind), "{kind:?} of {futex:?}");
    read_owner(kind, &futex, memory).map(|NamedTid(tid)| tid)
}

#[test]
fn a_mutex_names_its_owner() {
    let words = [2, 0, OWNER, 1, 0];
    assert_eq!(mutex(PRIVATE_WAIT, words), Some(OWNER));
    assert_eq!(mutex(PRIVATE_WAIT_BITSET, words), Some(OWNER), "with a timeout");
    for (bits, count) in [(1, 3), (2, 0), (3, 0), (256, 0), (512, 0)] {
        assert_eq!(mutex(PRIVATE_WAIT, [2, count, OWNER, 2, bits]), Some(OWNER), "{bits}");
    }
    assert_eq!(mutex(SHARED_WAIT, [2, 0, OWNER, 1, 128]), Some(OWNER));
}

#[test]
fn a_mutex_that_is_none_or_was_unlocked_names_nobody() {
    for (words, why) in [
        ([0, 0, 0, 0, 0], "it is free"),
        ([1, 0, OWNER, 1, 0], "nobody waits any more"),
        ([2, 0, 0, 1, 0], "its owner has not written its number yet"),
        ([2, 0, OWNER, 0, 0], "nobody uses it"),
        ([2, 1, OWNER, 1, 0], "its type has no count"),
        ([2, 0, OWNER, 1, 1], "it is recursive, and locked no time"),
        ([2, 0, OWNER, 1, 0x4_0000], "there is no such type"),
        ([2, 0, OWNER, 1, 16], "a robust one has its owner in the futex"),
        ([2, 0, OWNER, 1, 32], "the kernel keeps the queue of that one"),
        ([2, 0, OWNER, 1, 64], "a ceiling would be in the futex"),
        ([2, 0, OWNER, 1, 128], "processes share it, and the waiter said that they do not"),
    ] {
        assert_eq!(mutex(PRIVATE_WAIT, words), None, "{why}");
    }
    assert_eq!(mutex(SHARED_WAIT, [2, 0, OWNER, 1, 0]), None, "the other way round");
    let torn = Words(FUTEX, vec![2, 0, OWNER]);
    assert_eq!(owner(LockKind::Mutex, FutexWait::new(FUTEX, PRIVATE_WAIT, 2), &torn), None);
}

#[test]
fn robust_mutexes_and_those_of_the_kernel_have_their_owner_in_the_futex() {
    let held = OWNER | FUTEX_WAITERS;
    let robust = |lock: u32, owner_word: u32, bits: u32| {
        let words = Words(FUTEX, vec![lock, 1, owner_word, 1, bits]);
        owner(LockKind::RobustMutex, FutexWait::new(FUTEX, SHARED_WAIT, held), &words)
    };
    assert_eq!(robust(held, OWNER, 16), Some(OWNER));
    assert_eq!(robust(held, OWNER, 0), None, "it is not robust");
    assert_eq!(robust(held, OWNER + 1, 16), None, "the two owners differ");
    assert_eq!(robust(held | FUTEX_OWNER_DIED, OWNER, 16), None, "the owner died");
    assert_eq!(robust(FUTEX_WAITERS, 0, 16), None, "it is being handed over");
    for (op, word, expected) in [
        (0x86, held, Some(OWNER)),
        (0x8d, held, Some(OWNER)),
        (6, held, Some(OWNER)),
        (0x86, 0, None),
        (0x86, held | FUTEX_OWNER_DIED, None),
    ] {
        let words = Words(FUTEX, vec![word]);
        assert_eq!(owner(LockKind::PiLock, FutexWait::new(FUTEX, op, 0), &words), expected);
    }
}

/// A readers-writer lock at `base`.
fn rwlock(base: u64, words: [u32; 8], op: u32) -> Option<u32> {
    let futex = FutexWait::new(FUTEX, op, 3);
    // Whatever lies around it.
    let memory = [&[7, 7, 7, 7][..], &words, &[7, 7, 7, 7]].concat();
    owner(LockKind::Rwlock, futex, &Words(base - 16, memory))
}

#[test]
fn a_readers_writer_lock_names_its_writer_whichever_futex_is_waited_on() {
    const HELD: u32 = 3;
    // Of a reader, and of another writer.
    let op = PRIVATE_WAIT_BITSET;
    assert_eq!(rwlock(FUTEX - 8, [HELD, 0, 3, 1, 0, 0, OWNER, 0], op), Some(OWNER));
    assert_eq!(rwlock(FUTEX - 8, [HELD | 8, 1, 3, 3, 0, 0, OWNER, 0], op), Some(OWNER));
    assert_eq!(rwlock(FUTEX - 12, [HELD, 1, 1, 3, 0, 0, OWNER, 0], op), Some(OWNER));
    assert_eq!(rwlock(FUTEX - 8, [HELD, 0, 3, 1, 0, 0, OWNER, 1], 9), Some(OWNER), "shared");
    for (words, why) in [
        ([0, 0, 0, 0, 0, 0, 0, 0], "it is free"),
        ([16, 0, 0, 0, 0, 0, 0, 0], "readers have it"),
        ([2 | 16, 0, 2, 1, 0, 0, 0, 0], "a writer waits for readers"),
        ([HELD, 0, 3, 1, 0, 0, 0, 0], "the writer has not written its number yet"),
        ([1, 0, 3, 0, 0, 0, OWNER, 0], "the writer is done"),
        ([HELD, 0, 1, 1, 0, 0, OWNER, 0], "nobody waits there any more"),
        ([HELD, 0, 3, 9, 0, 0, OWNER, 0], "the other futex is none"),
        ([HELD, 0, 3, 1, 5, 0, OWNER, 0], "that is no readers-writer lock"),
        ([HELD, 0, 3, 1, 0, 0, OWNER, 1], "processes share it, and the waiter said they do not"),
    ] {
        assert_eq!(rwlock(FUTEX - 8, words, op), None, "{why}");
    }
}

#[test]
fn the_end_of_a_thread_is_waited_for_by_its_number() {
    let futex = FutexWait::new(FUTEX, 0x109, OWNER);
    let words = |word| Words(FUTEX, vec![word]);
    assert_eq!(owner(LockKind::ThreadEnd, futex, &words(OWNER)), Some(OWNER));
    assert_eq!(owner(LockKind::ThreadEnd, futex, &words(0)), None, "it has ended");
    assert_eq!(owner(LockKind::ThreadEnd, futex, &words(OWNER + 1)), None);
}

#[test]
fn what_no_lock_waits_for_is_not_even_read() {
    for (op, value, why) in [
        (PRIVATE_WAIT_BITSET, 0, "a condition variable, a semaphore"),
        (PRIVATE_WAIT, 1, "locks of other libraries"),
        (PRIVATE_WAIT_BITSET, OWNER, "any number"),
        (0x8b, 2, "FUTEX_WAIT_REQUEUE_PI: a condition variable"),
        (0x81, 2, "FUTEX_WAKE"),
    ] {
        assert_eq!(FutexWait::new(FUTEX, op, value).kinds().count(), 0, "{why}");
    }
}

#[test]
fn a_call_is_told_from_another_by_its_first_arguments() {
    let futex = FutexWait::new(0x7f50_1c34_2010, PRIVATE_WAIT, 2);
    let number = libc::SYS_futex;
    let is_futex = |text: &str| ThreadCall::parse(text).is_some_and(|call| is_call(call, &futex));
    let call = |text: &str| is_futex(&format!("{number} {text}"));
    assert!(call("0x7f501c342010 0x80 0x2 0x0 0x0 0x0 0x7ffd0 0x7f501"));
    assert!(call("0x7f501c342010 0x80 0xffffffff00000002 0x0 0x0 0x0 0x7ffd0 0x7f501"));
    for other in [
        "0x7f501c342014 0x80 0x2 0x0 0x0 0x0 0x7ffd0 0x7f501",
        "0x7f501c342010 0x89 0x2 0x0 0x0 0x0 0x7ffd0 0x7f501",
        "0x7f501c342010 0x80 0x1 0x0 0x0 0x0 0x7ffd0 0x7f501",
        "0x7f501c342010",
    ] {
        assert!(!call(other), "{other}");
    }
    for other in ["running", "", "-1 0x7ffd0 0x7f501", "1 0x7f501c342010 0x80 0x2 0x0 0x0 0x0"] {
        assert!(!is_futex(other), "{other}");
    }
}

#[test]
fn shared_memory_is_the_same_where_file_and_offset_are() {
    let here = "\
7f0000001000-7f0000003000 rw-s 00004000 00:01 1027       /dev/zero (deleted)
7f0000008000-7f0000009000 rw-p 00000000 fe:00 12         /usr/lib/libc.so.6
";
    let place = SharedPage::find(here, 0x7f00_0000_2010).expect("it is shared");
    assert_eq!(SharedPage::find(here, 0x7f00_0000_8010), None, "a private mapping");
    assert_eq!(SharedPage::find(here, 0x7f00_0000_3000), None, "nothing is there");
    for (there, is_same) in [
        ("1000-9000 rw-s 00000000 00:01 1027 /dev/zero (deleted)", true),
        ("1000-2000 rw-s 00005000 00:01 1027", true),
        ("1000-2000 rw-s 00004000 00:01 1027", false),
        ("1000-9000 rw-s 00006000 00:01 1027", false),
        ("1000-9000 rw-s 00000000 00:01 1028", false),
        ("1000-9000 rw-s 00000000 00:02 1027", false),
        ("1000-9000 rw-p 00000000 00:01 1027", false),
        ("nonsense", false),
    ] {
        assert_eq!(place.is_in(there), is_same, "{there}");
    }
}
