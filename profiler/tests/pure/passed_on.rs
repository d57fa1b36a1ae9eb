//! Whose time it is that a thread waits for a condition whose waiters wake each other, or wait for more
//! before they can look: those of Java's `Condition.signalAll` and of Ruby's `ConditionVariable`.
//!
//! Two kinds of events are announced on one condition. In each cycle of 14 ticks a fast one ends at tick 6
//! and 20, a slow one at tick 11.

use std::collections::BTreeMap;

use offwake_analysis::filter::Filter;
use offwake_recording::{
    Recording, Wait,
    units::{Nanos, Tgid, Tid, Timestamp},
};

use crate::{
    draw::{TICK, at, edit, live, recording},
    fixtures::{FUTEX, kernel, syscall, user},
    golden::report,
};

const PROCESS: Tgid = Tgid(7);
/// Waits for the slow event.
const WAITER: u32 = 7;
const FAST: u32 = 8;
const SLOW: u32 = 9;
/// Waits for the fast event.
const OTHER: u32 = 10;
const THIRD: u32 = 11;
const CYCLES: usize = 5;
const CYCLE: usize = 14;
const CONDITION: u64 = 0x7f00_1008;
const WAIT_PRIVATE: u64 = 128;
const WAKE_PRIVATE: u64 = 129;
/// How long a waiter looks at what it waits for.
const LOOK: Nanos = Nanos(20_000);

/// What one waiter of a cycle does: drawings are repeated.
fn cycles(first: &str, cycle: &str) -> String {
    assert_eq!((first.len(), cycle.len()), (2, CYCLE));
    format!("{first}{}", cycle.repeat(CYCLES))
}

/// Makes of threads that live as drawn one process, whose threads wait for futexes of their own in one
/// place. Who works for a tick has only looked.
fn record(waiters: &[(u32, &str)]) -> Recording {
    let length = 2 + CYCLE * CYCLES;
    let mut r = recording(length);
    for &(tid, life) in waiters {
        live(&mut r, tid, life, FAST);
    }
    for tid in [FAST, SLOW] {
        live(&mut r, tid, &"#".repeat(length), 0);
    }
    let waits = user(&mut r, 7, &["libc.so.6 pthread_cond_wait", "app await", "app main"]);
    let ends = user(&mut r, 7, &["libc.so.6 pthread_cond_signal", "app unlock", "app main"]);
    let futex = kernel(&mut r, &["schedule", "futex_do_wait", "futex_wait", "do_futex"]);
    edit(&mut r, |all| {
        for wait in all.iter_mut() {
            let address = CONDITION + u64::from(wait.tid.0) * 64;
            (wait.tgid, wait.kernel_stack, wait.user_stack) = (PROCESS, futex, waits);
            wait.syscall = syscall(FUTEX, [address, WAIT_PRIVATE, 7, 0, 0, 0]);
            let Some(wake) = &mut wait.wake else { continue };
            (wake.current.tgid, wake.user_stack) = (PROCESS, ends);
            wake.syscall = syscall(FUTEX, [address, WAKE_PRIVATE, 1, 0, 0, 0]);
            if is_slow_event(wake.at) {
                wake.current.tid = Tid(SLOW);
            }
        }
        for &(tid, _) in waiters {
            let mut own: Vec<&mut Wait> =
                all.iter_mut().filter(|wait| wait.tid == Tid(tid)).collect();
            for n in 1..own.len() {
                let came_back = own[n - 1].on;
                if own[n].off == came_back + Nanos(TICK) {
                    own[n].off = came_back + LOOK;
                }
            }
        }
    });
    r.preemptions.iter_mut().for_each(|preemption| preemption.tgid = PROCESS);
    r.thread_events.iter_mut().for_each(|event| event.tgid = PROCESS);
    r.sort();
    r
}

fn is_slow_event(at_time: Timestamp) -> bool {
    (0..CYCLES).any(|n| at_time == at(11 + n * CYCLE))
}

const WAITS_FOR_SLOW: (&str, &str) = ("##", "....#....#####");
/// It has something to do for two ticks.
const WAITS_FOR_FAST: (&str, &str) = ("##", "....###..#....");

