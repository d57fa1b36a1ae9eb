//! Two processes: a client asks, a server computes for 4 ms and answers; over pipes, a Unix socket
//! or TCP on the loopback. Or three: the server asks another one first.

use std::{
    io::Read,
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::UnixStream,
    },
    sync::atomic::Ordering::SeqCst,
    time::Duration,
};

use anyhow::{Context, Result};

use super::{
    lines::{self, Line, Lines},
    raw,
    sleeps::computes,
    stage::{Role, Stage, fork, reap},
};
use crate::ground_truth::Activity;

/// What the server computes for each request.
const WORK: Duration = Duration::from_millis(4);

/// What the client does with an answer.
const PAUSE: Duration = Duration::from_millis(1);

pub(super) fn over_pipes(stage: &Stage) -> Result<()> {
    run(stage, &lines::pipes()?)
}

pub(super) fn over_a_unix_socket(stage: &Stage) -> Result<()> {
    run(stage, &lines::unix_sockets()?)
}

pub(super) fn over_loopback_tcp(stage: &Stage) -> Result<()> {
    run(stage, &lines::loopback_tcp()?.stop_listening())
}

/// The client asks the middle over a Unix socket, and that the store over TCP.
pub(super) fn through_a_middle(stage: &Stage) -> Result<()> {
    let Lines { client: client_line, server: middle_line, .. } = lines::unix_sockets()?;
    let Lines { client: middles_store, server: store_line, .. } =
        lines::loopback_tcp()?.stop_listening();
    let (client, middle) = (stage.role("client")?, stage.role("middle")?);
    let store = stage.role("store")?;
    let (asks, answers) = (&store_line, &middles_store);
    stage.process(|| {
        store.claim("ow-store");
        serve(store, asks.reads.as_raw_fd(), asks.writes.as_raw_fd());
    })?;
    stage.process(|| {
        middle.claim("ow-middle");
        let line = &middle_line;
        let mut request = [0; 8];
        while raw::read(line.reads.as_raw_fd(), &mut request) == 8 && &request != b"theend!!" {
            middle.works(PAUSE);
            raw::write(answers.writes.as_raw_fd(), b"request!");
            middle.waits(|| waits_for_reply(answers.reads.as_raw_fd()));
            raw::write(line.writes.as_raw_fd(), b"reply..!");
        }
        raw::write(answers.writes.as_raw_fd(), b"theend!!");
    })?;
    stage.process(|| {
        client.claim("ow-client");
        ask_again_and_again(stage, client, &client_line);
    })?;
    stage.play(|| ())
}

fn run(stage: &Stage, lines: &Lines) -> Result<()> {
    let (client, server) = (stage.role("client")?, stage.role("server")?);
    let (asks, answers) = (&lines.client, &lines.server);
    stage.process(|| {
        server.claim("ow-server");
        serve(server, answers.reads.as_raw_fd(), answers.writes.as_raw_fd());
    })?;
    stage.process(|| {
        client.claim("ow-client");
        ask_again_and_again(stage, client, asks);
    })?;
    stage.play(|| ())
}

fn ask_again_and_again(stage: &Stage, client: &Role, line: &Line) {
    let (reads, writes) = (line.reads.as_raw_fd(), line.writes.as_raw_fd());
    while stage.stopped().load(SeqCst) == 0 {
        raw::write(writes, b"request!");
        client.waits(|| waits_for_reply(reads));
        client.works(PAUSE);
    }
    raw::write(writes, b"theend!!");
}

/// A client whose servers end instead of answering: by turns they exit with 7, and are killed. Each
/// entry of its log is tied to the server that it asked.
pub(super) fn servers_that_end(stage: &Stage) -> Result<()> {
    let client = stage.role("client")?;
    stage.process(|| {
        client.claim("ow-client");
        let mut is_killed = false;
        while stage.stopped().load(SeqCst) == 0 {
            let Ok((asks, answers)) = UnixStream::pair() else { panic!("no more sockets") };
            let server = fork(|| {
                raw::read(answers.as_raw_fd(), &mut [0; 8]);
                computes(WORK);
                end_this_process(is_killed);
            });
            let Ok(server) = server else { panic!("no more processes") };
            drop(answers);
            // The server is asleep by then, as a rule.
            raw::nanosleep(PAUSE);
            raw::write(asks.as_raw_fd(), b"request!");
            let wait = client.begin(Activity::Wait, server.unsigned_abs());
            waits_for_reply(asks.as_raw_fd());
            client.end(wait);
            assert!(reap(server).is_ok(), "the server is gone");
            is_killed = !is_killed;
        }
    })?;
    stage.play(|| ())
}

/// Ends this process, with no answer.
fn end_this_process(is_killed: bool) {
    // SAFETY: neither touches memory.
    unsafe {
        if is_killed {
            libc::kill(libc::getpid(), libc::SIGKILL);
        }
        libc::_exit(7);
    }
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
        pong.claim("ow-pong");
        let mut byte = [0; 8];
        while there_out.read_exact(&mut byte).is_ok() && &byte != b"theend!!" {
            raw::write(back_in.as_raw_fd(), &byte);
        }
    })?;
    stage.process(|| {
        ping.claim("ow-ping");
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
