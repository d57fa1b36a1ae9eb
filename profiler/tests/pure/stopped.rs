//! Processes that are stopped while others wait for them.

use offwake_analysis::{
    filter::Filter,
    findings::{Finding, FindingKind},
};
use offwake_recording::{
    OpenFile, PeerProcess, Recording, SocketRole, TaskState, WakeContext,
    units::{Tgid, Tid},
};

use crate::{
    draw::{edit, live, recording},
    fixtures::{RECVFROM, kernel, syscall, tcp, user},
    golden::report as build_report,
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
