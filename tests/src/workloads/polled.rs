//! A client has a connection to each of two servers, asks one, and polls that connection alone.
//!
//! ```text
//! client    computes, asks |------- polls -----------------+ reads, computes …
//! asked     ....... read ..+ computes |-- sleeps --| answers
//! other     ....... read .................................... is asked nothing
//! ```

use std::{
    os::fd::{AsRawFd, RawFd},
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::Duration,
};

use anyhow::Result;

use super::{connection::Connection, raw, stage::Stage};

/// What the client computes before each request.
const PAUSE: Duration = Duration::from_millis(2);
/// What the server computes for each request.
const WORK: Duration = Duration::from_millis(2);
/// How long the server sleeps before it answers.
const DELAY: Duration = Duration::from_millis(10);
/// The pieces in which a server sleeps that does not answer.
const NAP: Duration = Duration::from_millis(500);

const END: &[u8; 8] = b"theend!!";

/// Whether the server answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answers {
    /// After a while.
    Always,
    /// When the workload ends.
    AtTheEnd,
}

/// The syscall that polls.
#[derive(Clone, Copy)]
enum Call {
    Poll,
    Ppoll,
}

pub(super) fn answered_by_left(stage: &Stage) -> Result<()> {
    run(stage, ["left", "right"], Call::Poll, Answers::Always)
}

pub(super) fn answered_by_right(stage: &Stage) -> Result<()> {
    run(stage, ["right", "left"], Call::Ppoll, Answers::Always)
}

pub(super) fn not_answered_by_left(stage: &Stage) -> Result<()> {
    run(stage, ["left", "right"], Call::Ppoll, Answers::AtTheEnd)
}

pub(super) fn not_answered_by_right(stage: &Stage) -> Result<()> {
    run(stage, ["right", "left"], Call::Poll, Answers::AtTheEnd)
}

fn run(
    stage: &Stage,
    [asked, other]: [&'static str; 2],
    call: Call,
    answers: Answers,
) -> Result<()> {
    let client = stage.role("client")?;
    let stopped = stage.stopped();
    let mut asking = Vec::new();
    for name in [asked, other] {
        let server = stage.role(name)?;
        let connection = Connection::tcp()?;
        asking.push(connection.asking);
        // Each end is held by one process alone: a server has none of the clients', and the serving
        // end is closed here when the server has it.
        let clients: Vec<RawFd> = asking.iter().map(AsRawFd::as_raw_fd).collect();
        let (serving, listener) = (connection.serving, connection.listener);
        stage.process(move || {
            for descriptor in clients {
                // SAFETY: nobody in this process uses it.
                unsafe { libc::close(descriptor) };
            }
            // As long as it listens, the kernel knows which end serves.
            let _listener = listener;
            server.claim(if name == "left" { "ow-left" } else { "ow-right" });
            let socket = serving.as_raw_fd();
            let mut request = [0; 8];
            while raw::read(socket, &mut request) == 8 && &request != END {
                server.computes(WORK);
                match answers {
                    Answers::Always => drop(raw::nanosleep(DELAY)),
                    Answers::AtTheEnd => sleeps_without_an_answer(stopped),
                }
                raw::write(socket, b"reply..!");
            }
        })?;
    }
    stage.process(move || {
        client.claim("ow-client");
        if let Some(socket) = asking.first().map(AsRawFd::as_raw_fd) {
            while stopped.load(SeqCst) == 0 {
                client.computes(PAUSE);
                raw::write(socket, b"request!");
                client.waits(|| polls_one(socket, call));
                raw::read(socket, &mut [0; 8]);
            }
        }
        for socket in asking {
            raw::write(socket.as_raw_fd(), END);
        }
    })?;
    stage.play(|| ())
}

#[inline(never)]
fn sleeps_without_an_answer(stopped: &AtomicU32) {
    while stopped.load(SeqCst) == 0 {
        raw::nanosleep(NAP);
    }
}

#[inline(never)]
fn polls_one(socket: RawFd, call: Call) {
    let mut polled = libc::pollfd { fd: socket, events: libc::POLLIN, revents: 0 };
    let polled = &raw mut polled;
    // Some machines' `poll` is `ppoll`.
    match call {
        // SAFETY: one descriptor, no timeout.
        Call::Poll => unsafe { libc::poll(polled, 1, -1) },
        // SAFETY: as above, and no signal mask.
        Call::Ppoll => unsafe { libc::ppoll(polled, 1, std::ptr::null(), std::ptr::null()) },
    };
}
