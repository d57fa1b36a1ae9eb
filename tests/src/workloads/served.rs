//! Two processes over a socket that one of them listened on: a client computes and asks, a server
//! that sits in `epoll_wait` computes for a moment and answers.

use std::{
    os::fd::{AsRawFd, RawFd},
    path::Path,
    sync::atomic::Ordering::SeqCst,
    time::Duration,
};

use anyhow::Result;

use super::{connection::Connection, polls, raw, stage::Stage};

/// What the client computes before each request.
const WORK: Duration = Duration::from_millis(4);

/// What the server computes before each answer: the client is asleep by then.
const ANSWER: Duration = Duration::from_millis(1);

const END: &[u8; 8] = b"theend!!";

pub(super) fn over_tcp(stage: &Stage) -> Result<()> {
    run(stage, &Connection::tcp()?)
}

/// The listener is bound to `listener` in the directory that the argument names.
pub(super) fn over_a_unix_socket(stage: &Stage) -> Result<()> {
    run(stage, &Connection::unix(&Path::new(stage.argument()?).join("listener"))?)
}

fn run(stage: &Stage, connection: &Connection) -> Result<()> {
    let (client, server) = (stage.role("client")?, stage.role("server")?);
    let stopped = stage.stopped();
    let epoll = polls::epoll_on(&connection.serving)?;
    stage.process(|| {
        server.claim("ow-server");
        let socket = connection.serving.as_raw_fd();
        let mut request = [0; 8];
        while &request != END {
            server.waits(|| polls::waits_in_epoll(epoll.as_raw_fd()));
            // It is ready, so this does not block.
            if raw::read(socket, &mut request) != 8 {
                break;
            }
            server.works(ANSWER);
            raw::write(socket, b"reply..!");
        }
    })?;
    stage.process(|| {
        client.claim("ow-client");
        let socket = connection.asking.as_raw_fd();
        while stopped.load(SeqCst) == 0 {
            client.works(WORK);
            raw::write(socket, b"request!");
            client.waits(|| waits_for_reply(socket));
        }
        raw::write(socket, END);
    })?;
    stage.play(|| ())
}

#[inline(never)]
fn waits_for_reply(socket: RawFd) {
    raw::read(socket, &mut [0; 8]);
}
