//! Two processes: a client asks, a server computes for 4 ms and answers; over pipes, a Unix socket
//! or TCP on the loopback.

use std::{
    io::Read,
    net::{TcpListener, TcpStream},
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    sync::atomic::Ordering::SeqCst,
    time::Duration,
};

use anyhow::{Context, Result};

use super::{
    raw,
    stage::{Role, Stage},
};

/// What the server computes for each request.
const WORK: Duration = Duration::from_millis(4);

/// What the client does with an answer.
const PAUSE: Duration = Duration::from_millis(1);

/// One side's two ends; for sockets they are the same.
struct Line {
    reads: OwnedFd,
    writes: OwnedFd,
}

pub(super) fn over_pipes(stage: &Stage) -> Result<()> {
    let (requests_out, requests_in) = std::io::pipe().context("cannot make a pipe")?;
    let (replies_out, replies_in) = std::io::pipe().context("cannot make a pipe")?;
    let client = Line { reads: replies_out.into(), writes: requests_in.into() };
    let server = Line { reads: requests_out.into(), writes: replies_in.into() };
    run(stage, client, server)
}

pub(super) fn over_a_unix_socket(stage: &Stage) -> Result<()> {
    let (client, server) = UnixStream::pair().context("cannot make a socket pair")?;
    run(stage, both_ways(client.into())?, both_ways(server.into())?)
}

pub(super) fn over_loopback_tcp(stage: &Stage) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot listen on the loopback")?;
    let address = listener.local_addr().context("cannot read the listener's address")?;
    let client = TcpStream::connect(address).context("cannot connect to the listener")?;
    let (server, _) = listener.accept().context("cannot accept the connection")?;
    for side in [&client, &server] {
        side.set_nodelay(true).context("cannot switch Nagle's algorithm off")?;
    }
    run(stage, both_ways(client.into())?, both_ways(server.into())?)
}

fn both_ways(socket: OwnedFd) -> Result<Line> {
    let writes = socket.try_clone().context("cannot duplicate a socket")?;
    Ok(Line { reads: socket, writes })
}

fn run(stage: &Stage, client_line: Line, server_line: Line) -> Result<()> {
    let (client, server) = (stage.role("client")?, stage.role("server")?);
    let stopped = stage.stopped();
    let (asks, answers) = (&client_line, &server_line);
    stage.process(|| {
        server.take("ow-server");
        serve(server, answers.reads.as_raw_fd(), answers.writes.as_raw_fd());
    })?;
    stage.process(|| {
        client.take("ow-client");
        while stopped.load(SeqCst) == 0 {
            let (reads, writes) = (asks.reads.as_raw_fd(), asks.writes.as_raw_fd());
            raw::write(writes, b"request!");
            client.waits(|| waits_for_reply(reads));
            client.works(PAUSE);
        }
        raw::write(asks.writes.as_raw_fd(), b"theend!!");
    })?;
    stage.play(|| ())
}

#[inline(never)]
fn waits_for_reply(reads: RawFd) {
    raw::read(reads, &mut [0; 8]);
}

#[inline(never)]
fn serve(server: &Role, reads: RawFd, writes: RawFd) {
    loop {
        let mut request = [0; 8];
        let got = server.waits(|| raw::read(reads, &mut request));
        if got != 8 || &request == b"theend!!" {
            break;
        }
        server.works(WORK);
        raw::write(writes, b"reply..!");
    }
}

/// A pipe as fast as it goes: bytes handed back and forth with nothing in between, for as many
/// waits a second as the machine can do.
pub(super) fn ping_pong(stage: &Stage) -> Result<()> {
    let (ping, pong) = (stage.role("ping")?, stage.role("pong")?);
    let stopped = stage.stopped();
    let (mut there_out, there_in) = std::io::pipe().context("cannot make a pipe")?;
    let (mut back_out, back_in) = std::io::pipe().context("cannot make a pipe")?;
    stage.process(|| {
        pong.take("ow-pong");
        let mut byte = [0; 8];
        while there_out.read_exact(&mut byte).is_ok() && &byte != b"theend!!" {
            raw::write(back_in.as_raw_fd(), &byte);
        }
    })?;
    stage.process(|| {
        ping.take("ow-ping");
        let mut byte = [0; 8];
        while stopped.load(SeqCst) == 0 {
            raw::write(there_in.as_raw_fd(), b"ping....");
            if back_out.read_exact(&mut byte).is_err() {
                break;
            }
        }
        raw::write(there_in.as_raw_fd(), b"theend!!");
    })?;
    stage.play(|| ())
}
