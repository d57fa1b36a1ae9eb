//! Whose time it is that a thread waits for a condition that is broadcast for others, too.

use std::collections::BTreeMap;

use offwake_analysis::{blame::Reason, filter::Filter};
use offwake_recording::{
    Recording, Wait,
    units::{Nanos, Tgid, Tid, Timestamp},
};

use crate::{
    draw::{TICK, at, edit, live, recording, wake_by},
    fixtures::{FUTEX, kernel, syscall, user},
    golden::report,
};

const PROCESS: Tgid = Tgid(7);
const WAITER: u32 = 7;
/// Ends the first two waits.
const FAST: u32 = 8;
/// Ends the third.
const SLOW: u32 = 9;
/// Another thread, whose wait the waiter may end.
const OTHER: u32 = 10;
const CONDITION: u64 = 0x7f00_1008;
const LOCK: u64 = 0x7f00_2008;
const WAIT_PRIVATE: u64 = 128;
const WAKE_PRIVATE: u64 = 129;
const LOCKED: u64 = 2;

/// What [`OTHER`] does with the waiter, which ends its second wait just then.
#[derive(Clone, Copy)]
enum Other {
    /// It has nothing to do with the waiter.
    Stranger,
    /// It is woken by the waiter, from this futex with this value.
    Woken(u64, u64),
    /// It is woken by [`FAST`], and wakes the waiter.
    Wakes,
    /// [`FAST`] itself waits for the condition, in place of the other thread.
    WaitsToo,
}

/// What makes a difference.
#[derive(Clone, Copy)]
struct Case {
    /// How many threads may be woken by the call that ends a wait.
    woken: u64,
    /// The CPU time between two waits.
    looks_for: Nanos,
    other: Other,
    /// A function of who ends the waits.
    ended_in: &'static str,
    /// A function of who waits.
    waits_in: &'static str,
}

const BROADCAST: Case = Case {
    woken: i32::MAX as u64,
    looks_for: Nanos(20_000),
    other: Other::Stranger,
    ended_in: "pthread_cond_broadcast",
    waits_in: "pthread_cond_wait",
};

/// What the waiter does: it sleeps from tick 2 to 6, 7 to 11 and 12 to 16.
const WHOLE_WAIT: &str = "##....#....#....####";
/// Three waits in two pieces each, from tick 2, 16 and 30 on, and one that goes on as the recording ends.
const CUT_OFF: &str = "##....#....#####....#....#####....#....#####....#....";

fn record(case: Case) -> Recording {
    record_waiter(case, WHOLE_WAIT, (&[1, 2], &[2]))
}