/// Who ends the waits that end at one time wakes the thread that went to sleep first, as queues do, and each
/// wakes the next.
fn pass_on(
    recording: &mut Recording,
    late: Nanos,
    who_is_first: impl Fn(Timestamp) -> Option<u32>,
) {
    edit(recording, |all| {
        let mut queues: BTreeMap<Timestamp, Vec<(bool, Timestamp, Tid)>> = BTreeMap::new();
        for wait in all.iter().filter(|wait| [WAITER, OTHER, THIRD].contains(&wait.tid.0)) {
            let is_first = who_is_first(wait.on) == Some(wait.tid.0);
            queues.entry(wait.on).or_default().push((!is_first, wait.off, wait.tid));
        }
        queues.values_mut().for_each(|queue| queue.sort_unstable());
        for wait in all.iter_mut() {
            let queue = queues.get(&wait.on).map_or(&[][..], Vec::as_slice);
            let place = queue.iter().position(|&(_, off, tid)| (off, tid) == (wait.off, wait.tid));
            let Some(before) = place.and_then(|place| place.checked_sub(1)) else { continue };
            let Some(wake) = &mut wait.wake else { continue };
            wake.current.tid = queue[before].2;
            wake.at = wake.at + Nanos(late.0 * (before as u64 + 1));
            wait.on = wake.at + Nanos(1_000);
        }
        all.sort_by_key(|wait| wait.off);
    });
    recording.sort();
}

/// The queue's order is that in which they went to sleep.
fn by_turns(_: Timestamp) -> Option<u32> {
    None
}

fn signal_all() -> Recording {
    let (first, cycle) = WAITS_FOR_SLOW;
    let waiter = cycles(first, cycle);
    let (first, cycle) = WAITS_FOR_FAST;
    record(&[(WAITER, &waiter), (OTHER, &cycles(first, cycle))])
}

/// For how many ticks, rounded, a thread waits for each.
fn sum_blame(recording: &Recording, waiter: u32) -> BTreeMap<u32, u64> {
    let report = report(recording, &Filter::default());
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    let waits = report.waits.iter().filter(|wait| wait.tid == Tid(waiter));
    for part in waits.flat_map(|wait| &wait.blame).filter(|part| part.reason.is_none()) {
        *sums.entry(part.tid.map_or(0, |tid| tid.0)).or_default() += part.ns.0;
    }
    sums.values_mut().for_each(|ns| *ns = (*ns + TICK / 2) / TICK);
    sums.retain(|_, ticks| *ticks > 0);
    sums
}

fn cycles_of(parts: &[(u32, u64)]) -> BTreeMap<u32, u64> {
    parts.iter().map(|&(tid, ticks)| (tid, ticks * CYCLES as u64)).collect()
}

#[test]
fn who_is_woken_by_another_waiter_waits_for_whoever_woke_the_first() {
    let mut r = signal_all();
    pass_on(&mut r, Nanos(10_000), by_turns);
    assert_eq!(sum_blame(&r, WAITER), cycles_of(&[(SLOW, 9)]));
    // What it is woken for as the recording ends is not known.
    let of_other = sum_blame(&r, OTHER);
    assert!(of_other.keys().all(|tid| [FAST, SLOW].contains(tid)), "{of_other:?}");
}

#[test]
fn a_broadcast_goes_on_through_any_number_of_waiters() {
    let third = cycles("##", "....##...#....");
    let (first, cycle) = WAITS_FOR_SLOW;
    let waiter = cycles(first, cycle);
    let (first, cycle) = WAITS_FOR_FAST;
    let mut r = record(&[(WAITER, &waiter), (OTHER, &cycles(first, cycle)), (THIRD, &third)]);
    pass_on(&mut r, Nanos(5_000), by_turns);
    assert_eq!(sum_blame(&r, WAITER), cycles_of(&[(SLOW, 9)]));
}

#[test]
fn who_hands_on_always_to_the_same_thread_passes_no_broadcast_on() {
    let mut r = signal_all();
    pass_on(&mut r, Nanos(10_000), |_| Some(WAITER));
    assert_eq!(sum_blame(&r, WAITER), cycles_of(&[(FAST, 4), (SLOW, 5)]));
}

