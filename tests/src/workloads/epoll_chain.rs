//! A client asks a server, which sits in `epoll_wait` on the client's connection and on its own to a
//! second server, and asks that one for each request.
//!
//! ```text
//! client   computes |-- reads ------------------------------------------+--
//! front    -- idle -+ computes |-- epoll -----------------+ computes    | idle
//! back     -- idle ------------+ computes                 | idle
//! ```

use std::{
    net::{TcpListener, TcpStream},
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    sync::atomic::Ordering::SeqCst,
    time::Duration,
};

use anyhow::{Context, Result};

use super::{polls, raw, stage::Stage};

/// What the client computes before each request.
const PAUSE: Duration = Duration::from_millis(3);

/// What the front server computes for each request, half of it before it asks on.
const FRONT: Duration = Duration::from_millis(4);

/// What the one behind it computes.
const BACK: Duration = Duration::from_millis(5);

const END: &[u8; 8] = b"theend!!";

/// Both ends of a connection to a server that still listens.
struct Connection {
    asking: OwnedFd,
    serving: OwnedFd,
    _listener: OwnedFd,
}

pub(super) fn over_tcp(stage: &Stage) -> Result<()> {
    run(stage, &tcp()?, &tcp()?)
}

/// The listeners are bound in the directory that the argument names.
pub(super) fn over_unix_sockets(stage: &Stage) -> Result<()> {
    let directory = Path::new(stage.argument()?);
    run(stage, &unix(&directory.join("front"))?, &unix(&directory.join("back"))?)
}

fn tcp() -> Result<Connection> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot listen on the loopback")?;
    let address = listener.local_addr().context("cannot read the listener's address")?;
    let asking = TcpStream::connect(address).context("cannot connect to the listener")?;
    let (serving, _) = listener.accept().context("cannot accept the connection")?;
    for side in [&asking, &serving] {
        side.set_nodelay(true).context("cannot switch Nagle's algorithm off")?;
    }
    let (asking, serving) = (asking.into(), serving.into());
    Ok(Connection { asking, serving, _listener: listener.into() })
}

fn unix(path: &Path) -> Result<Connection> {
    let listener = UnixListener::bind(path).context("cannot listen on a Unix socket")?;
    let asking = UnixStream::connect(path).context("cannot connect to the listener")?;
    let (serving, _) = listener.accept().context("cannot accept the connection")?;
    let (asking, serving) = (asking.into(), serving.into());
    Ok(Connection { asking, serving, _listener: listener.into() })
}

fn run(stage: &Stage, to_front: &Connection, to_back: &Connection) -> Result<()> {
    let (client, front, back) = (stage.role("client")?, stage.role("front")?, stage.role("back")?);
    let stopped = stage.stopped();
    let backs_epoll = polls::epoll_on(&to_back.serving)?;
    let (downstream, upstream) = (to_front.serving.as_raw_fd(), to_back.asking.as_raw_fd());
    let fronts_epoll = polls::epoll_on_all(&[downstream, upstream])?;
    stage.process(|| {
        back.take("ow-back");
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
        front.take("ow-front");
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
        client.take("ow-client");
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
