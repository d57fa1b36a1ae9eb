//! Threads that are one coroutine's own (`runtime.LockOSThread` in Go): where that waits, the thread's
//! stack ends in the runtime.

use offwake_analysis::filter::Filter;
use offwake_recording::units::Tgid;

use crate::{
    draw::{edit, live, recording},
    fixtures::{FUTEX, syscall, user},
    golden::report as build_report,
};

const FSYNC: u32 = 74;

/// What is said of thread 7, which waits for thread 8 of its process. That one waits for thread 9, and is
/// seen in a function at another time.
fn explain_wait(seen: &str) -> String {
    let mut r = recording(100);
    live(&mut r, 7, &format!("##{}##", ".".repeat(96)), 8);
    live(&mut r, 8, &format!("##...##{}{}", ".".repeat(70), "#".repeat(23)), 9);
    live(&mut r, 9, &"#".repeat(100), 0);
    let parked = user(&mut r, 7, &["app runtime.futex", "app runtime.stoplockedm"]);
    let saves = user(&mut r, 8, &["app syscall.fsync", seen]);
    edit(&mut r, |waits| {
        let mut of_holder = 0;
        for wait in waits.iter_mut() {
            wait.tgid = Tgid(7);
            wait.wake.as_mut().unwrap().current.tgid = Tgid(7);
            of_holder += u32::from(wait.tid.0 == 8);
            let is_seen = wait.tid.0 == 8 && of_holder == 1;
            wait.syscall = syscall(if is_seen { FSYNC } else { FUTEX }, [0x1000, 128, 0, 0, 0, 0]);
            wait.user_stack = if is_seen { saves } else { parked };
        }
    });
    r.sort();
    let found = build_report(&r, &Filter::default()).findings.list;
    found
        .iter()
        .flat_map(|found| &found.lines)
        .map(|line| line.text.as_str())
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn a_coroutine_is_named_by_what_its_thread_does_at_other_times() {
    let text = explain_wait("app main.saveCache");
    assert!(text.contains("(its goroutine: main.saveCache)"), "{text}");
}

#[test]
fn the_runtimes_own_functions_name_no_coroutine() {
    let text = explain_wait("app runtime.main");
    assert!(!text.contains("goroutine"), "{text}");
}
