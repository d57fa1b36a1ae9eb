//! What every first screen says, rule by rule: findings, their chains and their causes.

use offwake_analysis::{
    filter::Filter,
    findings::{Finding, FindingKind},
    report::{Report, markdown, summary},
};
use offwake_recording::{
    FileId, OpenFile, ProcessInfo, Recording, Sample, SocketRole, StackEnd, StackRef, ThreadEvent,
    ThreadEventReason, ThreadRef, WakeContext,
    units::{Cpu, Nanos, Tgid, Tid, Timestamp},
};

use crate::{
    draw::{TICK, at, edit, live, recording},
    fixtures::{CLOCK_NANOSLEEP, EPOLL_WAIT, FUTEX, RECVFROM, kernel, syscall, tcp, user},
    golden::{report as build_report, written},
};

fn report(recording: &mut Recording) -> Report {
    recording.sort();
    build_report(recording, &Filter::default())
}

/// The first screen without its first and last line.
fn findings(recording: &mut Recording) -> Vec<String> {
    let report = report(recording);
    let text = written(&report, summary::write);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let rest = lines.iter().position(|line| line.starts_with("no relevant loss")).unwrap();
    lines[1..rest].to_vec()
}

fn first(recording: &mut Recording) -> Finding {
    report(recording).findings.list.into_iter().next().expect("a finding")
}

fn process(tgid: u32, arguments: &[&str]) -> ProcessInfo {
    ProcessInfo {
        tgid: Tgid(tgid),
        at: Timestamp(0),
        parent: None,
        executable: Some(format!("/usr/bin/{}", arguments[0].split([' ', ':']).next().unwrap())),
        arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
        cgroup: None,
        pid_in_container: None,
        uid: None,
    }
}

fn sleep_stack(r: &mut Recording, tgid: u32, function: &str) -> StackRef {
    user(r, tgid, &["libc.so.6 clock_nanosleep", &format!("app {function}"), "app main"])
}

/// Thread 7 asks 60, which asks 61, which sleeps: only the last of them is the cause.
fn three_programs() -> Recording {
    let mut r = recording(100);
    live(
        &mut r,
        7,
        "#..........................................................................r#",
        60,
    );
    live(
        &mut r,
        60,
        "##.......................................................................r####",
        61,
    );
    live(
        &mut r,
        61,
        "###...................................................................#########",
        0,
    );
    r.processes = vec![
        process(7, &["checkout", "--port", "80"]),
        process(60, &["postgres: app shop [local] UPDATE waiting"]),
        process(61, &["python3", "/srv/cron_tx.py"]),
    ];
    let ask = user(&mut r, 7, &["libc.so.6 recv", "checkout ask_database", "checkout main"]);
    let lock = user(
        &mut r,
        60,
        &["libc.so.6 epoll_wait", "postgres WaitEventSetWait", "postgres LockAcquire"],
    );
    let sleeps = sleep_stack(&mut r, 61, "call_payment_api");
    let nap = kernel(&mut r, &["schedule", "do_nanosleep", "hrtimer_nanosleep"]);
    edit(&mut r, |waits| {
        for wait in waits {
            match wait.tid.0 {
                7 => (wait.user_stack, wait.syscall) = (ask, syscall(RECVFROM, [3, 0, 0, 0, 0, 0])),
                60 => (wait.user_stack, wait.syscall) = (lock, syscall(RECVFROM, [3; 6])),
                _ => {
                    wait.user_stack = sleeps;
                    wait.kernel_stack = nap;
                    wait.syscall = syscall(CLOCK_NANOSLEEP, [0; 6]);
                    wait.wake.as_mut().unwrap().context = WakeContext::Hrtimer;
                }
            }
        }
    });
    r
}

#[test]
fn a_chain_has_a_line_for_each_hop_that_says_where_it_slept_and_ends_with_the_cause() {
    let lines = findings(&mut three_programs());
    assert!(lines[0].contains("checkout 7 waits for postgres in ask_database"), "{lines:#?}");
    assert!(lines[1].contains("└ postgres 60 \"UPDATE waiting\""), "{lines:#?}");
    // The wrapper through which all its waits go says nothing.
    assert!(
        lines[1].contains("waits for a lock of python3 cron_tx.py in LockAcquire"),
        "{lines:#?}"
    );
    assert!(lines[2].contains("└ python3 61 cron_tx.py sleeps in call_payment_api"), "{lines:#?}");
    assert!(
        lines[3].trim_start().starts_with("for 67.0 ms while 1 thread waits  ← cause, "),
        "{lines:#?}"
    );
}

/// Threads of process 7 ask 60 one after the other, so many ticks each, in these functions. It sleeps each time, in
/// `call_payment_api`. Where a function is none, its frames are missing and so are those of 60.
fn asks(waits: &[(u32, usize, Option<&str>)]) -> Recording {
    let length = waits.iter().map(|(_, ticks, _)| ticks + 8).sum();
    let mut r = recording(length);
    let life = |is_own: &dyn Fn(u32) -> bool, shorter: usize| -> String {
        let part = |&(tid, ticks, _): &(u32, usize, Option<&str>)| match is_own(tid) {
            true => format!("#{}r{}", ".".repeat(ticks - shorter), "#".repeat(6 + shorter)),
            false => "#".repeat(ticks + 8),
        };
        waits.iter().map(part).collect()
    };
    let tids: std::collections::BTreeSet<u32> = waits.iter().map(|&(tid, ..)| tid).collect();
    for &tid in &tids {
        live(&mut r, tid, &life(&|own| own == tid, 0), 60);
    }
    live(&mut r, 60, &life(&|_| true, 3), 0);
    for event in r.thread_events.iter_mut().filter(|event| event.tid.0 < 60) {
        event.tgid = Tgid(7);
    }
    r.processes = vec![process(7, &["checkout"]), process(60, &["python3", "/srv/cron_tx.py"])];
    let ask = |r: &mut Recording, function: Option<&str>| {
        let own = function.map(|function| format!("checkout {function}"));
        let frames: Vec<&str> = ["libc.so.6 recv"].into_iter().chain(own.as_deref()).collect();
        user(r, 7, &frames)
    };
    let stacks: Vec<_> =
        waits.iter().map(|&(_, _, function)| (ask(&mut r, function), function)).collect();
    let nap = sleep_stack(&mut r, 60, "call_payment_api");
    let cut_nap = user(&mut r, 60, &["libc.so.6 clock_nanosleep"]);
    let receive = kernel(&mut r, &["schedule", "schedule_timeout", "unix_stream_data_wait"]);
    let kernel_nap = kernel(&mut r, &["schedule", "do_nanosleep", "hrtimer_nanosleep"]);
    edit(&mut r, |all| {
        all.sort_by_key(|wait| (wait.tid.0 == 60, wait.off));
        for (wait, (stack, _)) in all.iter_mut().zip(&stacks) {
            (wait.tgid, wait.user_stack) = (Tgid(7), *stack);
            (wait.kernel_stack, wait.syscall) = (receive, syscall(RECVFROM, [3, 0, 0, 0, 0, 0]));
        }
        for (wait, (_, function)) in all.iter_mut().skip(stacks.len()).zip(&stacks) {
            wait.user_stack = if function.is_some() { nap } else { cut_nap };
            (wait.kernel_stack, wait.syscall) = (kernel_nap, syscall(CLOCK_NANOSLEEP, [0; 6]));
            wait.wake.as_mut().unwrap().context = WakeContext::Hrtimer;
        }
    });
    r
}