/// The waits before which the waiter has only looked, and those that [`SLOW`] ends, are named by their
/// numbers.
fn record_waiter(case: Case, drawing: &str, (looked, by_slow): (&[usize], &[usize])) -> Recording {
    let mut r = recording(drawing.len());
    live(&mut r, WAITER, drawing, FAST);
    let fast = match case.other {
        Other::WaitsToo => "#################.##",
        Other::Stranger | Other::Woken(..) | Other::Wakes => "####################",
    };
    live(&mut r, FAST, fast, SLOW);
    live(&mut r, SLOW, "####################", 0);
    live(&mut r, OTHER, "#......#############", WAITER);
    let waits = user(&mut r, 7, &[&format!("libc.so.6 {}", case.waits_in), "app get", "app main"]);
    let ends = user(&mut r, 7, &[&format!("libc.so.6 {}", case.ended_in), "app put", "app main"]);
    let futex = kernel(&mut r, &["schedule", "futex_do_wait", "futex_wait", "do_futex"]);
    edit(&mut r, |all| {
        for wait in all.iter_mut() {
            wait.tgid = PROCESS;
            wait.kernel_stack = futex;
            wait.syscall = syscall(FUTEX, [CONDITION, WAIT_PRIVATE, 7, 0, 0, 0]);
            if wait.tid == Tid(WAITER) {
                wait.user_stack = waits;
            }
            let Some(wake) = &mut wait.wake else { continue };
            wake.current.tgid = PROCESS;
            wake.syscall = syscall(FUTEX, [CONDITION, WAKE_PRIVATE, case.woken, 0, 0, 0]);
            if wait.tid == Tid(WAITER) {
                wake.user_stack = ends;
            }
        }
        let mut own: Vec<&mut Wait> =
            all.iter_mut().filter(|wait| wait.tid == Tid(WAITER)).collect();
        for &n in looked {
            own[n].off = own[n - 1].on + case.looks_for;
        }
        for &n in by_slow {
            if let Some(wake) = &mut own[n].wake {
                wake.current.tid = Tid(SLOW);
            }
        }
        if matches!(case.other, Other::Wakes)
            && let Some(wake) = &mut own[1].wake
        {
            wake.current.tid = Tid(OTHER);
        }
        let other = all.iter_mut().find(|wait| wait.tid == Tid(OTHER)).expect("one");
        let (woken, waker, address, value) = match case.other {
            Other::Stranger | Other::WaitsToo => (at(11), SLOW, CONDITION, 7),
            Other::Woken(address, value) => (at(11) + Nanos(10_000), WAITER, address, value),
            Other::Wakes => (at(10) + Nanos(TICK - 20_000), FAST, CONDITION, 7),
        };
        let mut wake = wake_by(waker, woken);
        wake.current.tgid = PROCESS;
        wake.syscall = syscall(FUTEX, [address, WAKE_PRIVATE, 1, 0, 0, 0]);
        wake.user_stack = ends;
        other.on = woken;
        other.syscall = syscall(FUTEX, [address, WAIT_PRIVATE, value, 0, 0, 0]);
        (other.user_stack, other.wake) = (waits, Some(wake));
    });
    r.preemptions.iter_mut().for_each(|preemption| preemption.tgid = PROCESS);
    r.thread_events.iter_mut().for_each(|event| event.tgid = PROCESS);
    r.sort();
    r
}

/// For how many ticks, rounded, the waiter waits for each thread.
fn blamed(case: Case) -> BTreeMap<u32, u64> {
    sum_blame(&record(case))
}

fn sum_blame(recording: &Recording) -> BTreeMap<u32, u64> {
    let report = report(recording, &Filter::default());
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    let waits = report.waits.iter().filter(|wait| wait.tid == Tid(WAITER));
    for part in waits.flat_map(|wait| &wait.blame).filter(|part| part.reason.is_none()) {
        let who = part.tid.expect("somebody worked");
        *sums.entry(who.0).or_default() += part.ns.0;
    }
    sums.values_mut().for_each(|ns| *ns = (*ns + TICK / 2) / TICK);
    sums
}

/// For how many ticks, rounded, it is not known whom the waiter waits for.
fn count_still_blocked(recording: &Recording) -> u64 {
    let report = report(recording, &Filter::default());
    let waits = report.waits.iter().filter(|wait| wait.tid == Tid(WAITER));
    let parts = waits.flat_map(|wait| &wait.blame);
    let open = parts.filter(|part| part.reason == Some(Reason::StillBlocked));
    (open.map(|part| part.ns.0).sum::<u64>() + TICK / 2) / TICK
}

fn all_for_slow() -> BTreeMap<u32, u64> {
    [(SLOW, 14)].into()
}

/// A wait is longer by what its thread is faster in looking: each is five ticks but the first.
fn each_for_its_waker() -> BTreeMap<u32, u64> {
    [(FAST, 9), (SLOW, 5)].into()
}

#[test]
fn who_only_looks_after_a_broadcast_waits_for_whoever_ends_the_last_piece() {
    assert_eq!(blamed(BROADCAST), all_for_slow());
    // Python wakes one after the other.
    let python = Case { woken: 1, ended_in: "Condition.notify_all", ..BROADCAST };
    assert_eq!(blamed(python), all_for_slow());
    // Whoever waits for the condition's lock gets it from the one that has looked.
    assert_eq!(blamed(Case { other: Other::Woken(LOCK, LOCKED), ..BROADCAST }), all_for_slow());
}

