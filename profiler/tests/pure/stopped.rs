//! Processes that are stopped while others wait for them.

use offwake_analysis::{
    filter::Filter,
    findings::{Finding, FindingKind},
};
use offwake_recording::{
    OpenFile, PeerProcess, Recording, SocketRole, StopOrigin, StoppedThread, TaskState,
    WakeContext,
    units::{Tgid, Tid},
};

use crate::{
    draw::{edit, live, recording},
    fixtures::{RECVFROM, kernel, syscall, tcp, user},
    golden::report as build_report,
    open_waits::change,
};

const LENGTH: usize = 3_000;
const STOPPED: u32 = 4;
const TRACED: u32 = 8;

fn findings(r: &mut Recording) -> Vec<Finding> {
    r.sort();
    build_report(r, &Filter::default()).findings.list
}

/// Thread 7 lives like this, and asks process 60, whose threads 60 and 61 are in these states from
/// before the window to its end.
fn asks_a_stopped_server(client: &str, states: [u32; 2]) -> Recording {
    let mut r = recording(LENGTH);
    live(&mut r, 7, client, 0);
    for tid in [60, 61] {
        live(&mut r, tid, &"_".repeat(LENGTH), 0);
    }
    let socket = tcp(&mut r, 5, "127.0.0.1:4000", "127.0.0.1:6379");
    let Some(OpenFile::Socket(end)) = r.files.files.get_mut(&socket) else { unreachable!() };
    end.role = Some(SocketRole::Asking);
    end.peers = vec![PeerProcess { tgid: Tgid(60), comm: "thread60".to_owned() }];
    let asks = user(&mut r, 7, &["libc.so.6 recv", "app get_session", "app main"]);
    let polls = kernel(&mut r, &["schedule", "ep_poll", "do_epoll_wait"]);
    edit(&mut r, |waits| {
        for wait in waits {
            match wait.tid.0 {
                7 => {
                    wait.syscall = syscall(RECVFROM, [3, 0, 0, 0, 0, 0]);
                    (wait.user_stack, wait.file) = (asks, Some(socket));
                    if let Some(wake) = &mut wait.wake {
                        wake.context = WakeContext::Hrtimer;
                    }
                }
                tid => {
                    wait.tgid = Tgid(60);
                    wait.state = TaskState(states[(tid - 60) as usize]);
                    wait.kernel_stack = polls;
                }
            }
        }
    });
    for event in r.thread_events.iter_mut().filter(|event| event.tid == Tid(61)) {
        event.tgid = Tgid(60);
    }
    r
}

#[test]
fn who_still_waits_for_a_server_that_is_stopped_waits_for_it_to_go_on() {
    let asleep = format!("##{}", "_".repeat(LENGTH - 2));
    for (states, said) in [
        ([STOPPED; 2], "thread60 60 is stopped (SIGSTOP)"),
        ([TRACED; 2], "thread60 60 is stopped by a tracer (ptrace)"),
        // One of its threads goes on: it may answer.
        ([STOPPED, 1], "thread60 60 has not answered"),
        ([1; 2], "thread60 60 has not answered"),
    ] {
        let list = findings(&mut asks_a_stopped_server(&asleep, states));
        let found = &list[0];
        assert_eq!(found.kind, FindingKind::StillWaiting, "{list:#?}");
        assert_eq!(found.cause.text, said, "{found:#?}");
        assert!(found.lines.iter().any(|line| line.is_cause && line.text == said), "{found:#?}");
    }
}

