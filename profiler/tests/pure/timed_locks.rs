//! Whom a thread of Java's waits for that tries to get a lock for a while at a time.

use std::collections::BTreeMap;

use offwake_analysis::filter::Filter;
use offwake_recording::{
    Recording, WakeContext,
    units::{Nanos, Tgid, Tid},
};

use crate::{
    draw::{TICK, at, edit, live, recording},
    fixtures::{FUTEX, kernel, syscall, user},
    golden::report,
};

const PROCESS: Tgid = Tgid(7);
const WAITER: u32 = 7;
const FIRST: u32 = 8;
const SECOND: u32 = 9;

/// The waiter tries three times in a row, and then twice. Its times are up at 5, 9 and 20; [`SECOND`] lets it
/// have the lock at 14, and [`FIRST`] at 21.
const WAITS: &str = "#....#...#....###...#.#####";
/// Has the lock until 11, and waits for it from 12 to 16.
const HAS_IT: &str = "############....###########";
/// Sleeps until 6, and waits for the lock from 7 to 11, and from 18 to 22.
const SLEEPS: &str = "#.....#....#######....#####";

/// What [`SECOND`] does is given, and in which function it waits.
fn record(second: &str, second_waits_in: &str) -> Recording {
    let mut r = recording(WAITS.len());
    live(&mut r, WAITER, WAITS, SECOND);
    live(&mut r, FIRST, HAS_IT, WAITER);
    live(&mut r, SECOND, second, FIRST);
    let park = |r: &mut Recording, method: &str| {
        user(r, 7, &["libjvm.so Unsafe_Park", &format!("app {method}"), "app run"])
    };
    let (tries, locks) = (park(&mut r, "try_lock"), park(&mut r, "lock"));
    let second_waits = match second_waits_in {
        "lock" => locks,
        function => park(&mut r, function),
    };
    let unlocks = user(&mut r, 7, &["libjvm.so Unsafe_Unpark", "app unlock", "app run"]);
    let sleeps = user(&mut r, 7, &["libjvm.so JavaThread::sleep(long)", "app run"]);
    let futex = kernel(&mut r, &["schedule", "futex_do_wait", "futex_wait", "do_futex"]);
    edit(&mut r, |all| {
        for wait in all.iter_mut() {
            (wait.tgid, wait.kernel_stack) = (PROCESS, futex);
            wait.user_stack = match wait.tid {
                Tid(WAITER) => tries,
                Tid(SECOND) => second_waits,
                _ => locks,
            };
            wait.syscall = syscall(FUTEX, [0x1000 * u64::from(wait.tid.0), 128, 0, 0, 0, 0]);
            let woken_at = wait.on;
            let Some(wake) = &mut wait.wake else { continue };
            (wake.current.tgid, wake.user_stack) = (PROCESS, unlocks);
            let is_timer = match wait.tid {
                Tid(WAITER) => [at(5), at(9), at(20)].contains(&woken_at),
                Tid(SECOND) => woken_at == at(6),
                _ => false,
            };
            if is_timer {
                wake.context = WakeContext::Hrtimer;
                if wait.tid == Tid(SECOND) {
                    wait.user_stack = sleeps;
                }
            } else if wait.tid == Tid(WAITER) && woken_at > at(20) {
                wake.current.tid = Tid(FIRST);
            }
        }
        let mut before = at(0);
        for wait in all.iter_mut().filter(|wait| wait.tid == Tid(WAITER)) {
            // It tries again at once.
            if [at(5), at(9), at(20)].contains(&before) {
                wait.off = before + Nanos(20_000);
            }
            before = wait.on;
        }
    });
    r.preemptions.iter_mut().for_each(|preemption| preemption.tgid = PROCESS);
    r.thread_events.iter_mut().for_each(|event| event.tgid = PROCESS);
    r.sort();
    r
}

/// For how many ticks, rounded, the waiter waited for whose work, and for whose sleep, the thread's number
/// then being negative.
fn blamed(recording: &Recording) -> BTreeMap<i64, u64> {
    let report = report(recording, &Filter::default());
    let mut sums: BTreeMap<i64, u64> = BTreeMap::new();
    let own = report.waits.iter().filter(|wait| wait.tid == Tid(WAITER));
    for part in own.flat_map(|wait| &wait.blame) {
        let last = part.chain.last().map_or(0, |hop| i64::from(hop.thread.tid.0));
        let sign = if part.kind.name() == "work" { 1 } else { -1 };
        *sums.entry(sign * last).or_default() += part.ns.0;
    }
    sums.values_mut().for_each(|ns| *ns = (*ns + TICK / 2) / TICK);
    sums
}

const A: i64 = FIRST as i64;
const B: i64 = SECOND as i64;

#[test]
fn who_got_the_lock_later_is_not_waited_for_before() {
    // From 1 to 11, and from 17 to 21; and from 11 to 14.
    assert_eq!(blamed(&record(SLEEPS, "lock")), [(A, 15), (B, 3)].into());
}

#[test]
fn who_waits_for_an_answer_itself_is_waited_for_all_along() {
    // What the second does is an answer, and the first one works for it.
    let asked = [(-B, 5), (A, 9), (B, 4)].into();
    assert_eq!(blamed(&record(SLEEPS, "get")), asked);
}

#[test]
fn who_waits_for_something_else_with_the_lock_held_has_it_all_along() {
    // It begins to wait while the waiter stands in line already, and comes first.
    let within = "#.....####.#######....#####";
    assert_eq!(blamed(&record(within, "lock")), [(-B, 5), (A, 6), (B, 7)].into());
}
