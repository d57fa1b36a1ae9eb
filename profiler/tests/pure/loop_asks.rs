//! Event loops that wait at the end for an answer of somebody whom they have asked.
//!
//! The loop (7) asks the server (60) in the first two ticks, has its answer at the fourth, asks again, and sleeps from
//! the sixth on.

use offwake_analysis::findings::Finding;
use offwake_recording::{
    FileId, FileKind, OpenFile, PeerProcess, Recording, SocketRole, StackRef, Wait,
    units::{Tgid, Tid},
};

use crate::{
    draw::{edit, live, recording},
    fixtures::{EPOLL_WAIT, RECVFROM, file, syscall, tcp},
    open_waits::{LENGTH, findings, in_process, sleeps_in},
};

const LOOP: u32 = 7;
const SENDTO: u32 = 44;

/// The loop's end of its connection to a server, and the server's.
fn front(server: u32) -> FileId {
    file(FileKind::Socket, u64::from(server))
}

fn back(server: u32) -> FileId {
    file(FileKind::Socket, 1_000 + u64::from(server))
}

fn drawn(ticks: &str) -> String {
    let last = ticks.chars().next_back().unwrap_or('#');
    format!("{ticks}{}", last.to_string().repeat(LENGTH - ticks.len()))
}

fn change_waits(r: &mut Recording, tid: u32, change: impl Fn(&mut Wait)) {
    edit(r, |waits| waits.iter_mut().filter(|wait| wait.tid == Tid(tid)).for_each(change));
}

/// A loop that lives like this. What ends its waits is sent by this server.
fn live_loop(r: &mut Recording, life: &str, answered_by: u32) {
    live(r, LOOP, &drawn(life), answered_by);
    change_waits(r, LOOP, |wait| {
        (wait.syscall, wait.file) =
            (syscall(EPOLL_WAIT, [5, 0, 64, u64::MAX, 0, 0]), Some(file(FileKind::Anonymous, 1)));
        if let Some(wake) = &mut wait.wake {
            wake.syscall = syscall(SENDTO, [4, 0, 0, 0, 0, 0]);
            wake.file = Some(back(answered_by));
        }
    });
}

/// A server that lives like this, and reads what the loop sends. In its last wait it sleeps.
fn live_server(r: &mut Recording, tid: u32, life: &str) {
    let (port, of_loop) = (format!("127.0.0.1:{tid}"), format!("127.0.0.1:4{tid}"));
    for (end, from, to, role, peer) in [
        (u64::from(tid), &of_loop, &port, SocketRole::Asking, tid),
        (1_000 + u64::from(tid), &port, &of_loop, SocketRole::Serving, LOOP),
    ] {
        let id = tcp(r, end, from, to);
        let Some(OpenFile::Socket(socket)) = r.files.files.get_mut(&id) else { unreachable!() };
        socket.role = Some(role);
        socket.peers = vec![PeerProcess { tgid: Tgid(peer), comm: format!("thread{peer}") }];
    }
    live(r, tid, &drawn(life), LOOP);
    sleeps_in(r, tid, "export");
    change_waits(r, tid, |wait| {
        if let Some(wake) = &mut wait.wake {
            wake.syscall = syscall(SENDTO, [3, 0, 0, 0, 0, 0]);
            wake.file = Some(front(tid));
            reads(wait, tid);
        }
    });
}

fn reads(wait: &mut Wait, server: u32) {
    (wait.user_stack, wait.kernel_stack) = (StackRef::NotTaken, StackRef::NotTaken);
    (wait.syscall, wait.file) = (syscall(RECVFROM, [4, 0, 0, 0, 0, 0]), Some(back(server)));
}

/// The finding about the loop, with another thread of its process that works.
fn found(r: &mut Recording) -> Option<Finding> {
    live(r, 8, &"#".repeat(LENGTH), 0);
    in_process(r, LOOP, &[LOOP, 8]);
    let is_its = |it: &Finding| {
        it.still_waiting && it.chain.first().and_then(|hop| hop.tid) == Some(Tid(LOOP))
    };
    findings(r).into_iter().find(is_its)
}

#[test]
fn who_has_been_busy_since_a_loop_asked_it_is_whom_the_loop_waits_for() {
    for (asked, other) in [(60, 61), (61, 60)] {
        let mut r = recording(LENGTH);
        live_server(&mut r, asked, ".###..#_");
        live_server(&mut r, other, "#_");
        live_loop(&mut r, "##..##_", asked);
        let it = found(&mut r).expect("a finding");
        let told: Vec<_> = it.chain.iter().map(|hop| (hop.tid.unwrap().0, &*hop.what)).collect();
        let waits = format!("waits in its event loop for an answer of thread{asked} {asked}");
        assert_eq!(told, [(LOOP, &*waits), (asked, "has not answered: sleeps")]);
        let cause = format!("thread{asked} {asked} has not answered: sleeps in export");
        assert_eq!(it.cause.text, cause);
    }
}

#[test]
fn a_loop_that_may_have_nothing_to_wait_for_is_not_stuck() {
    // It was never answered: it may only pass on lines of a log.
    let mut r = recording(LENGTH);
    live_server(&mut r, 60, "......#_");
    live_server(&mut r, 61, "#_");
    live_loop(&mut r, "##..##_", 61);
    assert_eq!(found(&mut r), None, "never answered");
    // The server has answered without a wake, and reads again.
    let mut r = recording(LENGTH);
    live_server(&mut r, 60, ".###..#_");
    change_waits(&mut r, 60, |wait| reads(wait, 60));
    live_loop(&mut r, "##..##_", 60);
    assert_eq!(found(&mut r), None, "the server waits for the next request");
    // It may have answered while the loop was awake, and be busy with something else.
    let mut r = recording(LENGTH);
    live_server(&mut r, 60, ".###.##_");
    live_loop(&mut r, "##..##_", 60);
    assert_eq!(found(&mut r), None, "the loop was awake for long");
    // Its answer came last.
    let mut r = recording(LENGTH);
    live_server(&mut r, 60, ".###_");
    live_loop(&mut r, "##..##_", 60);
    assert_eq!(found(&mut r), None, "nothing was asked since the answer");
    // Something else has woken the loop since.
    let mut r = recording(LENGTH);
    live_server(&mut r, 60, ".###..#_");
    live_server(&mut r, 61, "#######_");
    live_loop(&mut r, "##..##...#_", 60);
    edit(&mut r, |waits| {
        for wait in waits.iter_mut().filter(|wait| (wait.tid, wait.seq) == (Tid(LOOP), 2)) {
            wait.wake.as_mut().unwrap().file = Some(back(61));
        }
    });
    assert_eq!(found(&mut r), None, "the loop went on with something else");
}

#[test]
fn a_loop_that_has_asked_two_waits_for_neither_alone() {
    let asked_two = |second: &str| {
        let mut r = recording(LENGTH);
        live_server(&mut r, 60, ".###..#_");
        live_server(&mut r, 61, second);
        live_loop(&mut r, "##..##_", 60);
        found(&mut r).map(|it| it.chain.len())
    };
    assert_eq!(asked_two("......#_"), None);
    assert_eq!(asked_two("#_"), Some(2));
}