fn waits_of_checkout(waits: &[(u32, usize, Option<&str>)]) -> Vec<Finding> {
    let list = report(&mut asks(waits)).findings.list;
    let waits = |finding: &Finding| finding.chain[0].program == "checkout" && finding.count > 0;
    list.into_iter().filter(waits).collect()
}

#[test]
fn one_cause_that_was_seen_without_its_frames_as_well_is_one_finding() {
    let found = waits_of_checkout(&[(7, 150, Some("ask_database")), (7, 30, None)]);
    let [finding] = found.as_slice() else { panic!("{found:#?}") };
    assert_eq!((finding.count, finding.chain.len()), (2, 2), "{finding:#?}");
    let functions: Vec<_> = finding.chain.iter().map(|hop| hop.function.as_deref()).collect();
    assert_eq!(functions, [Some("ask_database"), Some("call_payment_api")], "{finding:#?}");
    assert_eq!(finding.lines.len(), 2, "{finding:#?}");
}

#[test]
fn what_was_seen_without_its_frames_stays_on_its_own_if_it_may_be_something_else() {
    // A thread that was never seen in that function.
    let of_two_threads = [(7, 150, Some("ask_database")), (8, 30, None)];
    assert_eq!(waits_of_checkout(&of_two_threads).len(), 2);
    // A thread that asks in two functions.
    let in_two_functions =
        [(7, 90, Some("ask_database")), (7, 60, Some("ask_cache")), (7, 30, None)];
    assert_eq!(waits_of_checkout(&in_two_functions).len(), 3);
    // More of the time than what it would be called after.
    let mostly_unknown = [(7, 30, Some("ask_database")), (7, 150, None)];
    assert_eq!(waits_of_checkout(&mostly_unknown).len(), 2);
}

#[test]
fn a_sleep_that_others_wait_for_says_how_long_it_is_at_a_time_and_how_many_wait() {
    let said = |waits: &[(u32, usize, Option<&str>)]| {
        let found = waits_of_checkout(waits);
        let (line, cause) = (found[0].lines.last().unwrap(), &found[0].cause.text);
        assert!(cause.ends_with(line.addition.as_deref().unwrap()), "{cause} {line:#?}");
        line.addition.clone().unwrap()
    };
    let ask = Some("ask_database");
    assert_eq!(said(&[(7, 100, ask)]), "for 97.0 ms while 1 thread waits");
    let twice = said(&[(7, 100, ask), (7, 110, ask)]);
    assert_eq!(twice, "97.0 ms at a time while 1 thread waits");
    // One after the other is not at once.
    let of_two = said(&[(7, 100, ask), (8, 200, ask)]);
    assert_eq!(of_two, "up to 197 ms at a time while others wait");
}

#[test]
fn threads_that_waited_at_once_are_counted() {
    let mut r = asks(&[(7, 100, Some("ask_database"))]);
    live(&mut r, 8, &format!("#{}r{}", ".".repeat(100), "#".repeat(6)), 60);
    r.thread_events.iter_mut().filter(|event| event.tid.0 == 8).for_each(|it| it.tgid = Tgid(7));
    edit(&mut r, |waits| {
        let of_7 = waits.iter().find(|wait| wait.tid.0 == 7).cloned().unwrap();
        for wait in waits.iter_mut().filter(|wait| wait.tid.0 == 8) {
            wait.tgid = Tgid(7);
            (wait.user_stack, wait.kernel_stack) = (of_7.user_stack, of_7.kernel_stack);
            wait.syscall = of_7.syscall;
        }
    });
    let finding = first(&mut r);
    let cause = finding.chain.last().unwrap();
    assert_eq!(cause.sleep.as_ref().unwrap().waiting_threads, Some(2), "{finding:#?}");
    assert!(finding.cause.text.ends_with(", for 97.0 ms while 2 threads wait"), "{finding:#?}");
}

#[test]
fn a_sleep_that_nobody_waits_for_is_not_said_to_hold_anybody_up() {
    let list = report(&mut asks(&[(7, 100, Some("ask_database"))])).findings.list;
    for finding in list {
        let others: Vec<_> = finding.chain.iter().filter(|hop| hop.program != "python3").collect();
        assert!(others.iter().all(|hop| hop.sleep.is_none()), "{finding:#?}");
    }
    let mut r = recording(100);
    live(&mut r, 7, &format!("#{}r##", ".".repeat(96)), 0);
    let nap = sleep_stack(&mut r, 7, "pause");
    edit(&mut r, |waits| {
        waits[0].user_stack = nap;
        waits[0].syscall = syscall(CLOCK_NANOSLEEP, [0; 6]);
        waits[0].wake.as_mut().unwrap().context = WakeContext::Hrtimer;
    });
    let list = report(&mut r).findings.list;
    let sleep = list.iter().find(|finding| finding.kind == FindingKind::Sleep).unwrap();
    assert!(sleep.lines[0].addition.is_none() && sleep.chain[0].sleep.is_none(), "{sleep:#?}");
}

