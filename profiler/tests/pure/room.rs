//! A server that polls until its client reads is in the middle of something, and waits for that client.

use offwake_analysis::{
    blame::{Blame, BlameKind, ChainLimits, IdleState},
    timeline::{Timeline, WaitIndex},
};
use offwake_recording::{OpenFile, SocketRole, WakeContext, units::Tid};

use crate::{
    draw::{TICK, edit, live, recording},
    fixtures::{EPOLL_WAIT, POLL, RECVFROM, kernel, syscall, tcp, user},
};

const SERVER: u32 = 7;
const CLIENT: u32 = 8;
const OUTSIDER: u32 = 9;

const TCP_ROOM: [&str; 4] =
    ["sk_stream_write_space", "tcp_check_space", "tcp_rcv_established", "__tcp_cleanup_rbuf"];
const UNIX_ROOM: [&str; 4] =
    ["unix_write_space", "sock_wfree", "consume_skb", "unix_stream_read_generic"];
const TCP_DATA: [&str; 3] = ["sock_def_readable", "tcp_data_queue", "tcp_rcv_established"];
const UNIX_DATA: [&str; 2] = ["sock_def_readable", "unix_stream_sendmsg"];
const PIPE_ROOM: [&str; 2] = ["anon_pipe_read", "vfs_read"];

/// The server's one wait in epoll, which the client ends from `through`: whether it is idle, and for how many
/// ticks it is the client's work and sleep.
fn wait_of_server(through: &[&str], functions: &[&str], client: &str) -> (IdleState, u64, u64) {
    let mut r = recording(16);
    let serving = tcp(&mut r, 5, "127.0.0.1:80", "127.0.0.1:40000");
    if let Some(OpenFile::Socket(socket)) = r.files.files.get_mut(&serving) {
        socket.role = Some(SocketRole::Serving);
    }
    let through = kernel(&mut r, through);
    let functions = user(&mut r, SERVER, functions);
    live(&mut r, SERVER, "#.........######", CLIENT);
    live(&mut r, CLIENT, client, OUTSIDER);
    edit(&mut r, |waits| {
        for wait in waits.iter_mut() {
            let is_server = wait.tid == Tid(SERVER);
            if let Some(wake) = &mut wait.wake {
                if is_server {
                    (wake.kernel_stack, wake.syscall) = (through, syscall(RECVFROM, [4; 6]));
                } else {
                    wake.context = WakeContext::Hrtimer;
                }
            }
            if is_server {
                wait.syscall = syscall(EPOLL_WAIT, [4, 0, 64, u64::MAX, 0, 0]);
                (wait.file, wait.user_stack) = (Some(serving), functions);
            } else {
                wait.syscall = syscall(POLL, [4, 2, 5, 0, 0, 0]);
            }
        }
    });
    r.sort();
    let timeline = Timeline::build(&r);
    let blame = Blame::new(&r, &timeline, ChainLimits::default());
    let of_server = r.waits.iter().position(|wait| wait.tid == Tid(SERVER)).unwrap();
    let index = WaitIndex(of_server as u32);
    let mut walker = blame.walker();
    let parts = walker.parts(index);
    let ticks = |is_wanted: fn(BlameKind) -> bool| {
        let wanted = parts.iter().filter(|part| is_wanted(part.kind));
        wanted.map(|part| part.time.0 / TICK).sum()
    };
    let work = ticks(|kind| matches!(kind, BlameKind::Work(_)));
    let sleep = ticks(|kind| matches!(kind, BlameKind::External(_)));
    (blame.own_idle_state(index), work, sleep)
}

/// It works, sleeps, and reads in the last tick before the server goes on.
const WORKS_AND_SLEEPS: &str = "####.....#######";
/// The same the other way around.
const SLEEPS_AND_WORKS: &str = "#.....##########";

#[test]
fn a_server_that_waits_until_its_client_reads_waits_for_all_that_the_client_does() {
    let polls = ["libc.so.6 epoll_wait", "app run_loop"];
    for through in [&TCP_ROOM[..], &PIPE_ROOM] {
        assert_eq!(wait_of_server(through, &polls, WORKS_AND_SLEEPS), (IdleState::Busy, 4, 5));
        assert_eq!(wait_of_server(through, &polls, SLEEPS_AND_WORKS), (IdleState::Busy, 4, 5));
    }
    for function in ["postgres secure_write", "app Socket::Flush(int)", "app send_all"] {
        let writes = ["libc.so.6 epoll_wait", "postgres WaitEventSetWait", function];
        let known = wait_of_server(&UNIX_ROOM, &writes, WORKS_AND_SLEEPS);
        assert_eq!(known, (IdleState::Busy, 4, 5), "{function}");
    }
}

#[test]
fn a_server_that_waits_for_its_clients_next_request_is_idle() {
    let writes = ["libc.so.6 epoll_wait", "postgres WaitEventSetWait", "postgres secure_write"];
    for through in [&TCP_DATA[..], &UNIX_DATA] {
        let (state, ..) = wait_of_server(through, &writes, WORKS_AND_SLEEPS);
        assert_eq!(state, IdleState::Idle);
    }
    // A loop that is told of all there is on its connections is told of room that it has no use for.
    for function in ["app run_loop", "postgres secure_read", "app rewrite::next"] {
        let polls = ["libc.so.6 epoll_wait", "postgres WaitEventSetWait", function];
        let (state, ..) = wait_of_server(&UNIX_ROOM, &polls, WORKS_AND_SLEEPS);
        assert_eq!(state, IdleState::Idle, "{function}");
    }
    // Whoever called the loop has sent something before, or will.
    let mut far = vec!["libc.so.6 epoll_wait"];
    far.extend(["app step"; 8]);
    far.push("app send_report");
    assert_eq!(wait_of_server(&UNIX_ROOM, &far, WORKS_AND_SLEEPS).0, IdleState::Idle);
}