#[test]
fn who_hands_on_late_has_done_something_first() {
    let mut r = signal_all();
    pass_on(&mut r, Nanos(150_000), by_turns);
    let sums = sum_blame(&r, WAITER);
    assert!(sums.get(&SLOW).is_none_or(|&ticks| ticks <= 5 * CYCLES as u64), "{sums:?}");
}

#[test]
fn what_leaves_somebody_behind_was_no_broadcast() {
    let (first, cycle) = WAITS_FOR_SLOW;
    let waiter = cycles(first, cycle);
    let (first, cycle) = WAITS_FOR_FAST;
    let third = format!("#{}#", ".".repeat(CYCLE * CYCLES));
    let mut r = record(&[(WAITER, &waiter), (OTHER, &cycles(first, cycle)), (THIRD, &third)]);
    pass_on(&mut r, Nanos(10_000), by_turns);
    let sums = sum_blame(&r, WAITER);
    assert!(sums.get(&SLOW).is_none_or(|&ticks| ticks <= 5 * CYCLES as u64), "{sums:?}");
}

/// The functions between the one that waits and the thread's first.
const CALL: &[&str] =
    &["libruby.so +210021", "libruby.so rb_mutex_sleep", "libruby.so rb_vm_exec", "ruby main"];

/// An address has one frame, in however many stacks it is.
fn share_frames(recording: &mut Recording) {
    let table = &mut recording.stacks;
    for stack in table.stacks.values_mut() {
        for frame in &mut stack.frames {
            let first = table.frames.iter().find(|(_, other)| **other == table.frames[frame]);
            *frame = first.map_or(*frame, |(id, _)| *id);
        }
    }
}

/// Whoever broadcasts wakes both in turn. Before the first of them can look, it waits in `second_call` for
/// what the interpreter has only once; as it goes to sleep again, it lets another thread have that.
fn broadcast_in_ruby(second_call: &[&str]) -> Recording {
    let waiter = cycles("##", "....#.#..#####");
    let (first, cycle) = WAITS_FOR_FAST;
    let third = cycles("##", "......####....");
    let mut r = record(&[(WAITER, &waiter), (OTHER, &cycles(first, cycle)), (THIRD, &third)]);
    let mut below = |leaf: &[&str], call: &[&str]| user(&mut r, 7, &[leaf, call].concat());
    let condition = below(&["libc.so.6 pthread_cond_wait", "libruby.so rb_native_cond_wait"], CALL);
    let second = below(&["libc.so.6 pthread_cond_timedwait", "libruby.so +20f7ba"], second_call);
    let gives_up = below(&["libc.so.6 pthread_cond_signal", "libruby.so +20fe0e"], CALL);
    let sleep = below(&["libc.so.6 pthread_cond_timedwait", "libruby.so +20f7ba"], &["ruby main"]);
    share_frames(&mut r);
    edit(&mut r, |all| {
        let mut nth = 0;
        for wait in all.iter_mut() {
            let wake = wait.wake.as_mut().filter(|_| wait.tid != Tid(OTHER));
            match (wait.tid.0, nth % 3) {
                (WAITER, 1) => {
                    wait.user_stack = second;
                    wake.into_iter().for_each(|wake| wake.user_stack = sleep);
                }
                (THIRD, _) => {
                    wait.user_stack = sleep;
                    if let Some(wake) = wake {
                        wake.at = wake.at + Nanos(15_000);
                        (wake.current.tid, wake.user_stack) = (Tid(WAITER), gives_up);
                        wait.on = wake.at + Nanos(1_000);
                    }
                }
                _ => wait.user_stack = condition,
            }
            nth += usize::from(wait.tid == Tid(WAITER));
        }
    });
    r
}

#[test]
fn who_waits_on_its_way_back_from_a_condition_has_not_done_anything_yet() {
    let r = broadcast_in_ruby(CALL);
    assert_eq!(sum_blame(&r, WAITER), cycles_of(&[(FAST, 2), (SLOW, 7)]));
}

#[test]
fn who_waits_elsewhere_after_a_broadcast_does_something_with_it() {
    let r = broadcast_in_ruby(&["libruby.so rb_io_wait", "libruby.so rb_vm_exec", "ruby main"]);
    assert_eq!(sum_blame(&r, WAITER), cycles_of(&[(FAST, 6), (SLOW, 3)]));
}