/// A second client of the server waits for what the first one does.
#[test]
fn findings_that_lead_to_the_cause_of_one_before_them_say_so() {
    let mut r = three_programs();
    live(&mut r, 8, &format!("#{}r#", ".".repeat(74)), 60);
    r.processes.push(process(8, &["worker", "--queue", "mail"]));
    let ask = user(&mut r, 8, &["libc.so.6 recv", "worker ask_too", "worker main"]);
    edit(&mut r, |waits| {
        for wait in waits.iter_mut().filter(|wait| wait.tid == Tid(8)) {
            (wait.user_stack, wait.syscall) = (ask, syscall(RECVFROM, [3, 0, 0, 0, 0, 0]));
        }
    });
    let list = report(&mut r).findings.list;
    let leads_on = |finding: &&Finding| finding.chain.len() > 1;
    let same: Vec<_> = list.iter().filter(leads_on).map(|f| f.same_cause_as).collect();
    assert_eq!(same, [None, Some(1)], "{list:#?}");
    let lines = findings(&mut r);
    // What there is no room for behind the function has a line of its own.
    let causes: Vec<&String> = lines.iter().filter(|line| line.contains("waits  ←")).collect();
    assert_eq!(lines.iter().filter(|line| line.ends_with("sleeps in call_payment_api")).count(), 2);
    assert!(causes[0].contains("← cause, "), "{lines:#?}");
    assert!(causes[0].ends_with("% with 2)"), "{lines:#?}");
    let sum = list[0].with_same_cause.clone().expect("a sum");
    assert_eq!(sum.findings, [2]);
    assert_eq!(sum.ns, list[0].cause.ns + list[1].cause.ns);
    assert!(causes[1].contains("← same cause as 1, "), "{lines:#?}");
    let mut text = Vec::new();
    markdown::write(&report(&mut r), &mut text).expect("a Vec takes everything");
    let text = String::from_utf8(text).expect("UTF-8");
    assert!(text.contains("`, the same as of 1 |") && text.contains("% with 2 |"), "{text}");
}

/// Process 7 runs a script, becomes another program at tick 40, and waits before and after that.
fn one_program_after_another() -> Recording {
    let mut r = recording(100);
    let life = format!("#{}r######{}r#", ".".repeat(30), ".".repeat(60));
    live(&mut r, 7, &life, 60);
    live(&mut r, 60, &"#".repeat(100), 0);
    let mut scripted = process(7, &["bash", "deploy.sh"]);
    scripted.at = at(1);
    let mut sorting = process(7, &["sort", "orders.csv"]);
    sorting.at = at(36);
    r.processes = vec![scripted, sorting, process(60, &["loader"])];
    let mut event = r.thread_events[0].clone();
    event.comm = "sort".to_owned();
    for (reason, tick) in [(ThreadEventReason::Rename, 34), (ThreadEventReason::Exec, 35)] {
        r.thread_events.push(ThreadEvent { reason, at: at(tick), ..event.clone() });
    }
    let reads = user(&mut r, 7, &["libc.so.6 read", "bash zread", "bash main"]);
    let sorts = user(&mut r, 7, &["libc.so.6 read", "sort fillbuf", "sort main"]);
    edit(&mut r, |waits| {
        for wait in waits.iter_mut().filter(|wait| wait.tid.0 == 7) {
            wait.syscall = syscall(0, [0; 6]);
            wait.user_stack = if wait.seq == 1 { reads } else { sorts };
        }
    });
    r
}

#[test]
fn what_a_process_ran_before_an_exec_keeps_its_name() {
    let text = findings(&mut one_program_after_another()).join("\n");
    let line = |function: &str| {
        let line = text.lines().find(|line| line.contains(function));
        line.unwrap_or_else(|| panic!("{function} is not in {text}")).to_owned()
    };
    assert!(line("fillbuf").contains("sort 7 orders.csv waits"), "{text}");
    assert!(line("zread").contains("bash 7 deploy.sh waits"), "{text}");
}

#[test]
fn findings_tell_machines_the_same_as_people() {
    let finding = first(&mut three_programs());
    assert_eq!(finding.kind, FindingKind::Wait);
    assert_eq!((finding.cause.kind, finding.still_waiting), ("timer", false));
    let programs: Vec<_> = finding.chain.iter().map(|hop| hop.program.as_str()).collect();
    assert_eq!(programs, ["checkout", "postgres", "python3"]);
    let functions: Vec<_> = finding.chain.iter().map(|hop| hop.function.as_deref()).collect();
    assert_eq!(functions, [Some("ask_database"), Some("LockAcquire"), Some("call_payment_api")]);
    assert!(finding.cause.share > 0.6 && finding.cause.share <= finding.share, "{finding:?}");
    assert!(finding.cause.text.contains("cron_tx.py sleeps in call_payment_api"), "{finding:?}");
}

#[test]
fn markdown_is_what_the_screen_says_and_no_name_can_end_its_code() {
    let mut r = three_programs();
    r.processes[2].arguments[1] = "a`|b\u{1b}[31m.py".to_owned();
    let report = report(&mut r);
    let mut text = Vec::new();
    markdown::write(&report, &mut text).expect("a Vec takes everything");
    let text = String::from_utf8(text).expect("UTF-8");
    assert!(text.contains("ask_database") && text.contains("call_payment_api"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("| 1 |")), "{text}");
    assert!(!text.contains('\u{1b}') && text.matches("```").count() == 2, "{text}");
    for row in text.lines().filter(|line| line.starts_with('|')) {
        assert_eq!(row.matches('|').count(), 5, "{row}");
    }
}

