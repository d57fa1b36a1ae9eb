//! Servers that nobody asks for anything: what is said of them is that they are mostly idle.

use offwake_analysis::{
    filter::Filter,
    report::{Report, markdown, summary},
};
use offwake_recording::{
    FileId, FileKind, OpenFile, PollEvents, Recording, SocketEnd, SocketRole, WakeContext,
};

use crate::{
    draw::{edit, live, recording},
    fixtures::{EPOLL_WAIT, FUTEX, POLL, kernel, syscall, user},
    golden::{report as build_report, written},
};

const LENGTH: usize = 3_000;
const MOSTLY_IDLE: &str = "mostly idle: active for";
const IF_A_SERVER: &str = "mostly idle, if it serves others: nothing came in for it";

fn report(r: &mut Recording) -> Report {
    r.sort();
    build_report(r, &Filter::default())
}

fn screen(r: &mut Recording) -> String {
    let text = written(&report(r), summary::write);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    text
}

/// Has all waits of thread 7 be in this function, in this call.
fn waits_in(r: &mut Recording, call: u32, args: [u64; 6], functions: [&str; 2]) {
    let stack = user(r, 7, &[&format!("libc.so.6 {}", functions[0]), functions[1], "app main"]);
    let polls = kernel(r, &["schedule", "ep_poll", "do_epoll_wait"]);
    edit(r, |waits| {
        for wait in waits.iter_mut().filter(|wait| wait.tid.0 == 7) {
            wait.syscall = syscall(call, args);
            wait.user_stack = stack;
            if call != FUTEX {
                wait.kernel_stack = polls;
            }
            if let Some(wake) = &mut wait.wake {
                wake.context = WakeContext::Hrtimer;
            }
        }
    });
}

/// A server whose event loop looks at its timers now and then.
fn idle_server() -> Recording {
    let mut r = recording(LENGTH);
    live(&mut r, 7, &format!("#{}r", ".".repeat(98)).repeat(30), 0);
    waits_in(&mut r, EPOLL_WAIT, [4, 0, 64, 98, 0, 0], ["epoll_wait", "app run_loop"]);
    r
}

#[test]
fn a_server_without_requests_is_said_to_be_mostly_idle_before_all_else() {
    let text = screen(&mut idle_server());
    let second = text.lines().nth(1).unwrap();
    let said = "mostly idle: active for 60.0 ms of 3.00 s, else its threads waited for something";
    assert!(second.starts_with(said), "{text}");
    let mut page = Vec::new();
    markdown::write(&report(&mut idle_server()), &mut page).expect("a Vec takes everything");
    assert!(String::from_utf8_lossy(&page).contains(MOSTLY_IDLE));
}

/// Goroutines and tasks that wait for each other have no thread: theirs look as if there was nothing to do.
#[test]
fn of_who_has_coroutines_it_is_not_said_that_there_was_nothing_to_do() {
    for (function, coroutine) in [
        ("app runtime.stopm", "goroutine"),
        ("app tokio::runtime::scheduler::multi_thread::park::park_condvar", "task"),
    ] {
        let mut r = recording(LENGTH);
        live(&mut r, 7, &format!("#{}r", ".".repeat(98)).repeat(30), 0);
        waits_in(&mut r, FUTEX, [0x1000, 0x80, 0, 0, 0, 0], ["syscall", function]);
        let text = screen(&mut r);
        let said = format!("of 3.00 s, else no {coroutine} could go on: why is not seen");
        let second = text.lines().nth(1).unwrap();
        assert!(second.starts_with(MOSTLY_IDLE) && second.ends_with(&said), "{text}");
    }
}

#[test]
fn who_is_held_up_beside_idle_threads_is_not_idle() {
    for wait in ['.', '_'] {
        // One thread of many waits for a lock, and gets it in the end or does not.
        let mut r = idle_server();
        let rest = if wait == '.' { "r#" } else { "__" };
        live(&mut r, 8, &format!("#{}{rest}", String::from(wait).repeat(LENGTH - 3)), 60);
        live(&mut r, 60, &"#".repeat(LENGTH), 0);
        let lock = user(&mut r, 8, &["libc.so.6 pthread_mutex_lock", "app book", "app main"]);
        edit(&mut r, |waits| {
            for wait in waits.iter_mut().filter(|wait| wait.tid.0 == 8) {
                wait.syscall = syscall(FUTEX, [0x1000, 0x80, 2, 0, 0, 0]);
                wait.user_stack = lock;
            }
        });
        let text = screen(&mut r);
        assert!(!text.contains("mostly idle") && text.contains("waits for a lock"), "{text}");
    }
}

