//! Whom a thread waits for that asks for a lock on a file now and then, and sleeps in between.

use std::collections::BTreeMap;

use offwake_analysis::{filter::Filter, findings::Finding};
use offwake_recording::{
    FileLockEvent, FileLockEventKind, Recording, WakeContext,
    units::{Tgid, Tid, Timestamp},
};

use crate::{
    draw::{TICK, at, edit, live, recording},
    fixtures::{kernel, syscall, user},
    golden::report,
    open_waits::findings,
};

const CLOCK_NANOSLEEP: u32 = 230;

const WAITER: u32 = 7;
const HOLDER: u32 = 60;
/// Another thread of the holder's process.
const BESIDE: u32 = 61;
const OTHER: u32 = 70;

/// The waiter sleeps from 1 to 10, from 11 to 20, and from 21 to 30.
const SLEEPS: &str = "#.........#.........#.........####";
/// The holder works until 15, and sleeps from then on.
const WORKS: &str = "###############__________________#";

/// The waiter sleeps from 1 to 5, and so on, five times.
const POLLS: &str = "#....#....#....#....#....###";
/// The same, and it works for 8 ms after each sleep.
const POLLS_AND_WORKS: &str = "########....########....########....########....########....#";

/// In which function the waiter sleeps.
#[derive(Clone, Copy)]
enum SleepsIn {
    Sqlite,
    Itself,
}

fn record(sleeps_in: SleepsIn) -> Recording {
    record_life(SLEEPS, sleeps_in)
}

/// What the waiter does is given.
fn record_life(life: &str, sleeps_in: SleepsIn) -> Recording {
    let mut r = recording(life.len());
    let works = "#".repeat(life.len());
    live(&mut r, WAITER, life, 0);
    live(&mut r, HOLDER, if life == SLEEPS { WORKS } else { &works }, 0);
    live(&mut r, BESIDE, &works, 0);
    live(&mut r, OTHER, &works, 0);
    let asks = [
        "libc.so.6 clock_nanosleep",
        "libsqlite3.so.0 unixSleep",
        "libsqlite3.so.0 sqliteDefaultBusyCallback",
        "app save_order",
    ];
    let own = ["libc.so.6 clock_nanosleep", "app nap"];
    let stack = match sleeps_in {
        SleepsIn::Sqlite => user(&mut r, WAITER, &asks),
        SleepsIn::Itself => user(&mut r, WAITER, &own),
    };
    let has = user(&mut r, HOLDER, &["libc.so.6 clock_nanosleep", "app fetch_prices"]);
    let nap = kernel(&mut r, &["schedule", "do_nanosleep", "hrtimer_nanosleep"]);
    edit(&mut r, |waits| {
        for wait in waits {
            wait.syscall = syscall(CLOCK_NANOSLEEP, [0; 6]);
            wait.kernel_stack = nap;
            wait.user_stack = if wait.tid == Tid(WAITER) { stack } else { has };
            if let Some(wake) = &mut wait.wake {
                wake.context = WakeContext::Hrtimer;
            }
        }
    });
    r
}

/// As if that thread belonged to the holder's process.
fn move_beside(r: &mut Recording) {
    let is_beside = |tid: Tid| tid == Tid(BESIDE);
    let process = Tgid(HOLDER);
    r.preemptions.iter_mut().filter(|it| is_beside(it.tid)).for_each(|it| it.tgid = process);
    r.thread_events.iter_mut().filter(|it| is_beside(it.tid)).for_each(|it| it.tgid = process);
}

fn process(tid: u32) -> u32 {
    if tid == BESIDE { HOLDER } else { tid }
}

fn add(r: &mut Recording, tick: usize, kind: FileLockEventKind, tids: (u32, Option<u32>)) {
    let (tid, holder) = tids;
    // A thread asks just before it sleeps.
    let at = match kind {
        FileLockEventKind::Refused => Timestamp(at(tick).0 - TICK / 10),
        FileLockEventKind::Released | FileLockEventKind::Acquired => at(tick),
    };
    let (tid, tgid, holder) = (Tid(tid), Tgid(process(tid)), holder.map(Tgid));
    r.file_lock_events.push(FileLockEvent { at, tid, tgid, kind, holder, device: 8, inode: 5 });
    r.sort();
}