/// Thread 7 waits in two pieces, the first of which a timer ends; 8 ends the second. Between them
/// is so much CPU time, and the second is in the stack that `second` makes.
fn timed_pieces(
    between: Nanos,
    second: impl FnOnce(&mut Recording, StackRef) -> StackRef,
) -> Recording {
    let mut r = recording(100);
    live(&mut r, 7, &format!("#{}#{}r{}", ".".repeat(40), ".".repeat(40), "#".repeat(17)), 8);
    live(&mut r, 8, &"#".repeat(100), 9);
    let gil = user(&mut r, 7, &["libc.so.6 pthread_cond_timedwait", "app take_gil", "app main"]);
    let other = second(&mut r, gil);
    let futex = kernel(&mut r, &["schedule", "futex_do_wait", "futex_wait", "do_futex"]);
    edit(&mut r, |waits| {
        for (n, wait) in waits.iter_mut().enumerate() {
            wait.syscall = syscall(FUTEX, [0x1000, 0, 0, 0, 0, 0]);
            wait.kernel_stack = futex;
            wait.user_stack = if n == 0 { gil } else { other };
        }
        waits[0].wake.as_mut().unwrap().context = WakeContext::Hrtimer;
        waits[1].off = waits[0].on + between;
    });
    r
}

fn first_wait_is_work(r: &mut Recording) -> bool {
    let report = report(r);
    let all: Vec<_> = report.waits.iter().flat_map(|wait| &wait.blame).collect();
    all.iter().all(|part| part.kind.name() == "work")
}

#[test]
fn a_wait_that_is_begun_anew_after_its_timeout_is_blamed_on_who_ends_it_at_last() {
    let check = Nanos(TICK / 10);
    assert!(first_wait_is_work(&mut timed_pieces(check, |_, gil| gil)));
    // A timer reads the stack of a thread later than whoever wakes it: its last frames differ.
    let mut later = timed_pieces(check, |_, gil| gil);
    let expired = kernel(&mut later, &["futex_do_wait", "futex_wait", "do_futex"]);
    edit(&mut later, |waits| waits[0].kernel_stack = expired);
    assert!(first_wait_is_work(&mut later));
    // As PostgreSQL looks for deadlocks.
    let mut by_alarm = timed_pieces(check, |_, gil| gil);
    edit(&mut by_alarm, |waits| {
        waits[0].wake.as_mut().unwrap().context = WakeContext::TimerSignal;
    });
    assert!(first_wait_is_work(&mut by_alarm));
    // Who did something in between waited for that time only.
    assert!(!first_wait_is_work(&mut timed_pieces(Nanos(TICK), |_, gil| gil)));
    // And so did who then waited somewhere else.
    let elsewhere =
        |r: &mut Recording, _| user(r, 7, &["libc.so.6 pthread_cond_wait", "app next", "app main"]);
    assert!(!first_wait_is_work(&mut timed_pieces(check, elsewhere)));
    // An event loop that went on after a timer of its own did not wait for who came next.
    let mut event_loop = timed_pieces(check, |_, gil| gil);
    let stack = user(&mut event_loop, 7, &["libc.so.6 epoll_wait", "app run_loop", "app main"]);
    let poll = kernel(&mut event_loop, &["schedule", "ep_poll", "do_epoll_wait"]);
    edit(&mut event_loop, |waits| {
        for wait in waits {
            wait.syscall = syscall(EPOLL_WAIT, [4, 0, 0, 0, 0, 0]);
            (wait.user_stack, wait.kernel_stack) = (stack, poll);
        }
    });
    assert!(!first_wait_is_work(&mut event_loop));
}

/// A session of PostgreSQL's, 7: an alarm strikes while it waits for its client, 8. The next wait in that
/// place, if there is one, is ended by 9.
fn session(another: bool) -> Recording {
    let mut r = recording(100);
    let third = if another { "....r##" } else { "#######" };
    let life = format!("#{}#{}r{third}{}", ".".repeat(40), ".".repeat(40), "#".repeat(10));
    live(&mut r, 7, &life, 8);
    live(&mut r, 8, &"#".repeat(100), 0);
    live(&mut r, 9, &"#".repeat(100), 0);
    let reads = user(&mut r, 7, &["libc.so.6 epoll_wait", "postgres secure_read", "postgres main"]);
    let poll = kernel(&mut r, &["schedule", "ep_poll", "do_epoll_wait"]);
    edit(&mut r, |waits| {
        for wait in waits.iter_mut() {
            wait.syscall = syscall(EPOLL_WAIT, [4, 0, 0, 0, 0, 0]);
            (wait.user_stack, wait.kernel_stack) = (reads, poll);
        }
        waits[0].wake.as_mut().unwrap().context = WakeContext::TimerSignal;
        waits[1].off = waits[0].on + Nanos(TICK / 10);
        if let Some(third) = waits.get_mut(2) {
            third.wake.as_mut().unwrap().current = ThreadRef { tid: Tid(9), tgid: Tgid(9) };
        }
    });
    r
}

#[test]
fn an_alarm_does_not_end_the_wait_for_whoever_alone_asks_a_session() {
    assert!(first_wait_is_work(&mut session(false)));
    // A loop that two ask did not wait for either of them.
    assert!(!first_wait_is_work(&mut session(true)));
    // What the loop does after a timer of its own, it does for nobody who is known.
    let mut own_timer = session(false);
    edit(&mut own_timer, |waits| waits[0].wake.as_mut().unwrap().context = WakeContext::Hrtimer);
    assert!(!first_wait_is_work(&mut own_timer));
    // And so did who then worked.
    let mut works = session(false);
    edit(&mut works, |waits| waits[1].off = waits[0].on + Nanos(TICK));
    assert!(!first_wait_is_work(&mut works));
}