#[test]
fn who_sleeps_again_as_the_recording_ends_waits_for_nobody_that_is_known() {
    let record = || record_waiter(BROADCAST, CUT_OFF, (&[1, 3, 5, 7], &[1, 3, 5]));
    let r = record();
    // Three times nine ticks for the slow one; the four that a broadcast ended, and the five that follow.
    assert_eq!(sum_blame(&r), [(SLOW, 27)].into());
    assert_eq!(count_still_blocked(&r), 9);
    // Who has seldom or never got what it waits for may only ever look.
    for (since, slow) in [(43, None), (28, Some((SLOW, 9)))] {
        let mut seldom = record();
        edit(&mut seldom, |waits| {
            waits.retain(|wait| wait.tid != Tid(WAITER) || wait.off > at(since));
        });
        let expected = [(FAST, 4)].into_iter().chain(slow).collect();
        assert_eq!(sum_blame(&seldom), expected);
        assert_eq!(count_still_blocked(&seldom), 5);
    }
}

#[test]
fn who_is_woken_alone_was_meant() {
    assert_eq!(blamed(Case { woken: 1, ..BROADCAST }), each_for_its_waker());
}

#[test]
fn who_does_anything_after_a_broadcast_has_got_what_it_waited_for() {
    let works = Case { looks_for: Nanos(TICK), ..BROADCAST };
    assert_eq!(blamed(works), [(FAST, 8), (SLOW, 4)].into());
    let wakes = Case { other: Other::Woken(CONDITION, 7), ..BROADCAST };
    assert_eq!(blamed(wakes), each_for_its_waker());
}

#[test]
fn who_never_does_more_than_look_waits_for_each() {
    let mut r = record(BROADCAST);
    // Its last wait is over, and it looks as the window closes.
    edit(&mut r, |waits| {
        let last = waits.iter_mut().rfind(|wait| wait.tid == Tid(WAITER)).expect("three");
        last.on = at(20) + Nanos(0);
        if let Some(wake) = &mut last.wake {
            wake.at = at(20);
        }
    });
    r.meta.window.end = at(20) + Nanos(20_000);
    let sums = sum_blame(&r);
    assert_eq!(sums.get(&FAST), Some(&9), "{sums:?}");
}

#[test]
fn who_once_takes_a_little_longer_waits_for_each() {
    // The third wait of four is the slow one's.
    let worked_for = |time: u64| {
        let mut r = record_waiter(BROADCAST, "##....#....#....#....###", (&[1, 2], &[2]));
        edit(&mut r, |all| {
            let mut own: Vec<&mut Wait> =
                all.iter_mut().filter(|wait| wait.tid == Tid(WAITER)).collect();
            own[3].off = own[2].on + Nanos(time);
        });
        sum_blame(&r)
    };
    assert_eq!(worked_for(300_000), [(FAST, 14), (SLOW, 5)].into());
    assert_eq!(worked_for(TICK), [(FAST, 4), (SLOW, 14)].into());
}

#[test]
fn a_monitor_that_one_waiter_passes_to_the_next_was_notified_for_all() {
    let java = Case {
        woken: 1,
        ended_in: "ObjectMonitor::ExitEpilog(JavaThread*, ObjectWaiter*)",
        waits_in: "ObjectMonitor::wait(long, bool, JavaThread*)",
        ..BROADCAST
    };
    // That is seen of the second wait, from either side.
    for other in [Other::Woken(CONDITION, 7), Other::Wakes] {
        assert_eq!(blamed(Case { other, ..java }), [(FAST, 4), (SLOW, 10)].into());
    }
    // Nobody else waits: it was notified alone, and has done more than look once.
    assert_eq!(blamed(java), each_for_its_waker());
}

