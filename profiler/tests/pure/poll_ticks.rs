//! Whom a loop was waited for that polls again after each timeout.

use offwake_analysis::filter::Filter;
use offwake_recording::{
    Recording, Scope, SummedWaits, ThreadKind, Wait, WakeContext,
    units::{Cpu, Nanos, Tgid, Tid},
};

use crate::{
    draw::{TICK, at, edit, live, recording},
    fixtures::{EPOLL_WAIT, kernel, syscall, user},
    golden::report as build_report,
};

/// 7 waits for the loop 8, which three timeouts of 20 ms wake, and then 9.
///
/// ```text
/// 7  #..........................................r#
/// 8  #....r#....r#....r#....................r####^
/// 9  ########################################^###
/// ```
fn client_of_a_loop(change: impl FnOnce(&mut [&mut Wait])) -> Recording {
    let mut r = recording(100);
    live(&mut r, 7, &format!("#{}r{}", ".".repeat(90), "#".repeat(8)), 8);
    let polls = format!("#{}", format!("{}r#", ".".repeat(20)).repeat(3));
    live(&mut r, 8, &format!("{polls}{}r{}", ".".repeat(18), "#".repeat(14)), 9);
    live(&mut r, 9, &"#".repeat(100), 0);
    let runs = user(&mut r, 8, &["libc.so.6 epoll_wait", "app run_loop", "app main"]);
    let poll = kernel(&mut r, &["schedule", "ep_poll", "do_epoll_wait"]);
    edit(&mut r, |waits| {
        let mut polls: Vec<&mut Wait> =
            waits.iter_mut().filter(|wait| wait.tid == Tid(8)).collect();
        assert_eq!(polls.len(), 4);
        for wait in &mut polls {
            wait.syscall = syscall(EPOLL_WAIT, [4, 0, 16, 20, 0, 0]);
            (wait.user_stack, wait.kernel_stack) = (runs, poll);
        }
        for n in 0..3 {
            polls[n].wake.as_mut().unwrap().context = WakeContext::Hrtimer;
            polls[n + 1].off = polls[n].on + Nanos(TICK / 10);
        }
        change(&mut polls);
    });
    r
}

/// The milliseconds of 7's wait that are 9's work.
fn work_of_9(mut r: Recording) -> u64 {
    r.sort();
    let report = build_report(&r, &Filter::default());
    let waits = report.waits.iter().filter(|waits| waits.tid == Tid(7));
    let parts = waits.flat_map(|waits| &waits.blame);
    let of_9 = parts.filter(|part| part.kind.name() == "work" && part.tid == Some(Tid(9)));
    of_9.map(|part| part.ns.0).sum::<u64>() / TICK
}

#[test]
fn who_ends_the_last_poll_was_waited_for_and_not_the_timeouts_before() {
    let work = work_of_9(client_of_a_loop(|_| {}));
    assert!(work >= 80, "{work} ms");
}

#[test]
fn a_loop_that_has_something_to_do_at_a_timeout_sleeps_until_then() {
    // It polls for as long as is left until a certain time, or once without a timeout.
    for last in [18, -1_i64] {
        let work = work_of_9(client_of_a_loop(|polls| {
            polls[3].syscall = syscall(EPOLL_WAIT, [4, 0, 16, last.cast_unsigned(), 0, 0]);
        }));
        assert!(work <= 20, "{last}: {work} ms");
    }
    // It works after a timeout. What comes after that is a row of its own.
    let work = work_of_9(client_of_a_loop(|polls| polls[2].off = polls[1].on + Nanos(TICK)));
    assert!((30..=45).contains(&work), "{work} ms");
    // It polls elsewhere.
    let work = work_of_9(client_of_a_loop(|polls| polls[3].user_stack = polls[3].kernel_stack));
    assert!(work <= 20, "{work} ms");
}

#[test]
fn where_waits_are_missing_nobody_knows_whom_a_loop_woke() {
    let mut narrow = client_of_a_loop(|_| {});
    narrow.meta.scope = Scope::Target;
    let mut summed = client_of_a_loop(|_| {});
    summed.summed.push(SummedWaits {
        tid: Tid(60),
        tgid: Tgid(60),
        kind: ThreadKind::User,
        in_target: false,
        seq: 5,
        waits: 2,
        preemptions: 0,
        from: at(10),
        until: at(20),
        off_cpu: Cpu(0),
        on_cpu: Cpu(0),
        blocked: Nanos(2 * TICK),
        runnable: Nanos(0),
        longest: Nanos(TICK),
    });
    for recording in [narrow, summed] {
        let work = work_of_9(recording);
        assert!(work <= 21, "{work} ms");
    }
}

/// It counts timeouts, and what 9 has to say is of no use to it.
#[test]
fn who_tells_a_loop_something_after_which_it_polls_on_was_not_waited_for() {
    let work = work_of_9(client_of_a_loop(|polls| {
        let [.., third, last] = polls else { unreachable!() };
        let (one, other) = (third.wake.as_mut().unwrap(), last.wake.as_mut().unwrap());
        std::mem::swap(&mut one.context, &mut other.context);
    }));
    // The poll that it ended, as ever.
    assert!(work <= 21, "{work} ms");
}

/// At the second timeout it wakes 60, which it may have asked for something.
#[test]
fn a_loop_that_wakes_somebody_at_a_timeout_slept_until_then() {
    let mut r = client_of_a_loop(|_| {});
    live(&mut r, 60, &format!("#{}r{}", ".".repeat(41), "#".repeat(57)), 8);
    let woken_at = {
        let waits: Vec<Wait> = r.waits.iter().collect();
        let mut polls: Vec<&Wait> = waits.iter().filter(|wait| wait.tid == Tid(8)).collect();
        polls.sort_by_key(|wait| wait.off);
        polls[1].on + Nanos(TICK / 20)
    };
    edit(&mut r, |waits| {
        let woken = waits.iter_mut().find(|wait| wait.tid == Tid(60)).unwrap();
        woken.wake.as_mut().unwrap().at = woken_at;
        woken.on = woken_at + Nanos(TICK);
    });
    let work = work_of_9(r);
    assert!((30..=45).contains(&work), "{work} ms");
}