/// Thread 7 waits on a condition that 8 signals, which has slept itself in this function.
fn hand_over(waits_in: &str, sleeps_in: &str) -> Finding {
    let mut r = recording(100);
    live(&mut r, 7, &format!("#{}r{}", ".".repeat(80), "#".repeat(18)), 8);
    live(&mut r, 8, &format!("#{}r{}", ".".repeat(70), "#".repeat(28)), 0);
    let waits_in = user(&mut r, 7, &["libc.so.6 pthread_cond_wait", waits_in, "app main"]);
    let sleeps_in = user(&mut r, 8, &["libc.so.6 pthread_cond_timedwait", sleeps_in, "app run"]);
    let futex = kernel(&mut r, &["schedule", "futex_do_wait", "futex_wait", "do_futex"]);
    edit(&mut r, |waits| {
        for wait in waits {
            wait.syscall = syscall(FUTEX, [0x1000, 0, 0, 0, 0, 0]);
            wait.kernel_stack = futex;
            wait.user_stack = if wait.tid.0 == 7 { waits_in } else { sleeps_in };
            if wait.tid.0 == 8 {
                wait.wake.as_mut().unwrap().context = WakeContext::Hrtimer;
            }
        }
    });
    first(&mut r)
}

#[test]
fn who_waits_for_a_monitor_is_not_idle_and_neither_is_who_sleeps_with_it() {
    let finding = hand_over(
        "libjvm.so ObjectMonitor::enter(JavaThread*)",
        "libjvm.so JavaThread::sleep(long)",
    );
    assert!(finding.text.contains("waits for a lock"), "{finding:?}");
    assert_eq!(finding.cause.kind, "timer");
    assert!(finding.cause.text.contains("sleeps"), "{finding:?}");
    // The same futexes of a pool's threads are idle: the one waits for its next job, the other
    // until its time is over.
    let finding = hand_over("libjvm.so CompileQueue::get()", "app tick");
    assert_eq!(finding.kind, FindingKind::OnCpu, "{finding:?}");
}

#[test]
fn threads_in_a_queue_for_a_lock_wait_for_who_holds_it_and_not_for_each_other() {
    let mut r = recording(100);
    live(&mut r, 7, &format!("#{}r{}", ".".repeat(90), "#".repeat(8)), 8);
    live(&mut r, 8, &format!("#{}r{}", ".".repeat(80), "#".repeat(18)), 60);
    live(&mut r, 60, &"#".repeat(100), 9);
    r.processes = vec![process(7, &["app"]), process(8, &["app"])];
    let acquire = user(&mut r, 7, &["libc.so.6 futex", "app acquire_connection", "app main"]);
    let upload = user(&mut r, 60, &["other upload", "other main"]);
    edit(&mut r, |waits| {
        for wait in waits {
            wait.user_stack = acquire;
            if let Some(wake) = &mut wait.wake {
                wake.user_stack = upload;
            }
        }
    });
    let lines = findings(&mut r);
    assert!(lines[0].contains("acquire_connection"), "{lines:#?}");
    let of_queue = lines.iter().filter(|line| line.contains("└") && line.contains("acquire_conn"));
    assert_eq!(of_queue.count(), 0, "{lines:#?}");
    assert!(lines[1].contains("thread60 60 runs on a CPU in upload"), "{lines:#?}");
}

/// Two services with one program, of which `front` asks the other, which asks thread 61. Returns the first
/// finding's lines.
fn services_of_one_program(front: u32, back: u32, waits_in: &str) -> Vec<String> {
    let mut r = recording(100);
    live(&mut r, front, &format!("#{}r{}", ".".repeat(90), "#".repeat(8)), back);
    live(&mut r, back, &format!("#{}r{}", ".".repeat(80), "#".repeat(18)), 61);
    live(&mut r, 61, &"#".repeat(100), 9);
    let server = ["node", "/srv/server.js"];
    r.processes = vec![process(front, &server), process(back, &server), process(61, &["resize"])];
    let stacks = [front, back].map(|tgid| {
        (Tid(tgid), user(&mut r, tgid, &["libc.so.6 epoll_wait", &format!("node {waits_in}")]))
    });
    edit(&mut r, |waits| {
        for wait in waits {
            wait.syscall = syscall(EPOLL_WAIT, [4, 0, 8, 0, 0, 0]);
            let own = stacks.iter().find(|(tid, _)| *tid == wait.tid);
            wait.user_stack = own.expect("a stack").1;
        }
    });
    findings(&mut r)
}

#[test]
fn another_process_of_the_same_program_is_a_hop_where_it_is_asked_for_something() {
    let asked = services_of_one_program(7, 60, "uv__io_poll");
    assert!(asked[0].contains("node 7 server.js waits for another node"), "{asked:#?}");
    assert!(asked[1].contains("└ node 60 server.js waits for resize"), "{asked:#?}");
    assert!(asked[2].contains("└ resize 61"), "{asked:#?}");
    // Both are in the target, and the finding is about both.
    let both = services_of_one_program(7, 8, "uv__io_poll");
    assert!(both[0].contains("node ×2 server.js waits for resize"), "{both:#?}");
    // Backends of a database that wait for one lock are a queue.
    let queue = services_of_one_program(7, 60, "LockAcquire");
    assert!(!queue.iter().any(|line| line.contains("└ node")), "{queue:#?}");
}

#[test]
fn who_had_the_cpu_is_named_where_threads_could_not_run() {
    let mut r = recording(100);
    live(&mut r, 7, &format!("##{}##", "r".repeat(96)), 0);
    live(&mut r, 60, &format!("rr{}rr", "#".repeat(96)), 0);
    let lines = findings(&mut r);
    assert!(lines[0].contains("waits for a CPU, held by thread60"), "{lines:#?}");
    let finding = first(&mut r);
    assert_eq!(finding.kind, FindingKind::CpuStarvation);
    assert!(finding.lines[0].detail.ends_with(" on 1 CPU"), "{finding:#?}");
}

