//! A client asks a server, which sits in `epoll_wait` on the client's connection and on its own to a
//! second server, and asks that one for each request.
//!
//! ```text
//! client   computes |-- reads ------------------------------------------+--
//! front    -- idle -+ computes |-- epoll -----------------+ computes    | idle
//! back     -- idle ------------+ computes                 | idle
//! ```

use std::{
    os::fd::{AsRawFd, RawFd},
    path::Path,
    sync::atomic::Ordering::SeqCst,
    time::Duration,
};

use anyhow::Result;

use super::{connection::Connection, polls, raw, stage::Stage};

/// What the client computes before each request.
const PAUSE: Duration = Duration::from_millis(3);

/// What the front server computes for each request, half of it before it asks on.
const FRONT: Duration = Duration::from_millis(4);

/// What the one behind it computes.
const BACK: Duration = Duration::from_millis(5);

const END: &[u8; 8] = b"theend!!";

pub(super) fn over_tcp(stage: &Stage) -> Result<()> {
    run(stage, &Connection::tcp()?, &Connection::tcp()?)
}

/// The listeners are bound in the directory that the argument names.
pub(super) fn over_unix_sockets(stage: &Stage) -> Result<()> {
    let directory = Path::new(stage.argument()?);
    let unix = |name| Connection::unix(&directory.join(name));
    run(stage, &unix("front")?, &unix("back")?)
}

fn run(stage: &Stage, to_front: &Connection, to_back: &Connection) -> Result<()> {
    let (client, front, back) = (stage.role("client")?, stage.role("front")?, stage.role("back")?);
    let stopped = stage.stopped();
    let backs_epoll = polls::epoll_on(&to_back.serving)?;
    let (downstream, upstream) = (to_front.serving.as_raw_fd(), to_back.asking.as_raw_fd());
    let fronts_epoll = polls::epoll_on_all(&[downstream, upstream])?;
    stage.process(|| {
        back.claim("ow-back");
        let socket = to_back.serving.as_raw_fd();
        loop {
            back.waits(|| polls::waits_in_epoll(backs_epoll.as_raw_fd()));
            if is_the_end(socket) {
                break;
            }
            back.computes(BACK);
            raw::write(socket, b"reply..!");
        }
    })?;
    stage.process(|| {
        front.claim("ow-front");
        loop {
            let ready = front.waits(|| polls::waits_in_epoll(fronts_epoll.as_raw_fd()));
            if is_the_end(ready) {
                raw::write(upstream, END);
                break;
            }
            front.computes(FRONT / 2);
            let onwards = if ready == downstream { upstream } else { downstream };
            raw::write(onwards, b"message.");
        }
    })?;
    stage.process(|| {
        client.claim("ow-client");
        let socket = to_front.asking.as_raw_fd();
        while stopped.load(SeqCst) == 0 {
            client.computes(PAUSE);
            raw::write(socket, b"request!");
            client.waits(|| waits_for_reply(socket));
        }
        raw::write(socket, END);
    })?;
    stage.play(|| ())
}

/// Reads a message, which is there, so that this does not block.
fn is_the_end(socket: RawFd) -> bool {
    let mut message = [0; 8];
    raw::read(socket, &mut message) != 8 || &message == END
}

#[inline(never)]
fn waits_for_reply(socket: RawFd) {
    raw::read(socket, &mut [0; 8]);
}
