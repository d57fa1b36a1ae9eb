//! Processes of which no thread can go on.

use offwake_recording::{
    Recording, Scope,
    units::{Nanos, Tid},
};

use crate::{
    draw::live,
    fixtures::{EPOLL_WAIT, FUTEX, syscall, user},
    open_waits::{LENGTH, asleep, change, findings, in_process, sets, sleeps_in, waits_in},
};

const WAIT: u64 = 0x80;

/// Thread 7 waits for a result, and so do 8 and 9, for which it waits.
fn pool() -> Recording {
    let mut r = asleep(&[7, 8, 9]);
    waits_in(&mut r, 7, "futex_wait", "collect", WAIT);
    for worker in [8, 9] {
        waits_in(&mut r, worker, "futex_wait", "price_order", WAIT);
    }
    r
}

fn in_one_process(mut r: Recording) -> Recording {
    let tids: Vec<u32> = r.thread_events.iter().map(|event| event.tid.0).collect();
    in_process(&mut r, 7, &tids);
    r
}

fn is_told(mut r: Recording) -> bool {
    let lines = findings(&mut r).into_iter().flat_map(|found| found.lines);
    let texts: Vec<_> = lines.map(|line| line.text).collect();
    texts.iter().any(|text| text.contains("deadlocked, or idle"))
}

#[test]
fn threads_that_only_each_other_could_wake_are_told_as_a_deadlock() {
    let mut r = in_one_process(pool());
    let list = findings(&mut r);
    let found = list.iter().find(|found| found.chain[0].tid == Some(Tid(7))).expect("told");
    let texts: Vec<_> = found.lines.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(
        texts[1],
        "all 3 threads of the process wait for one another: deadlocked, or idle until a signal comes",
        "{found:#?}"
    );
    assert!(found.lines[1].is_cause && found.cause.text == texts[1], "{found:#?}");
    assert_eq!(found.lines[2].function.as_deref(), Some("price_order"), "{found:#?}");
    assert_eq!(found.lines.len(), 3, "{found:#?}");
}

#[test]
fn a_process_is_no_deadlock_while_one_thread_may_go_on() {
    // It sleeps.
    let mut r = pool();
    sleeps_in(&mut r, 9, "export");
    assert!(!is_told(in_one_process(r)));
    // Something may come from outside.
    let mut r = pool();
    let stack = user(&mut r, 9, &["libc.so.6 epoll_wait", "app serve", "app main"]);
    change(&mut r, 9, sets(stack, syscall(EPOLL_WAIT, [5, 1, 8, u64::MAX, 0, 0])));
    assert!(!is_told(in_one_process(r)));
    // A timeout will end it.
    let mut r = pool();
    change(&mut r, 9, |wait| wait.timeout = Some(Nanos(9_000_000_000)));
    assert!(!is_told(in_one_process(r)));
    // Another process may share the futex.
    let mut r = pool();
    change(&mut r, 9, |wait| wait.syscall = syscall(FUTEX, [0x7900, 0, 2, 0, 0, 0]));
    assert!(!is_told(in_one_process(r)));
    // It runs.
    let mut r = pool();
    live(&mut r, 10, &"#".repeat(LENGTH), 0);
    assert!(!is_told(in_one_process(r)));
}

#[test]
fn a_process_may_have_threads_that_were_not_recorded() {
    let mut r = in_one_process(pool());
    r.meta.scope = Scope::Target;
    assert!(!is_told(r));
    let mut r = in_one_process(pool());
    r.loss.counters.insert("threads_full".to_owned(), 1);
    assert!(!is_told(r));
}

/// All but the first wait in a pool's loop: there is nothing to do.
#[test]
fn an_idle_process_is_no_deadlock() {
    let mut r = asleep(&[7, 8, 9]);
    waits_in(&mut r, 7, "futex_wait", "wait_for_signal", WAIT);
    for worker in [8, 9] {
        let frames = ["libc.so.6 futex_wait", "app tokio::runtime::blocking::pool::Inner::run"];
        let stack = user(&mut r, worker, &frames);
        change(&mut r, worker, sets(stack, syscall(FUTEX, [0x7000, WAIT, 2, 0, 0, 0])));
    }
    assert!(!is_told(in_one_process(r)));
}