#[test]
fn what_a_thread_slept_on_purpose_comes_after_what_it_waited_for() {
    let mut r = recording(100);
    live(&mut r, 7, &format!("#{}##{}r#", ".".repeat(60), ".".repeat(35)), 60);
    live(&mut r, 60, &"#".repeat(100), 9);
    let sleeps = sleep_stack(&mut r, 7, "take_a_nap");
    let asks = user(&mut r, 7, &["libc.so.6 recv", "app ask", "app main"]);
    let nap = kernel(&mut r, &["schedule", "do_nanosleep", "hrtimer_nanosleep"]);
    edit(&mut r, |waits| {
        waits[0].user_stack = sleeps;
        waits[0].kernel_stack = nap;
        waits[0].syscall = syscall(CLOCK_NANOSLEEP, [0; 6]);
        waits[0].wake.as_mut().unwrap().context = WakeContext::Hrtimer;
        waits[1].user_stack = asks;
        waits[1].syscall = syscall(RECVFROM, [3, 0, 0, 0, 0, 0]);
    });
    let kinds: Vec<_> = report(&mut r).findings.list.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::Wait, FindingKind::Sleep]);
}

#[test]
fn a_target_that_does_nothing_any_more_is_still_waiting_and_a_pool_beside_it_is_idle() {
    let mut r = recording(3_000);
    live(&mut r, 7, &format!("#{}", "_".repeat(2_999)), 8);
    let lock = user(&mut r, 7, &["libc.so.6 __lll_lock_wait", "app transfer", "app main"]);
    edit(&mut r, |waits| waits[0].user_stack = lock);
    let finding = first(&mut r);
    assert_eq!((finding.kind, finding.still_waiting), (FindingKind::StillWaiting, true));
    assert!(finding.text.contains("waits") && finding.text.contains("transfer"), "{finding:?}");
    // A thread that waits for its next job to the end is no finding.
    let mut r = recording(3_000);
    live(&mut r, 7, &format!("#{}", "_".repeat(2_999)), 8);
    live(&mut r, 8, &"#".repeat(3_000), 9);
    let queue = user(&mut r, 7, &["libc.so.6 pthread_cond_wait", "app next_job", "app main"]);
    edit(&mut r, |waits| waits[0].user_stack = queue);
    assert_eq!(first(&mut r).kind, FindingKind::OnCpu);
}

#[test]
fn idle_time_is_told_from_waits_that_had_not_ended() {
    const ACCEPT: u32 = 43;

    let activity = |accepts: bool| {
        let mut r = recording(3_000);
        live(&mut r, 7, &format!("#{}", "_".repeat(2_999)), 8);
        live(&mut r, 8, &"#".repeat(3_000), 9);
        if accepts {
            edit(&mut r, |waits| waits[0].syscall = syscall(ACCEPT, [3, 0, 0, 0, 0, 0]));
        }
        report(&mut r).findings.activity
    };
    let (idle, open) = (activity(true), activity(false));
    let asleep = Nanos(2_999 * TICK);
    assert_eq!((idle.idle_ns, idle.open_ns), (asleep, Nanos(0)));
    assert_eq!((open.idle_ns, open.open_ns), (asleep, asleep));
    assert_eq!((open.active_threads, open.active_ns), (2, Nanos(3_001 * TICK)));
}

/// Thread 7 waits for 60, in which the sampling clock finds these stacks. Returns where it works.
fn work_of(stacks: &[&[&str]]) -> Option<String> {
    work_with_cut(stacks, &[])
}

/// The same, where some of the stacks end early.
fn work_with_cut(stacks: &[&[&str]], cut: &[&[&str]]) -> Option<String> {
    let mut r = recording(100);
    live(&mut r, 7, &format!("#{}r{}", ".".repeat(90), "#".repeat(8)), 60);
    live(&mut r, 60, &"#".repeat(100), 9);
    let ask = user(&mut r, 7, &["libc.so.6 recv", "app ask", "app main"]);
    edit(&mut r, |waits| {
        waits[0].user_stack = ask;
        waits[0].syscall = syscall(RECVFROM, [3, 0, 0, 0, 0, 0]);
    });
    for (frames, n) in stacks.iter().chain(cut).cycle().take(80).zip(0..) {
        let user_stack = user(&mut r, 60, frames);
        if let StackRef::Id(id) = user_stack
            && cut.contains(frames)
        {
            r.stacks.stacks.get_mut(&id).unwrap().end = StackEnd::OtherStack;
        }
        r.samples.push(Sample {
            at: at(5 + n),
            cpu: Cpu(0),
            tid: Tid(60),
            tgid: Tgid(60),
            seq: Some(0),
            user_stack,
            kernel_stack: StackRef::NotTaken,
        });
    }
    let cause = first(&mut r).chain.pop().expect("a chain");
    assert_eq!(cause.what, "runs on a CPU");
    cause.function
}

