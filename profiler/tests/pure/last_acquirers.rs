//! Locks that name no owner: who got such a lock last, and has it still when the window ends.

use offwake_analysis::findings::Finding;
use offwake_recording::{
    Recording,
    units::{Nanos, Tgid, Tid},
};

use crate::{
    draw::{TICK, at, edit, live, lose, recording},
    fixtures::{CLOCK_NANOSLEEP, FUTEX, kernel, syscall, user},
    open_waits::{LENGTH, findings, in_process},
};

const WAITER: u32 = 7;
const BEGINNER: u32 = 60;
const LOCK: u64 = 0x7f00;
const WAIT: u64 = 128;
const WAKE: u64 = 129;

/// What is different from the usual case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Twist {
    None,
    /// The waiter begins to wait after the last release.
    LateWaiter,
    /// Who was woken last waits once more: somebody else was faster.
    WaitsAgain,
    /// Who was woken last would have given up.
    HasTimeout,
    /// A record of another thread is lost.
    LostRecord,
    /// Who was woken last has ended.
    HasEnded,
}

/// `first` gets the lock at 50, and `last` gets it from that one at 100, in whose functions both sleep then.
///
/// ```text
/// waiter  ## waits from 20 on ------------------->
/// first   #--- 50 ########### 101 sleeps -------->
/// last    ########## 60 ----- 100 ### 110 sleeps ->
/// ```
fn record(first: u32, last: u32, twist: Twist) -> Recording {
    let mut r = recording(LENGTH);
    let fill = |life: String, with: &str| format!("{life}{}", with.repeat(LENGTH - life.len()));
    let begin = if twist == Twist::LateWaiter { 150 } else { 20 };
    live(&mut r, WAITER, &fill("#".repeat(begin), "_"), 0);
    live(&mut r, BEGINNER, &"#".repeat(LENGTH), 0);
    live(&mut r, first, &fill(format!("#{}{}", ".".repeat(49), "#".repeat(51)), "_"), BEGINNER);
    let of_last = format!("{}{}{}", "#".repeat(60), ".".repeat(40), "#".repeat(10));
    match twist {
        Twist::HasEnded => live(&mut r, last, &fill(of_last, " "), first),
        _ => live(&mut r, last, &fill(of_last, "_"), first),
    }
    let locks = user(
        &mut r,
        7,
        &["app std::sys::sync::mutex::futex::Mutex::lock_contended", "app book", "app main"],
    );
    let unlocks = user(&mut r, 7, &["app unlock", "app main"]);
    let sleeps = [first, last].map(|tid| {
        let function = format!("app sleeps_in_{tid}");
        (Tid(tid), user(&mut r, 7, &["libc.so.6 clock_nanosleep", &function, "app main"]))
    });
    let futex = kernel(&mut r, &["schedule", "futex_do_wait", "futex_wait", "do_futex"]);
    let nap = kernel(&mut r, &["schedule", "do_nanosleep", "hrtimer_nanosleep"]);
    edit(&mut r, |all| {
        for wait in all.iter_mut() {
            wait.tgid = Tgid(7);
            let waits_again = twist == Twist::WaitsAgain && wait.tid == Tid(last);
            let is_at_lock = wait.tid == Tid(WAITER) || wait.wake.is_some() || waits_again;
            if is_at_lock {
                (wait.user_stack, wait.kernel_stack) = (locks, futex);
                wait.syscall = syscall(FUTEX, [LOCK, WAIT, 2, 0, 0, 0]);
            } else {
                wait.kernel_stack = nap;
                wait.user_stack = sleeps.iter().find(|(tid, _)| *tid == wait.tid).unwrap().1;
                wait.syscall = syscall(CLOCK_NANOSLEEP, [0; 6]);
            }
            if let Some(wake) = &mut wait.wake {
                (wake.current.tgid, wake.user_stack) = (Tgid(7), unlocks);
                wake.syscall = syscall(FUTEX, [LOCK, WAKE, 1, 0, 0, 0]);
                let has_timeout = twist == Twist::HasTimeout && wait.tid == Tid(last);
                wait.timeout = has_timeout.then_some(Nanos(10_000 * TICK));
            }
        }
    });
    for exit in &mut r.exits {
        exit.tgid = Tgid(7);
    }
    in_process(&mut r, 7, &[WAITER, BEGINNER, first, last]);
    if twist == Twist::LostRecord {
        live(
            &mut r,
            61,
            &format!("{}{}{}", "#".repeat(10), ".".repeat(10), "#".repeat(LENGTH - 20)),
            0,
        );
        in_process(&mut r, 7, &[61]);
        lose(&mut r, 61, 1);
    }
    assert_eq!(at(1).0 - at(0).0, TICK);
    r
}

/// What is told of the waiter.
fn told(first: u32, last: u32, twist: Twist) -> Finding {
    let list = findings(&mut record(first, last, twist));
    let is_its = |found: &&Finding| {
        found.still_waiting && found.chain[0].tid.is_none_or(|tid| tid == Tid(WAITER))
    };
    list.iter().find(is_its).unwrap_or_else(|| panic!("{twist:?}: {list:#?}")).clone()
}

#[test]
fn who_was_woken_by_the_last_release_of_a_lock_has_it() {
    for (first, last) in [(8, 9), (9, 8)] {
        let found = told(first, last, Twist::None);
        let tids: Vec<_> = found.chain.iter().filter_map(|hop| hop.tid).collect();
        assert_eq!(tids, [Tid(WAITER), Tid(last)], "{found:#?}");
        let what = format!("waits for a lock held by thread thread{last}");
        assert_eq!(found.chain[0].what, what, "{found:#?}");
        assert!(found.cause.text.ends_with(&format!("sleeps in sleeps_in_{last}")), "{found:#?}");
    }
}

#[test]
fn nobody_is_named_who_may_have_no_lock_any_more() {
    for (first, last) in [(8, 9), (9, 8)] {
        for twist in [
            Twist::LateWaiter,
            Twist::WaitsAgain,
            Twist::HasTimeout,
            Twist::LostRecord,
            Twist::HasEnded,
        ] {
            let found = told(first, last, twist);
            assert_eq!(found.chain.len(), 1, "{twist:?}: {found:#?}");
            assert!(!format!("{found:?}").contains("held by"), "{twist:?}: {found:#?}");
        }
    }
}