/// Three waits of a thread of Java's, in two pieces each. The first piece of each is ended by [`FAST`], the last
/// by another.
fn record_lone_waiter(
    waits_in: &'static str,
    ended_in: &'static str,
    by_slow: &[usize],
) -> Recording {
    let case = Case { woken: 1, waits_in, ended_in, ..BROADCAST };
    record_waiter(case, THREE, (&[1, 3, 5], by_slow))
}

/// For how many ticks, rounded, it is not known whether the waiter was meant.
fn count_unclear(recording: &Recording) -> u64 {
    let report = report(recording, &Filter::default());
    let waits = report.waits.iter().filter(|wait| wait.tid == Tid(WAITER));
    let parts = waits.flat_map(|wait| &wait.blame);
    let unclear = parts.filter(|part| part.reason == Some(Reason::UnclearWake));
    (unclear.map(|part| part.ns.0).sum::<u64>() + TICK / 2) / TICK
}

#[test]
fn who_is_notified_alone_and_only_looks_waits_for_nobody_that_is_known() {
    for (waits_in, ended_in) in [
        ("ObjectMonitor::wait(long, bool, JavaThread*)", "ObjectMonitor::ExitEpilog(JavaThread*)"),
        ("Unsafe_Park", "Unsafe_Unpark"),
    ] {
        let r = record_lone_waiter(waits_in, ended_in, &[1, 3, 5]);
        // Three times four ticks, which the fast one ended, and five that the slow one did.
        assert_eq!(sum_blame(&r), [(SLOW, 15)].into(), "{waits_in}");
        assert_eq!(count_unclear(&r), 12, "{waits_in}");
        // What the fast one brings is worth something, or nobody ever brings more.
        for by_slow in [&[1, 2, 4][..], &[]] {
            let r = record_lone_waiter(waits_in, ended_in, by_slow);
            assert_eq!(count_unclear(&r), 0, "{waits_in}, {by_slow:?}");
        }
    }
    // Of the GNU C library's conditions it is known whether all were to be woken.
    let r = record_lone_waiter("pthread_cond_wait", "pthread_cond_signal", &[1, 3, 5]);
    assert_eq!(sum_blame(&r), [(FAST, 12), (SLOW, 15)].into());
}

#[test]
fn a_place_that_is_compiled_meanwhile_stays_one() {
    let record = |place_of: fn(usize) -> usize| {
        let mut r = record_lone_waiter("Unsafe_Park", "Unsafe_Unpark", &[1, 3, 5]);
        let stacks = ["interpreted", "compiled", "compiled_again"]
            .map(|main| user(&mut r, 7, &["libjvm.so Unsafe_Park", &format!("app {main}")]));
        edit(&mut r, |waits| {
            let own = waits.iter_mut().filter(|wait| wait.tid == Tid(WAITER));
            own.enumerate().for_each(|(n, wait)| wait.user_stack = stacks[place_of(n)]);
        });
        r
    };
    // With each stack the slow one comes once.
    let r = record(|n| n / 2);
    assert_eq!((sum_blame(&r), count_unclear(&r)), ([(SLOW, 15)].into(), 12));
    // The last piece of each wait has another stack: the first one is over.
    let r = record(|n| n % 2);
    assert_eq!((sum_blame(&r), count_unclear(&r)), ([(FAST, 12), (SLOW, 15)].into(), 0));
}

