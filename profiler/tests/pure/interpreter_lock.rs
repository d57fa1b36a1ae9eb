//! Waits for an interpreter's lock whose time was up before the holder let go of it.

use offwake_analysis::filter::Filter;
use offwake_recording::{
    Recording, WakeContext,
    units::{Tgid, Tid},
};

use crate::{
    draw::{edit, live, recording},
    fixtures::{kernel, syscall, user},
    golden::report,
};

const FUTEX: u32 = 202;
const PROCESS: Tgid = Tgid(7);

/// Thread 7 waits in `function` from tick 10 to 60, when a timer ends it. Threads 8 and 9 of its
/// process live like this, and each wait of theirs is ended by `waker`.
fn timed_out(function: &str, eight: &str, nine: &str, waker: u32) -> Recording {
    let mut r = recording(100);
    live(&mut r, 7, &format!("{}{}{}", "#".repeat(10), ".".repeat(50), "#".repeat(40)), 8);
    live(&mut r, 8, eight, waker);
    live(&mut r, 9, nine, waker);
    let waits_in = user(
        &mut r,
        7,
        &["libc.so.6 pthread_cond_timedwait", &format!("app {function}"), "app main"],
    );
    let futex = kernel(&mut r, &["schedule", "futex_do_wait", "futex_wait", "do_futex"]);
    edit(&mut r, |waits| {
        for wait in waits {
            wait.tgid = PROCESS;
            wait.syscall = syscall(FUTEX, [0x1000 * u64::from(wait.tid.0), 0, 0, 0, 0, 0]);
            wait.kernel_stack = futex;
            if let Some(wake) = &mut wait.wake {
                wake.current.tgid = PROCESS;
                if wait.tid == Tid(7) {
                    wait.user_stack = waits_in;
                    wake.context = WakeContext::Hrtimer;
                }
            }
        }
    });
    r.preemptions.iter_mut().for_each(|preemption| preemption.tgid = PROCESS);
    r.thread_events.iter_mut().for_each(|event| event.tgid = PROCESS);
    r.sort();
    r
}

/// What thread 7 waited for, and on whom.
fn blame(r: &Recording) -> Vec<(String, Option<u32>)> {
    let report = report(r, &Filter::default());
    let own = report.waits.iter().filter(|wait| wait.tid == Tid(7));
    own.flat_map(|wait| &wait.blame)
        .map(|part| (part.kind.name().to_owned(), part.tid.map(|tid| tid.0)))
        .collect()
}

fn runs_then_sleeps(running: usize, asleep: usize) -> String {
    format!("{}{}{}", "#".repeat(running), ".".repeat(asleep), "#".repeat(100 - running - asleep))
}

#[test]
fn who_let_go_of_the_lock_and_was_woken_by_the_one_that_took_it_held_it() {
    let asleep = runs_then_sleeps(20, 45);
    let work_of_8 = vec![("work".to_owned(), Some(8))];
    for function in ["take_gil", "PyEval_RestoreThread"] {
        // Thread 9 was asleep when the timer struck: it could not hold the lock.
        let r = timed_out(function, &runs_then_sleeps(61, 2), &asleep, 7);
        assert_eq!(blame(&r), work_of_8, "{function}");
    }
}

#[test]
fn where_nobody_gave_the_lock_up_to_the_waiter_the_timer_is_all_that_is_known() {
    let timer = vec![("timer".to_owned(), None)];
    let running = "#".repeat(100);
    let handed_over = runs_then_sleeps(61, 2);
    // A mutex and its condition variable: any thread may hold it, and any other may run.
    assert_eq!(blame(&timed_out("wait_for_job", &handed_over, &running, 7)), timer);
    // Somebody else wakes the one that went to sleep.
    assert_eq!(blame(&timed_out("take_gil", &handed_over, &running, 9)), timer);
    // It slept before the timer struck.
    assert_eq!(blame(&timed_out("take_gil", &runs_then_sleeps(59, 4), &running, 7)), timer);
    // Two may have had the lock.
    assert_eq!(blame(&timed_out("take_gil", &handed_over, &runs_then_sleeps(62, 3), 7)), timer);
}
