//! What came for event loops, of which nothing tells to which request it belongs.

use offwake_analysis::requests::{NotToldApartReason, Requests};
use offwake_recording::{
    FileId, FileKind, OpenFile, ReadyFile, Recording, SocketEnd, SocketRole, WakeContext,
    units::Tid,
};

use crate::{
    draw::{edit, live, recording, ticks},
    fixtures::{CLONE, EPOLL_WAIT, READ, WAIT4, file, syscall},
    requests::find,
};

const COUNT: usize = 30;

/// Whether the recording knows which end of a connection listened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sockets {
    Known,
    Unknown,
}

/// One end of the connection of this number; the server's is at port 80.
fn socket(r: &mut Recording, number: u64, role: SocketRole, sockets: Sockets) -> FileId {
    let is_serving = role == SocketRole::Serving;
    let id = file(FileKind::Socket, number * 2 + u64::from(is_serving));
    if sockets == Sockets::Unknown {
        return id;
    }
    let (own, servers) = (format!("127.0.0.1:{}", 40_000 + number), "127.0.0.1:80".to_owned());
    let (local, remote) = if is_serving { (servers, own) } else { (own, servers) };
    let (protocol, role) = ("tcp".to_owned(), Some(role));
    let socket = SocketEnd { protocol, local, remote, role, peers: Vec::new() };
    r.files.files.insert(id, OpenFile::Socket(socket));
    id
}

/// A server and its client; both wait for two connections with `epoll_wait`.
fn two_loops(server: u32, client: u32, sockets: Sockets) -> Recording {
    loops_over((server, client), sockets, 2)
}

/// A server and its client; both use `epoll_wait`, and there are so many connections, two at most.
fn loops_over((server, client): (u32, u32), sockets: Sockets, connections: usize) -> Recording {
    let mut r = recording(COUNT * 20);
    live(&mut r, client, &"##.....#############".repeat(COUNT), server);
    live(&mut r, server, &"..#####.............".repeat(COUNT), client);
    let ends = [0, 1].map(|number| {
        let end = |r: &mut Recording, role| socket(r, number, role, sockets);
        (end(&mut r, SocketRole::Asking), end(&mut r, SocketRole::Serving))
    });
    edit(&mut r, |waits| {
        for wait in waits {
            wait.syscall = syscall(EPOLL_WAIT, [4, 0, 0, 0, 0, 0]);
            wait.file = Some(file(FileKind::Anonymous, 1));
            let (asking, serving) = ends[wait.seq as usize % connections];
            let (own, others) =
                if wait.tid == Tid(server) { (serving, asking) } else { (asking, serving) };
            if let Some(wake) = &mut wait.wake {
                wake.ready = Some(ReadyFile { descriptor: 5, file: own });
                wake.file = Some(others);
            }
        }
    });
    r
}

/// Returns who is listed, why, and how often; and checks that the list adds up.
fn listed(requests: &Requests) -> Vec<(&str, NotToldApartReason, u64)> {
    let listed = &requests.not_told_apart_by_server;
    assert_eq!(listed.iter().map(|one| one.count).sum::<u64>(), requests.not_told_apart);
    listed.iter().map(|one| (one.program.as_str(), one.reason, one.count)).collect()
}