#[test]
fn who_has_its_code_compiled_has_only_looked() {
    let record = |woken_in: &str| {
        let other = Other::Woken(CONDITION + 64, 7);
        let (waits_in, ended_in) = ("Unsafe_Park", "Unsafe_Unpark");
        let case = Case { woken: 1, waits_in, ended_in, other, ..BROADCAST };
        let mut r = record_waiter(case, THREE, (&[1, 3, 5], &[1, 3, 5]));
        let stack = user(&mut r, 7, &[woken_in, "libjvm.so thread_native_entry"]);
        edit(&mut r, |waits| {
            let other = waits.iter_mut().find(|wait| wait.tid == Tid(OTHER)).expect("one");
            (other.on, other.user_stack) = (at(6) + Nanos(10_000), stack);
            other.wake.as_mut().expect("it is woken").at = other.on;
        });
        r.sort();
        r
    };
    let compiler = record("libjvm.so CompileQueue::get(CompilerThread*)");
    assert_eq!((sum_blame(&compiler), count_unclear(&compiler)), ([(SLOW, 15)].into(), 12));
    let another = record("libjvm.so Unsafe_Park");
    assert_eq!(
        (sum_blame(&another), count_unclear(&another)),
        ([(FAST, 12), (SLOW, 15)].into(), 0)
    );
}

#[test]
fn who_is_woken_by_somebody_who_waits_there_too_waits_for_that_one() {
    // As at a barrier: whoever comes last wakes all others.
    let r = record(Case { other: Other::WaitsToo, ..BROADCAST });
    assert_eq!(sum_blame(&r), each_for_its_waker());
}

/// Three waits in two pieces each, from tick 2, 16 and 30 on.
const THREE: &str = "##....#....#####....#....#####....#....####";

/// Each piece is ended by a call that wakes one thread alone. Another thread waits in the same place, as
/// drawn, and is woken by whoever then wakes the first: from one place in the code, one after the other.
fn record_in_turn(other: &str) -> Recording {
    let mut r = recording(THREE.len());
    live(&mut r, WAITER, THREE, FAST);
    live(&mut r, OTHER, other, FAST);
    for tid in [FAST, SLOW] {
        live(&mut r, tid, &"#".repeat(THREE.len()), 0);
    }
    let waits = user(&mut r, 7, &["libruby.so rb_native_cond_wait", "app get", "app main"]);
    let ends = user(&mut r, 7, &["libruby.so rb_native_cond_signal", "app put", "app main"]);
    let futex = kernel(&mut r, &["schedule", "futex_do_wait", "futex_wait", "do_futex"]);
    edit(&mut r, |all| {
        for wait in all.iter_mut() {
            let address = CONDITION + u64::from(wait.tid.0) * 64;
            (wait.tgid, wait.kernel_stack, wait.user_stack) = (PROCESS, futex, waits);
            wait.syscall = syscall(FUTEX, [address, WAIT_PRIVATE, 7, 0, 0, 0]);
            let Some(wake) = &mut wait.wake else { continue };
            (wake.current.tgid, wake.user_stack) = (PROCESS, ends);
            wake.syscall = syscall(FUTEX, [address, WAKE_PRIVATE, 1, 0, 0, 0]);
            if [11, 25, 39].map(at).contains(&wake.at) {
                wake.current.tid = Tid(SLOW);
            }
        }
        let own = all.iter_mut().filter(|wait| wait.tid == Tid(WAITER));
        for second in own.skip(1).step_by(2) {
            second.off = Timestamp(second.off.0 - TICK + 20_000);
        }
    });
    r.preemptions.iter_mut().for_each(|preemption| preemption.tgid = PROCESS);
    r.thread_events.iter_mut().for_each(|event| event.tgid = PROCESS);
    r.sort();
    r
}

#[test]
fn who_is_woken_with_all_others_in_turn_was_not_meant_alone() {
    assert_eq!(sum_blame(&record_in_turn(THREE)), [(SLOW, 27)].into());
}

#[test]
fn who_is_woken_while_others_wait_on_was_meant() {
    let each = || [(FAST, 12), (SLOW, 15)].into();
    // Jobs are handed out, now to two threads, now to one: the other waits on.
    let left_behind = "##....#.........####....#....#####....#....####";
    assert_eq!(sum_blame(&record_in_turn(&left_behind[..THREE.len()])), each());
    // The other one has mostly something to do.
    let seldom = "##....####################....#####....####";
    assert_eq!(sum_blame(&record_in_turn(seldom)), each());
}