fn refuse(r: &mut Recording, tick: usize, holder: Option<u32>) {
    add(r, tick, FileLockEventKind::Refused, (WAITER, holder));
}

fn release(r: &mut Recording, tick: usize, tid: u32) {
    add(r, tick, FileLockEventKind::Released, (tid, Some(process(tid))));
}

fn acquire(r: &mut Recording, tick: usize, tid: u32) {
    add(r, tick, FileLockEventKind::Acquired, (tid, Some(process(tid))));
}

/// For how many ticks, rounded, the waiter waited for what, and for which thread.
fn blamed(recording: &Recording) -> BTreeMap<(&'static str, u32), u64> {
    let report = report(recording, &Filter::default());
    let mut sums = BTreeMap::new();
    let own = report.waits.iter().filter(|wait| wait.tid == Tid(WAITER));
    for part in own.flat_map(|wait| &wait.blame) {
        let last = part.chain.last().map_or(WAITER, |hop| hop.thread.tid.0);
        *sums.entry((part.kind.name(), last)).or_default() += part.ns.0;
    }
    sums.values_mut().for_each(|ns: &mut u64| *ns = (*ns + TICK / 2) / TICK);
    sums
}

#[test]
fn who_is_refused_a_lock_waits_for_its_holder_until_that_gives_it_back() {
    let mut r = record(SleepsIn::Sqlite);
    refuse(&mut r, 1, Some(HOLDER));
    refuse(&mut r, 11, Some(HOLDER));
    release(&mut r, 15, HOLDER);
    // The last sleep is not known to be for anybody.
    assert_eq!(blamed(&r), [(("work", HOLDER), 13), (("timer", WAITER), 14)].into());
}

#[test]
fn a_holder_that_was_not_seen_to_give_the_lock_back_has_it_until_somebody_else_does() {
    let mut r = record(SleepsIn::Sqlite);
    refuse(&mut r, 1, Some(HOLDER));
    refuse(&mut r, 11, Some(OTHER));
    refuse(&mut r, 21, Some(OTHER));
    assert_eq!(blamed(&r), [(("work", HOLDER), 9), (("work", OTHER), 18)].into());
    let mut r = record(SleepsIn::Sqlite);
    refuse(&mut r, 11, Some(HOLDER));
    refuse(&mut r, 21, Some(HOLDER));
    let sums = blamed(&r);
    assert_eq!(sums.values().sum::<u64>(), 27, "{sums:?}");
    assert_eq!(sums.get(&("work", HOLDER)), Some(&4), "{sums:?}");
    // Before the first refusal, it sleeps for nobody who is known.
    assert_eq!(sums.get(&("timer", WAITER)), Some(&9), "{sums:?}");
}

#[test]
fn whoever_gives_the_lock_back_is_the_thread_of_several_that_had_it() {
    let mut r = record(SleepsIn::Sqlite);
    move_beside(&mut r);
    refuse(&mut r, 11, Some(HOLDER));
    // Any of the two may have it.
    assert_eq!(blamed(&r), [(("timer", WAITER), 27)].into());
    release(&mut r, 18, BESIDE);
    assert_eq!(blamed(&r), [(("work", BESIDE), 7), (("timer", WAITER), 20)].into());
}

#[test]
fn a_sleep_is_divided_among_those_who_have_the_lock_meanwhile() {
    let mut r = record(SleepsIn::Sqlite);
    move_beside(&mut r);
    refuse(&mut r, 1, Some(HOLDER));
    release(&mut r, 4, HOLDER);
    acquire(&mut r, 6, OTHER);
    release(&mut r, 8, OTHER);
    acquire(&mut r, 8, BESIDE);
    // Nobody has it for two ticks of the first sleep.
    let sums = [
        (("work", HOLDER), 3),
        (("work", OTHER), 2),
        (("work", BESIDE), 2),
        (("timer", WAITER), 2 + 18),
    ];
    assert_eq!(blamed(&r), sums.into());
}