fn summary(requests: &Requests) -> String {
    let mut text = Vec::new();
    requests.write_summary(&mut text).expect("memory has room");
    String::from_utf8(text).expect("it is text").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn event_loops_at_both_ends_are_told_as_such() {
    let requests = find(&mut two_loops(7, 60, Sockets::Known));
    assert!(requests.classes.is_empty(), "{requests:#?}");
    let reason = NotToldApartReason::ClientWaitsForSeveral;
    assert_eq!(listed(&requests), [("thread7", reason, COUNT as u64)]);
    let line = "requests of thread7 7 (tcp 127.0.0.1:80) can't be told apart: clients ended 30 waits of its threads, and both ends wait for several connections at once";
    assert_eq!(summary(&requests), line);
    let text = requests.text_lines(1_000).join("\n");
    assert!(text.contains(line) && !text.contains("nobody was seen"), "{text}");
}

/// The client is in the target as well: each wake of the server counts once, and no answer is counted again.
#[test]
fn event_loops_of_the_target_at_both_ends_are_counted_once() {
    let requests = find(&mut two_loops(7, 8, Sockets::Known));
    let reason = NotToldApartReason::ClientWaitsForSeveral;
    assert_eq!(listed(&requests), [("thread7", reason, COUNT as u64)]);
}

#[test]
fn answers_to_an_event_loop_of_the_target_are_counted_for_their_server() {
    let requests = find(&mut two_loops(60, 7, Sockets::Known));
    let listed = listed(&requests);
    let [("thread60", NotToldApartReason::AskerWaitsForSeveral, count)] = listed[..] else {
        panic!("{requests:#?}")
    };
    assert!(count >= COUNT as u64 - 1, "{count}");
    assert!(summary(&requests).starts_with("requests of thread60 60 (tcp 127.0.0.1:80) can't"));
}

/// As pgbench and the sessions of PostgreSQL.
#[test]
fn a_loop_of_the_target_has_requests_to_whoever_serves_one_connection() {
    let requests = find(&mut loops_over((60, 7), Sockets::Known, 1));
    let [class] = &requests.classes[..] else { panic!("{requests:#?}") };
    assert!(class.count + 1 >= COUNT as u64, "{class:#?}");
    assert_eq!((class.count, class.program.as_str()), (class.seen_by_server, "thread60"));
    assert_eq!(class.latency.p50_ns, ticks(5));
    assert!(requests.not_told_apart <= 1, "{requests:#?}");
}

/// A session of PostgreSQL's that another program asks is no part of the target.
#[test]
fn requests_of_others_to_a_server_outside_are_not_the_targets() {
    let requests = find(&mut loops_over((60, 61), Sockets::Known, 1));
    assert!(requests.classes.is_empty(), "{requests:#?}");
}

/// The recording knows of no socket which end it is, as after a window of a few milliseconds.
#[test]
fn where_no_side_is_known_nobody_is_called_a_server() {
    for (server, client) in [(7, 60), (7, 8)] {
        let requests = find(&mut two_loops(server, client, Sockets::Unknown));
        assert!(requests.classes.is_empty(), "{requests:#?}");
        let listed = listed(&requests);
        let is_unknown = |one: &(&str, _, u64)| one.1 == NotToldApartReason::SidesUnknown;
        assert!(listed.iter().all(is_unknown), "{requests:#?}");
        assert!(listed.contains(&("thread7", NotToldApartReason::SidesUnknown, COUNT as u64)));
        assert_eq!(summary(&requests), "");
        let reason = requests.why_none().expect("there are none");
        assert!(reason.starts_with("event loops were woken "), "{reason}");
    }
}

#[test]
fn a_client_on_another_machine_waits_for_nothing_that_is_seen() {
    let mut r = two_loops(7, 60, Sockets::Known);
    edit(&mut r, |waits| {
        for wait in waits.iter_mut().filter(|wait| wait.tid == Tid(7)) {
            if let Some(wake) = &mut wait.wake {
                wake.context = WakeContext::Softirq(3);
                wake.file = None;
            }
        }
    });
    let requests = find(&mut r);
    let reason = NotToldApartReason::ClientNotSeen;
    assert_eq!(listed(&requests), [("thread7", reason, COUNT as u64)]);
}

/// Clients that wait for one answer at a time have requests, and no line of their own.
#[test]
fn clients_that_wait_for_one_answer_have_requests() {
    let mut r = two_loops(7, 60, Sockets::Known);
    edit(&mut r, |waits| {
        for wait in waits.iter_mut().filter(|wait| wait.tid == Tid(60)) {
            wait.syscall = syscall(READ, [4, 0, 0, 0, 0, 0]);
            wait.file = wait.wake.as_ref().and_then(|wake| Some(wake.ready?.file));
        }
    });
    let requests = find(&mut r);
    assert_eq!((requests.classes.len(), listed(&requests)), (1, Vec::new()));
}

/// 7 creates children, and waits for each of them to exit, or to run a program of its own.
#[test]
fn a_child_is_no_request() {
    let mut r = recording(COUNT * 20);
    live(&mut r, 7, &"##.....#############".repeat(COUNT), 60);
    live(&mut r, 60, &"..#####.............".repeat(COUNT), 7);
    let requests = find(&mut r.clone());
    assert_eq!(requests.classes.len(), 2, "{requests:#?}");
    for (number, args) in [(WAIT4, [60, 0, 0, 0, 0, 0]), (CLONE, [0x4100, 0, 0, 0, 0, 0])] {
        edit(&mut r, |waits| {
            for wait in waits.iter_mut().filter(|wait| wait.tid == Tid(7)) {
                wait.syscall = syscall(number, args);
            }
        });
        let requests = find(&mut r);
        let servers: Vec<&str> = requests.classes.iter().map(|one| one.program.as_str()).collect();
        assert_eq!(servers, ["thread7"], "{requests:#?}");
    }
}
