//! Whose time it is that a writer waits for a readers-writer lock, which a reader lets go of.

use std::collections::BTreeMap;

use offwake_analysis::filter::Filter;
use offwake_recording::{
    WakeContext,
    units::{Tgid, Tid},
};

use crate::{
    draw::{TICK, edit, live, recording},
    fixtures::{CLOCK_NANOSLEEP, FUTEX, kernel, syscall, user},
    golden::report,
};

const PROCESS: Tgid = Tgid(7);
const WRITER: u32 = 7;
const READER: u32 = 8;
const LOCK: u64 = 0x7f00_1008;
const OTHER_LOCK: u64 = 0x7f00_2008;
const WAIT_PRIVATE: u64 = 128;
const WAKE_PRIVATE: u64 = 129;

/// Where the reader sleeps, sleep by sleep.
#[derive(Clone, Copy, Debug)]
enum Place {
    Pause,
    WithLock,
}

/// The writer gets the lock at tick 8, from thread 9, and waits for it again from 12 to 20, when the reader
/// lets go of it. The reader sleeps from 2 to 10, from 12 to 15 and from 16 to 19.
fn blame(places: [Place; 3], (function, first_lock): (&str, u64)) -> BTreeMap<String, u64> {
    let mut r = recording(24);
    live(&mut r, WRITER, "####....####........####", 9);
    live(&mut r, READER, READS, 0);
    live(&mut r, 9, "########################", 0);
    let wants = user(&mut r, 7, &[&format!("libc.so.6 {function}"), "app put", "app main"]);
    let pauses = user(&mut r, 7, &["libc.so.6 nanosleep", "app pause", "app read"]);
    let has_it = user(&mut r, 7, &["libc.so.6 nanosleep", "app look_up", "app read"]);
    let futex = kernel(&mut r, &["schedule", "futex_do_wait", "futex_wait", "do_futex"]);
    let sleeps = kernel(&mut r, &["schedule", "do_nanosleep", "hrtimer_nanosleep"]);
    edit(&mut r, |waits| {
        let mut numbers: BTreeMap<Tid, usize> = BTreeMap::new();
        for wait in waits {
            wait.tgid = PROCESS;
            let number = numbers.entry(wait.tid).or_default();
            let wake = wait.wake.as_mut().expect("woken");
            wake.current.tgid = PROCESS;
            if wait.tid == Tid(WRITER) {
                let address = [first_lock, LOCK][*number];
                wait.syscall = syscall(FUTEX, [address, WAIT_PRIVATE, 2, 0, 0, 0]);
                (wait.user_stack, wait.kernel_stack) = (wants, futex);
                wake.current.tid = Tid([9, READER][*number]);
                wake.syscall = syscall(FUTEX, [address, WAKE_PRIVATE, 1, 0, 0, 0]);
            } else {
                wait.syscall = syscall(CLOCK_NANOSLEEP, [1, 0, 0, 0, 0, 0]);
                wait.kernel_stack = sleeps;
                wait.user_stack = match places[*number] {
                    Place::Pause => pauses,
                    Place::WithLock => has_it,
                };
                wake.context = WakeContext::Hrtimer;
            }
            *number += 1;
        }
    });
    r.preemptions.iter_mut().for_each(|preemption| preemption.tgid = PROCESS);
    r.thread_events.iter_mut().for_each(|event| event.tgid = PROCESS);
    r.sort();
    let report = report(&r, &Filter::default());
    let mut sums = BTreeMap::new();
    let of_writer = report.waits.iter().filter(|wait| wait.tid == Tid(WRITER));
    for part in of_writer.flat_map(|wait| &wait.blame) {
        let reason = part.reason.map_or("", |reason| reason.name());
        let who = part.tid.map_or(String::new(), |tid| tid.0.to_string());
        *sums.entry(format!("{} {reason}{who}", part.kind.name())).or_default() += part.ns.0 / TICK;
    }
    sums
}

/// A pause, then another one, and a sleep with the lock.
const READS: &str = "##........##...#...#####";
const WRITES: (&str, u64) = ("pthread_rwlock_wrlock", LOCK);

fn sums(expected: &[(&str, u64)]) -> BTreeMap<String, u64> {
    expected.iter().map(|&(what, n)| (what.to_owned(), n)).collect()
}

#[test]
fn a_reader_has_no_lock_where_it_sleeps_while_a_writer_gets_it() {
    use Place::{Pause, WithLock};
    let expected =
        sums(&[("work 9", 4), ("unattributed holder_unknown", 3), ("timer ", 3), ("work 8", 2)]);
    assert_eq!(blame([Pause, Pause, WithLock], WRITES), expected);
}

#[test]
fn a_reader_may_have_the_lock_wherever_no_writer_was_seen_to_get_it() {
    use Place::{Pause, WithLock};
    let expected = sums(&[("work 9", 4), ("timer ", 6), ("work 8", 2)]);
    assert_eq!(blame([Pause, WithLock, WithLock], WRITES), expected);
    // It was another lock that the writer got meanwhile.
    let other = ("pthread_rwlock_wrlock", OTHER_LOCK);
    assert_eq!(blame([Pause, Pause, WithLock], other), expected);
    // A mutex has one holder at a time, which is known by its releases; a reader shares the lock.
    for function in ["pthread_mutex_lock", "pthread_rwlock_rdlock"] {
        assert_eq!(blame([Pause, Pause, WithLock], (function, LOCK)), expected, "{function}");
    }
}
