//! Open waits by how long they are: which of them are told, and which come first.

use offwake_analysis::findings::FindingKind;
use offwake_recording::{StackRef, WakeContext};

use crate::{
    draw::{edit, live, recording},
    fixtures::{EPOLL_WAIT, syscall},
    open_waits::{LENGTH, change, findings, mutex, sets, sleeps_in},
};

/// A window of 3 s. The target works, then wants a mutex that 60 sleeps with.
fn found_after_work(open_ms: usize) -> Vec<(FindingKind, usize)> {
    let mut r = recording(LENGTH);
    live(&mut r, 7, &format!("{}{}", "#".repeat(LENGTH - open_ms), "_".repeat(open_ms)), 0);
    live(&mut r, 60, &format!("#{}", "_".repeat(LENGTH - 1)), 0);
    mutex(&mut r, 7, 60, "book");
    sleeps_in(&mut r, 60, "export");
    findings(&mut r).iter().map(|found| (found.kind, found.chain.len())).collect()
}

#[test]
fn an_open_wait_is_told_from_a_tenth_of_the_window_on_and_first_if_it_is_long() {
    const OPEN: (FindingKind, usize) = (FindingKind::StillWaiting, 2);
    const WORK: (FindingKind, usize) = (FindingKind::OnCpu, 1);
    assert_eq!(found_after_work(250), [WORK]);
    assert_eq!(found_after_work(320), [WORK, OPEN]);
    assert_eq!(found_after_work(990), [WORK, OPEN]);
    assert_eq!(found_after_work(1_100), [OPEN, WORK]);
}

#[test]
fn a_server_without_requests_is_not_stuck_because_its_last_wait_is_open() {
    let mut r = recording(LENGTH);
    let open = 500;
    live(&mut r, 7, &format!("#{}#{}", ".".repeat(LENGTH - open - 2), "_".repeat(open)), 0);
    change(&mut r, 7, sets(StackRef::NotTaken, syscall(EPOLL_WAIT, [4, 0, 8, 0, 0, 0])));
    edit(&mut r, |waits| {
        let timers = waits.iter_mut().filter_map(|wait| wait.wake.as_mut());
        timers.for_each(|wake| wake.context = WakeContext::Hrtimer);
    });
    assert!(findings(&mut r).iter().all(|found| !found.still_waiting));
}