#[test]
fn work_of_a_script_without_names_is_named_by_what_it_called() {
    let engine = [
        "node v8::internal::Builtin_HandleApiCall(int, unsigned long*, v8::internal::Isolate*)",
        "node Builtins_InterpreterEntryTrampoline",
        "node v8::Function::Call(v8::Local<v8::Context>)",
        "node node::InternalMakeCallback(node::Environment*)",
        "node uv_run",
    ];
    let with = |frames: &[&'static str]| [frames, &engine[..]].concat();
    let (hash, update) = (
        with(&["node sha512_block_data_order", "node PKCS5_PBKDF2_HMAC", "node node::Job::Run()"]),
        with(&["node HMAC_Update", "node PKCS5_PBKDF2_HMAC", "node node::Job::Run()"]),
    );
    assert_eq!(work_of(&[&hash, &hash, &update]).as_deref(), Some("node::Job::Run()"));
    // The same of the system's library.
    let library = with(&["site-packages/libcrypto.so.3 EVP_DigestUpdate", "node node::Job::Run()"]);
    assert_eq!(work_of(&[&library]).as_deref(), Some("node::Job::Run()"));
    // What the engine does itself is known by where it works.
    let parser = with(&["node v8::internal::JsonParser::Parse()"]);
    let parser = work_of(&[&parser]);
    assert_eq!(parser.as_deref(), Some("v8::internal::JsonParser::Parse()"));
    // Named functions of the script come first, and programs without an engine are as before.
    let own =
        with(&["node PKCS5_PBKDF2_HMAC", "app hashPassword @/srv/app.js:5", "node Builtins_Call"]);
    assert!(work_of(&[&own]).is_some_and(|name| name.contains("hashPassword")));
    let plain = ["node sha512_block_data_order", "node PKCS5_PBKDF2_HMAC", "node main"];
    assert_eq!(work_of(&[&plain]).as_deref(), Some("sha512_block_data_order"));
}

#[test]
fn a_stack_that_ends_early_counts_as_those_that_go_on_from_there() {
    let whole: &[&str] = &["app block", "app finish", "app hash_password", "app main"];
    let finish: &[&str] = &["app finish", "app hash_password", "app main"];
    let init: &[&str] = &["app init", "app hash_password", "app main"];
    let copy: &[&str] = &["app copy", "app hash_password", "app main"];
    let cut: &[&str] = &["app block"];
    // Half of the samples, and more, are in `block`, and most of those lack its callers.
    let found = work_with_cut(&[whole, init, copy], &[cut, cut, cut, cut]);
    assert_eq!(found.as_deref(), Some("hash_password"));
    // Nothing shows who called it: then it is all that is known.
    let found = work_with_cut(&[finish, init, copy], &[cut, cut, cut, cut]);
    assert_eq!(found.as_deref(), Some("block"));
}

/// Thread 7 waits three times, in these functions of its own or in none, for what `callee` does.
/// Returns the findings that are waits.
fn waits_below(callee: &str, functions: [Option<&str>; 3]) -> Vec<Finding> {
    let mut r = recording(100);
    let wait = format!("#{}r", ".".repeat(30));
    live(&mut r, 7, &format!("{}####", wait.repeat(3)), 8);
    live(&mut r, 8, &"#".repeat(100), 9);
    let stacks = functions.map(|function| {
        let own = function.map(|function| format!("app {function}"));
        let callee = format!("python3.11 {callee}");
        let frames = ["libc.so.6 futex_wait", &callee].into_iter().chain(own.as_deref());
        user(&mut r, 7, &frames.collect::<Vec<_>>())
    });
    let futex = kernel(&mut r, &["schedule", "futex_do_wait", "futex_wait", "do_futex"]);
    edit(&mut r, |waits| {
        for (wait, stack) in waits.iter_mut().zip(stacks) {
            wait.syscall = syscall(FUTEX, [0x1000, 0, 0, 0, 0, 0]);
            (wait.user_stack, wait.kernel_stack) = (stack, futex);
        }
    });
    let all = report(&mut r).findings.list;
    all.into_iter().filter(|finding| finding.kind == FindingKind::Wait).collect()
}

#[test]
fn the_interpreters_lock_is_one_wherever_it_is_waited_for() {
    let functions = [Some("main"), Some("answer"), None];
    for callee in ["take_gil", "PyEval_RestoreThread", "PyEval_AcquireThread"] {
        let found = waits_below(callee, functions);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(found[0].text.contains("interpreter's lock (GIL)"), "{found:#?}");
        assert_eq!(found[0].count, 3);
    }
    // Other locks can be several.
    let found = waits_below("PyThread_acquire_lock_timed", functions);
    assert_eq!(found.len(), 3, "{found:#?}");
    let found = waits_below("pthread_mutex_lock", functions);
    assert!(found.len() > 1, "{found:#?}");
}

#[test]
fn waits_whose_function_is_not_known_belong_to_the_only_one_that_may_be_it() {
    let found = waits_below("__res_context_send", [Some("find_host"), None, Some("find_host")]);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].chain[0].function.as_deref(), Some("find_host"));
    let found = waits_below("__res_context_send", [Some("find_host"), None, Some("ping")]);
    assert_eq!(found.len(), 3, "{found:#?}");
    // Without a sign of what they are for, they are anything.
    let found = waits_below("helper", [Some("find_host"), None, Some("find_host")]);
    assert_eq!(found.len(), 2, "{found:#?}");
}

/// Adds sockets that are connected to these addresses, with these roles.
fn tcp_ends(r: &mut Recording, ends: &[(&str, Option<SocketRole>)]) -> Vec<FileId> {
    let add = |(&(remote, role), inode): (&(&str, Option<SocketRole>), u64)| {
        let file = tcp(r, inode, "10.0.0.1:4000", remote);
        if let Some(OpenFile::Socket(end)) = r.files.files.get_mut(&file) {
            end.role = role;
        }
        file
    };
    ends.iter().zip(5..).map(add).collect()
}

/// Thread 7 waits twice in `ask`, on sockets with these roles, for what another does.
fn waits_on_sockets(roles: &[Option<SocketRole>]) -> Vec<Finding> {
    let mut r = recording(100);
    let wait = format!("#{}r", ".".repeat(30));
    live(&mut r, 7, &format!("{}####", wait.repeat(roles.len())), 60);
    live(&mut r, 60, &"#".repeat(100), 9);
    let ask = user(&mut r, 7, &["libc.so.6 recv", "app ask", "app main"]);
    let ends: Vec<_> = roles.iter().map(|&role| ("10.0.0.2:80", role)).collect();
    let sockets = tcp_ends(&mut r, &ends);
    edit(&mut r, |waits| {
        for (wait, file) in waits.iter_mut().zip(sockets) {
            wait.syscall = syscall(RECVFROM, [3, 0, 0, 0, 0, 0]);
            (wait.user_stack, wait.file) = (ask, Some(file));
        }
    });
    let all = report(&mut r).findings.list;
    all.into_iter().filter(|finding| finding.kind == FindingKind::Wait).collect()
}

#[test]
fn connections_that_nobody_looked_at_in_time_are_as_the_others() {
    use SocketRole::{Asking, Serving};
    assert_eq!(waits_on_sockets(&[Some(Asking), None]).len(), 1);
    assert_eq!(waits_on_sockets(&[None, None]).len(), 1);
    // Who serves waits for requests, and is idle.
    assert_eq!(waits_on_sockets(&[Some(Serving), Some(Serving)]).len(), 0);
}