#[test]
fn an_event_loop_that_nothing_came_in_for_is_either_idle_or_stuck() {
    let mut r = recording(LENGTH);
    live(&mut r, 7, &"_".repeat(LENGTH), 0);
    let forever = u64::from(u32::MAX);
    waits_in(&mut r, EPOLL_WAIT, [4, 0, 64, forever, 0, 0], ["epoll_wait", "app run_loop"]);
    let text = screen(&mut r);
    assert!(text.contains("STILL WAITING") && text.contains(IF_A_SERVER), "{text}");
    // A lock is nothing that anybody asks for who has nothing to do.
    waits_in(&mut r, FUTEX, [0x1000, 0x80, 2, 0, 0, 0], ["pthread_mutex_lock", "app book"]);
    let text = screen(&mut r);
    assert!(text.contains("STILL WAITING") && !text.contains("mostly idle"), "{text}");
}

/// Polls one socket for these events, until a timeout ends each poll. Its connections are its own, and
/// each is gone as the poll ends.
fn polls_until_timeouts(events: u16) -> Recording {
    let mut r = recording(LENGTH);
    live(&mut r, 7, &format!("#{}r", ".".repeat(98)).repeat(30), 0);
    waits_in(&mut r, POLL, [0x1000, 1, 98, 0, 0, 0], ["poll", "app open_session"]);
    edit(&mut r, |waits| {
        for (wait, inode) in waits.iter_mut().zip(42..) {
            wait.file = Some(FileId { device: 8, inode, kind: FileKind::Socket });
            (wait.polled_fd, wait.polled_events) = (Some(3), Some(PollEvents(events)));
        }
    });
    r
}

/// A firewall drops what it sends to connect, and it gives up each time.
#[test]
fn who_polls_until_it_can_write_is_not_idle() {
    const POLLOUT: u16 = 4;
    const POLLERR: u16 = 8;
    let text = screen(&mut polls_until_timeouts(POLLOUT | POLLERR));
    assert!(!text.contains(MOSTLY_IDLE), "{text}");
    assert!(text.contains("waits to connect or to send, until a timeout"), "{text}");
    assert!(text.contains("open_session"), "{text}");
}

#[test]
fn who_polls_for_something_to_read_may_be_idle() {
    const POLLIN: u16 = 1;
    const POLLOUT: u16 = 4;
    for events in [POLLIN, POLLIN | POLLOUT] {
        let text = screen(&mut polls_until_timeouts(events));
        assert!(text.contains(MOSTLY_IDLE), "{text}");
    }
}

/// Only the last connection was there when somebody looked at it.
fn polls_as(role: SocketRole) -> Recording {
    const POLLIN: u16 = 1;
    let mut r = polls_until_timeouts(POLLIN);
    let last = r.waits.iter().filter_map(|wait| wait.file).max().expect("it polls sockets");
    let (local, remote) = match role {
        SocketRole::Asking => ("127.0.0.1:40000", "127.0.0.1:7201"),
        SocketRole::Serving => ("127.0.0.1:7201", "127.0.0.1:40000"),
    };
    let end = SocketEnd {
        protocol: "tcp".to_owned(),
        local: local.to_owned(),
        remote: remote.to_owned(),
        role: Some(role),
        peers: Vec::new(),
    };
    r.files.files.insert(last, OpenFile::Socket(end));
    r
}

/// A client asks a server that hangs, gives up, and connects anew.
#[test]
fn a_client_that_gets_no_answer_is_not_idle() {
    let text = screen(&mut polls_as(SocketRole::Asking));
    assert!(!text.contains(MOSTLY_IDLE), "{text}");
    assert!(text.contains("gets no answer within its timeout"), "{text}");
}

/// A server that closes connections on which no further request comes.
#[test]
fn a_server_that_gets_no_request_is_idle() {
    let text = screen(&mut polls_as(SocketRole::Serving));
    assert!(text.contains(MOSTLY_IDLE), "{text}");
}

#[test]
fn who_waits_for_connections_that_others_serve_is_idle() {
    for (function, is_idle) in
        [("mariadbd handle_connections_sockets()", true), ("app ask_server", false)]
    {
        let mut r = recording(LENGTH);
        live(&mut r, 7, &"_".repeat(LENGTH), 0);
        let forever = u64::from(u32::MAX);
        waits_in(&mut r, POLL, [0x1000, 1, forever, 0, 0, 0], ["poll", function]);
        let text = screen(&mut r);
        assert_eq!(text.contains("nothing holds it up"), is_idle, "{text}");
        assert_eq!(text.contains("STILL WAITING"), !is_idle, "{text}");
    }
}