/// Process 60 is traced by one process and in a frozen cgroup; which of the two stops it, its state and its stack
/// tell.
#[test]
fn who_stops_a_server_is_named_if_it_stops_it_in_that_way() {
    let asleep = format!("##{}", "_".repeat(LENGTH - 2));
    let tracer = StopOrigin::Tracer(PeerProcess { tgid: Tgid(812), comm: "gdb".to_owned() });
    let gone = StopOrigin::Tracer(PeerProcess { tgid: Tgid(812), comm: String::new() });
    let cgroup = StopOrigin::FrozenCgroup("/shop.slice/cache".to_owned());
    let asleep_in = StopOrigin::FrozenAsleep("/shop.slice/cache".to_owned());
    let (by_tracer, by_cgroup) = (
        "thread60 60 is stopped by its tracer gdb 812 (ptrace)",
        "thread60 60 is frozen (freezer of cgroup /shop.slice/cache)",
    );
    for (state, function, origin, said) in [
        (TRACED, "ptrace_stop", &tracer, by_tracer),
        (TRACED, "ptrace_stop", &gone, "thread60 60 is stopped by its tracer process 812 (ptrace)"),
        (1, "do_freezer_trap", &cgroup, by_cgroup),
        (2, "__refrigerator", &cgroup, by_cgroup),
        // The freezer of cgroups v1 leaves no trace in its stack.
        (1, "ep_poll", &asleep_in, by_cgroup),
        // The freezer does not reach it where it sleeps, a signal has stopped it, or the tracer lets it sleep.
        (TRACED, "ptrace_stop", &cgroup, "thread60 60 is stopped by a tracer (ptrace)"),
        (STOPPED, "do_signal_stop", &cgroup, "thread60 60 is stopped (SIGSTOP)"),
        (STOPPED, "do_signal_stop", &tracer, "thread60 60 is stopped (SIGSTOP)"),
        (2, "__refrigerator", &tracer, "thread60 60 is frozen (cgroup freezer)"),
        (1, "ep_poll", &cgroup, "thread60 60 has not answered"),
        (1, "ep_poll", &tracer, "thread60 60 has not answered"),
    ] {
        let mut r = asks_a_stopped_server(&asleep, [state; 2]);
        let stack = kernel(&mut r, &["schedule", function, "get_signal"]);
        edit(&mut r, |waits| {
            for wait in waits.iter_mut().filter(|wait| wait.tgid == Tgid(60)) {
                wait.kernel_stack = stack;
            }
        });
        for tid in [60, 61] {
            r.stopped_threads.push(StoppedThread { tid: Tid(tid), origin: origin.clone() });
        }
        let found = findings(&mut r).remove(0);
        assert_eq!(found.cause.text, said, "{function} {origin:?} {found:#?}");
    }
}

/// The one that stopped it at the end need not be the one that did before.
#[test]
fn who_stopped_a_server_is_named_to_who_gives_up_on_it_if_it_still_does() {
    let tries = format!("#{}r", ".".repeat(998)).repeat(3);
    let tracer = StopOrigin::Tracer(PeerProcess { tgid: Tgid(812), comm: "gdb".to_owned() });
    for (goes_on, said) in [
        (false, "thread60 60 is stopped by its tracer gdb 812 (ptrace)"),
        (true, "thread60 60 is stopped by a tracer (ptrace)"),
    ] {
        let mut r = asks_a_stopped_server(&tries, [TRACED; 2]);
        r.stopped_threads.push(StoppedThread { tid: Tid(60), origin: tracer.clone() });
        if goes_on {
            edit(&mut r, |waits| waits.retain(|wait| wait.tid != Tid(60)));
            r.thread_events.retain(|event| event.tid != Tid(60));
            live(&mut r, 60, &format!("{}##", ".".repeat(LENGTH - 2)), 812);
            change(&mut r, 60, |wait| wait.state = TaskState(TRACED));
        }
        let found = findings(&mut r).remove(0);
        assert_eq!(found.cause.text, said, "{found:#?}");
    }
}

#[test]
fn who_gives_up_on_a_server_that_is_stopped_is_told_so() {
    let tries = format!("#{}r", ".".repeat(998)).repeat(3);
    for (states, is_told) in [([STOPPED; 2], true), ([1; 2], false)] {
        let list = findings(&mut asks_a_stopped_server(&tries, states));
        let found = &list[0];
        assert_eq!((found.kind, found.count), (FindingKind::Wait, 3), "{list:#?}");
        assert!(found.lines[0].text.contains("waits until a timeout"), "{found:#?}");
        let said = "thread60 60 is stopped (SIGSTOP)";
        let line = found.lines.iter().any(|line| line.is_cause && line.text == said);
        assert_eq!((line, found.cause.text == said), (is_told, is_told), "{found:#?}");
    }
}

#[test]
fn a_stop_that_ended_is_the_known_cause_of_who_waited_behind_it() {
    let mut r = recording(16);
    live(&mut r, 7, "#...........###", 60);
    live(&mut r, 60, "###......######", 61);
    live(&mut r, 61, "###############", 61);
    edit(&mut r, |waits| {
        for wait in waits.iter_mut().filter(|wait| wait.tid == Tid(60)) {
            wait.state = TaskState(STOPPED);
        }
    });
    let found = findings(&mut r).remove(0);
    assert_eq!((found.cause.kind, found.cause.reason), ("unattributed", Some("stopped")));
    assert!(found.cause.text.ends_with("is stopped (SIGSTOP)"), "{found:#?}");
    assert!(found.is_cause_known(), "{found:#?}");
}