/// What the finding about thread 7 says, which waits for packets from these addresses in turn.
fn waits_for_packets_from(remotes: [&str; 2]) -> String {
    const NET_RX: u16 = 3;
    let mut r = recording(100);
    live(&mut r, 7, &format!("{}####", format!("#{}r", ".".repeat(30)).repeat(2)), 60);
    let ask = user(&mut r, 7, &["libc.so.6 recv", "app ask", "app main"]);
    let sockets = tcp_ends(&mut r, &remotes.map(|remote| (remote, Some(SocketRole::Asking))));
    edit(&mut r, |waits| {
        for (wait, file) in waits.iter_mut().zip(sockets) {
            wait.syscall = syscall(RECVFROM, [3, 0, 0, 0, 0, 0]);
            (wait.user_stack, wait.file) = (ask, Some(file));
            wait.wake.as_mut().unwrap().context = WakeContext::Softirq(NET_RX);
        }
    });
    let all = report(&mut r).findings.list;
    let found = all.iter().find(|it| it.kind == FindingKind::Wait);
    let found = found.unwrap_or_else(|| panic!("a wait for the network: {all:#?}"));
    assert_eq!(found.cause.kind, "network", "{found:#?}");
    found.text.clone()
}

#[test]
fn where_packets_came_from_is_said_as_far_as_it_is_one_place() {
    let text = waits_for_packets_from(["10.0.0.2:80", "10.0.0.2:80"]);
    assert!(text.ends_with("; the other end of the connection is 10.0.0.2:80"), "{text}");
    let text = waits_for_packets_from(["10.0.0.2:80", "10.0.0.2:81"]);
    assert!(text.ends_with("; the other end of the connection is 10.0.0.2"), "{text}");
    let text = waits_for_packets_from(["[2001:db8::2]:80", "[2001:db8::2]:81"]);
    assert!(text.ends_with("; the other end of the connection is [2001:db8::2]"), "{text}");
    let text = waits_for_packets_from(["10.0.0.2:80", "10.0.0.3:80"]);
    assert!(!text.contains("other end"), "{text}");
}

#[test]
fn who_gives_up_a_lock_after_a_timeout_has_not_slept_on_purpose() {
    // It does something in between: the second wait is another one.
    let mut r = timed_pieces(Nanos(TICK), |_, gil| gil);
    let finding = report(&mut r).findings.list.into_iter().find(|it| it.kind == FindingKind::Wait);
    let lines: Vec<_> = finding.iter().flat_map(|it| &it.lines).map(|line| &line.text).collect();
    assert!(lines.iter().any(|text| text.contains("until a timeout")), "{lines:#?}");
    assert!(lines.iter().all(|text| !text.contains("sleeps")), "{lines:#?}");
}

/// What is said of the thread that has a lock which another one wants, and waits on a futex in these functions until
/// a timeout.
fn said_of_who_waits_until_a_timeout(functions: &[&str]) -> String {
    let mut r = recording(100);
    live(&mut r, 7, &format!("#{}r{}", ".".repeat(80), "#".repeat(18)), 8);
    live(&mut r, 8, &format!("##{}r{}", ".".repeat(70), "#".repeat(27)), 9);
    let wants = user(&mut r, 7, &["libc.so.6 pthread_mutex_lock", "app main"]);
    let waits_in = user(&mut r, 8, functions);
    let futex = kernel(&mut r, &["schedule", "futex_do_wait", "futex_wait", "do_futex"]);
    edit(&mut r, |waits| {
        for wait in waits {
            wait.syscall = syscall(FUTEX, [0x1000 * u64::from(wait.tid.0), 0, 0, 0, 0, 0]);
            wait.kernel_stack = futex;
            wait.user_stack = if wait.tid == Tid(7) { wants } else { waits_in };
            if wait.tid == Tid(8) {
                wait.wake.as_mut().unwrap().context = WakeContext::Hrtimer;
            }
        }
    });
    let all = report(&mut r).findings.list;
    let found = all.iter().find(|it| it.kind == FindingKind::Wait && it.chain.len() == 2);
    found.unwrap_or_else(|| panic!("a wait for a lock: {all:#?}")).cause.text.clone()
}

#[test]
fn who_waits_in_vain_is_told_what_for_as_far_as_functions_tell() {
    let park = "libjvm.so Unsafe_Park";
    let said = said_of_who_waits_until_a_timeout(&[park, "[anon] Interpreter", "libjvm.so run"]);
    assert!(
        said.contains("waits for a lock or a condition until a timeout: nobody woke"),
        "{said}"
    );
    for method in [
        "boolean java.util.concurrent.locks.ReentrantLock.tryLock(long, TimeUnit)",
        "Ljava/util/concurrent/locks/ReentrantLock;::tryLock",
    ] {
        let method = format!("[perf-map] {method}");
        let said = said_of_who_waits_until_a_timeout(&[park, &method, "libjvm.so run"]);
        assert!(said.contains("waits for a lock until a timeout"), "{said}");
    }
}

/// MariaDB's `SELECT SLEEP(n)`, say.
#[test]
fn who_waits_on_a_condition_in_vain_is_told_to_sleep_in_a_timed_wait() {
    let timed =
        "sleeps in a timed wait (condition variable) that nobody signalled, until its timeout";
    for call in ["___pthread_cond_timedwait64", "pthread_cond_clockwait@@GLIBC_2.34"] {
        let call = format!("libc.so.6 {call}");
        let said = said_of_who_waits_until_a_timeout(&[&call, "app nap_briefly", "app main"]);
        assert!(said.contains(timed), "{said}");
        // What Java parks for, and CPython's locks, are made of such waits.
        for runtime in ["libjvm.so Unsafe_Park", "python3.11 PyThread_acquire_lock_timed"] {
            let said = said_of_who_waits_until_a_timeout(&[&call, runtime, "app main"]);
            assert!(said.contains("waits for a lock or a condition until a timeout"), "{said}");
        }
    }
    // A semaphore is none, and nor is what no function tells.
    for call in ["libc.so.6 sem_clockwait", "app +10"] {
        let said = said_of_who_waits_until_a_timeout(&[call, "app nap_briefly", "app main"]);
        assert!(!said.contains("condition variable"), "{said}");
    }
}