#[test]
fn a_refusal_says_nothing_of_what_the_thread_does_later() {
    let mut r = record(SleepsIn::Sqlite);
    refuse(&mut r, 1, Some(HOLDER));
    assert_eq!(blamed(&r), [(("work", HOLDER), 9), (("timer", WAITER), 18)].into());
}

#[test]
fn who_sleeps_on_purpose_after_a_refusal_sleeps() {
    let mut r = record(SleepsIn::Itself);
    refuse(&mut r, 1, Some(HOLDER));
    assert_eq!(blamed(&r), [(("timer", WAITER), 27)].into());
}

/// No function says that the waiter wants a lock.
#[test]
fn who_asks_whenever_it_has_slept_waits_for_the_lock() {
    let mut r = record_life(POLLS, SleepsIn::Itself);
    for tick in [1, 6, 11, 16, 21] {
        refuse(&mut r, tick, Some(OTHER));
    }
    assert_eq!(blamed(&r), [(("work", OTHER), 20)].into());
    let list: Vec<Finding> = findings(&mut r);
    let text = &list.first().expect("a finding").lines[0].text;
    assert!(text.contains("waits for a file lock of thread70"), "{text}");
    // It slept already as the window opened: nobody saw it ask.
    let mut r = record_life(&format!("....{POLLS}"), SleepsIn::Itself);
    for tick in [5, 10, 15, 20, 25] {
        refuse(&mut r, tick, Some(OTHER));
    }
    assert_eq!(blamed(&r), [(("work", OTHER), 20), (("timer", WAITER), 4)].into());
}

#[test]
fn who_does_something_else_between_its_requests_and_its_sleeps_sleeps() {
    let timer = |ticks| BTreeMap::from([(("timer", WAITER), ticks)]);
    let mut r = record_life(POLLS_AND_WORKS, SleepsIn::Itself);
    // It asks as it begins to work.
    for tick in [1, 13, 25, 37, 49] {
        refuse(&mut r, tick, Some(OTHER));
    }
    assert_eq!(blamed(&r), timer(20));
    // It asks just before it sleeps, and not as it has slept.
    let mut r = record_life(POLLS_AND_WORKS, SleepsIn::Itself);
    for tick in [8, 20, 32, 44, 56] {
        refuse(&mut r, tick, Some(OTHER));
    }
    assert_eq!(blamed(&r), timer(20));
    // It asks before three of five sleeps.
    let mut r = record_life(POLLS, SleepsIn::Itself);
    for tick in [1, 6, 11] {
        refuse(&mut r, tick, Some(OTHER));
    }
    assert_eq!(blamed(&r), timer(20));
    // It asks for another lock each time.
    let mut r = record_life(POLLS, SleepsIn::Itself);
    for (tick, inode) in [(1, 1), (6, 2), (11, 3), (16, 4), (21, 5)] {
        refuse(&mut r, tick, Some(OTHER));
        r.file_lock_events.last_mut().unwrap().inode = inode;
    }
    assert_eq!(blamed(&r), timer(20));
}

#[test]
fn where_nobody_was_found_to_have_the_lock_nobody_is_blamed() {
    let mut r = record(SleepsIn::Sqlite);
    refuse(&mut r, 1, None);
    refuse(&mut r, 11, Some(99));
    assert_eq!(blamed(&r), [(("timer", WAITER), 27)].into());
}

#[test]
fn the_holder_is_the_cause_in_the_finding() {
    let mut r = record(SleepsIn::Sqlite);
    for tick in [1, 11, 21] {
        refuse(&mut r, tick, Some(OTHER));
    }
    let list: Vec<Finding> = findings(&mut r);
    let found = list.first().expect("a finding");
    let cause = found.lines.iter().find(|line| line.is_cause).expect("a cause");
    assert!(found.lines[0].text.contains("a lock of the SQLite database"), "{found:#?}");
    assert!(cause.text.contains("thread70"), "{found:#?}");
}
