//! Tasks that block their event loop: it is said of the wait, in every view.

use offwake_analysis::{
    filter::Filter,
    findings::{EventLoop, FindingKind},
    report::{Report, summary},
};
use offwake_recording::{Recording, WakeContext};

use crate::{
    draw::{edit, live, recording},
    fixtures::{CLOCK_NANOSLEEP, syscall, user},
    golden::{report as build_report, written},
};

const LENGTH: usize = 3_000;
const RUN_TASK: &str = "app tokio::runtime::scheduler::multi_thread::worker::Context::run_task";
const PARK: &str = "app tokio::runtime::scheduler::multi_thread::worker::Context::park";

/// A thread that sleeps for 98 of 100 ms, in these functions from the leaf on.
fn sleeper(functions: &[&str]) -> Recording {
    let mut r = recording(LENGTH);
    live(&mut r, 7, &format!("#{}r", ".".repeat(98)).repeat(30), 0);
    let stack = user(&mut r, 7, functions);
    edit(&mut r, |waits| {
        for wait in waits.iter_mut().filter(|wait| wait.tid.0 == 7) {
            wait.syscall = syscall(CLOCK_NANOSLEEP, [0; 6]);
            wait.user_stack = stack;
            if let Some(wake) = &mut wait.wake {
                wake.context = WakeContext::Hrtimer;
            }
        }
    });
    r
}

fn report(mut r: Recording) -> Report {
    r.sort();
    build_report(&r, &Filter::default())
}

#[test]
fn a_sleep_in_a_task_blocks_its_worker_and_is_no_deliberate_sleep() {
    let sleep = ["libc.so.6 clock_nanosleep", "app std::thread::sleep", "app shop::checkout"];
    let blocked = report(sleeper(&[&sleep[..], &[RUN_TASK, "app main"]].concat()));
    let finding = &blocked.findings.list[0];
    assert_eq!(finding.kind, FindingKind::Wait);
    assert_eq!(finding.chain[0].blocked_loop, Some(EventLoop::Tokio));
    let text = written(&blocked, summary::write);
    assert!(text.contains("sleeps in shop::checkout, async worker blocked"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");

    // The same function in a thread of its own.
    let alone = report(sleeper(&[&sleep[..], &["app main"]].concat()));
    let finding = &alone.findings.list[0];
    assert_eq!((finding.kind, finding.chain[0].blocked_loop), (FindingKind::Sleep, None));
    assert!(!written(&alone, summary::write).contains("blocked"));
}

#[test]
fn a_worker_that_waits_for_events_blocks_nobody() {
    let parked = report(sleeper(&["libc.so.6 epoll_wait", PARK, RUN_TASK, "app main"]));
    let hops = parked.findings.list.iter().flat_map(|finding| &finding.chain);
    assert!(hops.into_iter().all(|hop| hop.blocked_loop.is_none()));
}
