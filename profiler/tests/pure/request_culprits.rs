//! The culprits of slow requests: who waited for them on the way, and one culprit under one name.

use offwake_analysis::requests::CulpritShare;
use offwake_recording::{
    FileId, FileKind, Recording, StackRef, Wait, WakeContext,
    units::{Nanos, Tid},
};

use crate::{
    draw::{edit, live, recording, ticks},
    fixtures::{CLOCK_NANOSLEEP, FUTEX, READ, file, syscall, user},
    requests::{class_of, find},
};

const COUNT: usize = 400;
const LOCK: &[&str] = &["libc.so.6 pthread_mutex_lock", "app put", "app main"];
const API: &[&str] = &["libc.so.6 clock_nanosleep", "app call_api", "app main"];
const BANK: &[&str] = &["libc.so.6 clock_nanosleep", "app call_bank", "app main"];

/// 7 asks 60, and in one of ten requests 60 waits for 61, which sleeps meanwhile. `sleeps_in` says where, by the number
/// of the sleep.
fn asks(sleeps_in: impl Fn(u32) -> Option<&'static [&'static str]>) -> Recording {
    let mut r = recording(COUNT * 20);
    let draw = |fast: &str, slow: &str| -> String {
        (0..COUNT).map(|n| if n % 10 == 0 { slow } else { fast }).collect()
    };
    live(&mut r, 7, &draw("###...##############", "###..............###"), 60);
    live(&mut r, 60, &draw("..####..............", "..##..........###..."), 7);
    live(&mut r, 61, &draw("....................", "....#........#......"), 60);
    let [api, bank, none] = [API, BANK, &[]].map(|frames| match frames {
        [] => StackRef::NotTaken,
        frames => user(&mut r, 61, frames),
    });
    edit(&mut r, |waits| {
        let mut waits_of_server = 0;
        for wait in waits.iter_mut() {
            if wait.tid == Tid(60) {
                waits_of_server += 1;
                // One wait more in each slow request.
                let in_period = (waits_of_server - 1) % 11;
                if in_period == 1
                    && let Some(wake) = &mut wait.wake
                {
                    (wake.current.tid, wake.current.tgid.0) = (Tid(61), 61);
                }
            }
            if wait.tid == Tid(61)
                && wait.seq % 2 == 0
                && let Some(wake) = &mut wait.wake
            {
                wake.context = WakeContext::Hrtimer;
                wait.syscall = syscall(CLOCK_NANOSLEEP, [0; 6]);
                wait.user_stack = match sleeps_in(wait.seq / 2) {
                    Some(API) => api,
                    Some(_) => bank,
                    None => none,
                };
            }
        }
    });
    r
}

/// Returns what slow requests have more of that somebody slept for, and the longest latency without it.
fn sleeps(r: &mut Recording) -> Vec<(CulpritShare, Nanos, Nanos)> {
    let requests = find(r);
    let class = class_of(&requests, "thread60");
    let slow = class.slow.as_ref().expect("enough of them");
    let sleeps = slow.excess.iter().filter(|one| one.culprit.program == "thread61");
    let sleeps = sleeps.filter(|one| one.culprit.text.contains("sleeps"));
    sleeps.map(|one| (one.culprit.clone(), one.excess_ns, one.without.max_ns)).collect()
}

/// Has 60 wait like this for 61.
fn wait_for_sleeper(r: &mut Recording, number: u32, on: Option<FileId>, frames: &[&str]) {
    let stack = user(r, 60, frames);
    let is_by_sleeper =
        |wait: &Wait| wait.wake.as_ref().is_some_and(|wake| wake.current.tid == Tid(61));
    edit(r, |waits| {
        for wait in waits.iter_mut().filter(|wait| wait.tid == Tid(60) && is_by_sleeper(wait)) {
            wait.syscall = syscall(number, [0x1000, 0, 2, 0, 0, 0]);
            wait.file = on;
            wait.user_stack = stack;
        }
    });
}

#[test]
fn who_waited_for_the_culprit_is_told() {
    let mut r = asks(|_| Some(API));
    let frames = &["libc.so.6 read", "app load", "app main"];
    wait_for_sleeper(&mut r, READ, Some(file(FileKind::Pipe, 9)), frames);
    let sleeps = sleeps(&mut r);
    let [(culprit, more, left)] = sleeps.as_slice() else { panic!("{sleeps:#?}") };
    assert_eq!((culprit.function.as_deref(), *more), (Some("call_api"), ticks(8)));
    assert_eq!(*left, ticks(7));
    assert_eq!(
        culprit.held_up.as_deref(),
        Some("thread60 60 waits for thread61 at a pipe in load")
    );
}

#[test]
fn who_waited_for_a_lock_of_the_culprit_is_told_with_the_lock() {
    let mut r = asks(|_| Some(API));
    wait_for_sleeper(&mut r, FUTEX, None, LOCK);
    let sleeps = sleeps(&mut r);
    let [(culprit, ..)] = sleeps.as_slice() else { panic!("{sleeps:#?}") };
    let held_up = "thread60 60 waits for a lock of thread61 in put";
    assert_eq!(culprit.held_up.as_deref(), Some(held_up));
    let text = find(&mut r).text_lines(100).join("\n");
    assert!(text.contains(&format!("held up: {held_up}")), "{text}");
}

/// Who asked waited for the server, which is clear without a word.
#[test]
fn the_way_to_the_server_itself_is_not_told() {
    let requests = find(&mut asks(|_| Some(API)));
    let class = class_of(&requests, "thread60");
    let own: Vec<_> = (class.bands.iter().flat_map(|band| &band.culprits))
        .filter(|one| one.program == "thread60")
        .collect();
    assert!(!own.is_empty() && own.iter().all(|one| one.held_up.is_none()), "{own:#?}");
}

/// Some of its stacks could not be read.
#[test]
fn a_sleeper_without_a_function_is_joined_with_the_same_one_of_which_it_is_known() {
    let sleeps = sleeps(&mut asks(|n| (n % 4 != 0).then_some(API)));
    let [(culprit, more, left)] = sleeps.as_slice() else { panic!("{sleeps:#?}") };
    assert_eq!((culprit.function.as_deref(), *more), (Some("call_api"), ticks(8)));
    assert_eq!(*left, ticks(7));
}

#[test]
fn a_sleeper_that_may_be_either_of_two_is_not_joined() {
    let which = |n: u32| [Some(API), Some(BANK), None][n as usize % 3];
    let sleeps = sleeps(&mut asks(which));
    let functions: Vec<_> = sleeps.iter().map(|(culprit, ..)| culprit.function.clone()).collect();
    assert_eq!(functions.len(), 3, "{sleeps:#?}");
    assert!(functions.contains(&None), "{functions:?}");
}
