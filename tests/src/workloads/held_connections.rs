//! Servers that hang with a request, where the client's connection alone does not tell who has it: two processes hold
//! the other end, or one that has several threads.
//!
//! ```text
//! client   asks .. | asks .. | once told to: asks |---- reads ----------------------------
//! server   ... answers .. answers ........... reads |-- sleeps, or waits for a futex -----
//! keeper   |------ sleeps, and has the server's end open as well --------------------------
//! ```
//!
//! The client is told by a file `hang` in the workload's directory.

use std::{
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::Duration,
};

use anyhow::{Context, Result};

use super::{
    asleep,
    connection::Connection,
    raw,
    stage::{Stage, fork, reap},
};

const ASK: &[u8; 8] = b"request!";
const HANG: &[u8; 8] = b"hang....";
/// Hang as well, but somewhere else.
const HANG_BESIDE: &[u8; 8] = b"beside..";
const ANSWER: &[u8; 8] = b"reply..!";

/// What the client sleeps between two requests.
const PAUSE: Duration = Duration::from_millis(20);
/// The pieces in which somebody sleeps who does not answer. None should end just as a window of a few seconds does.
const NAP: Duration = Duration::from_millis(800);

/// Which of two processes serves.
#[derive(Clone, Copy)]
enum Server {
    Parent,
    Child,
}

/// How the server hangs.
#[derive(Clone, Copy)]
enum Hangs {
    Asleep,
    AtFutex,
}

pub(super) fn kept_by_parent(stage: &Stage) -> Result<()> {
    let Connection { asking, serving, listener } = Connection::tcp()?;
    keep(stage, Server::Child, Hangs::Asleep, (asking, serving, Some(listener)))
}

pub(super) fn kept_by_child(stage: &Stage) -> Result<()> {
    let Connection { asking, serving, listener } = Connection::tcp()?;
    keep(stage, Server::Parent, Hangs::AtFutex, (asking, serving, Some(listener)))
}

pub(super) fn pair_kept_by_parent(stage: &Stage) -> Result<()> {
    let (asking, serving) = UnixStream::pair().context("cannot make a socket pair")?;
    keep(stage, Server::Child, Hangs::AtFutex, (asking.into(), serving.into(), None))
}

pub(super) fn pair_kept_by_child(stage: &Stage) -> Result<()> {
    let (asking, serving) = UnixStream::pair().context("cannot make a socket pair")?;
    keep(stage, Server::Parent, Hangs::Asleep, (asking.into(), serving.into(), None))
}

fn keep(
    stage: &Stage,
    server_is: Server,
    hangs: Hangs,
    (asking, serving, listener): (OwnedFd, OwnedFd, Option<OwnedFd>),
) -> Result<()> {
    let (client, server, keeper) =
        (stage.role("client")?, stage.role("server")?, stage.role("keeper")?);
    let (stopped, released, told) = (stage.stopped(), stage.word()?, told_by(stage)?);
    let (front, back) = (asking.as_raw_fd(), serving.as_raw_fd());
    let serve = || {
        server.claim("ow-server");
        serves(back, hangs, stopped, released);
    };
    let keep_open = || {
        keeper.claim("ow-keeper");
        sleeps_beside_it(stopped);
    };
    stage.process(|| {
        asleep::close_all(&[front]);
        let child = match server_is {
            Server::Parent => fork(keep_open),
            Server::Child => fork(serve),
        };
        match server_is {
            Server::Parent => serve(),
            Server::Child => keep_open(),
        }
        assert!(child.and_then(reap).is_ok_and(|status| status == 0), "the child failed");
    })?;
    stage.process(|| {
        asleep::close_all(&[back]);
        client.claim("ow-client");
        while stopped.load(SeqCst) == 0 && !told.exists() {
            ask(front);
        }
        if stopped.load(SeqCst) == 0 {
            raw::write(front, HANG);
            client.waits(|| raw::read(front, &mut [0; 8]));
        }
    })?;
    drop((asking, serving, listener));
    stage.play(|| release(released))
}

/// A server with a thread for each of two connections, and one that accepts.
pub(super) fn left_of_threads(stage: &Stage) -> Result<()> {
    serve_by_threads(stage, ["left", "right"])
}

/// The other way round.
pub(super) fn right_of_threads(stage: &Stage) -> Result<()> {
    serve_by_threads(stage, ["right", "left"])
}

/// Both threads hang with a request. The client waits for the answer of the first one.
fn serve_by_threads(stage: &Stage, names: [&'static str; 2]) -> Result<()> {
    let (client, main) = (stage.role("client")?, stage.role("main")?);
    let roles = [stage.role(names[0])?, stage.role(names[1])?];
    let (stopped, released, told) = (stage.stopped(), stage.word()?, told_by(stage)?);
    let connections = [Connection::tcp()?, Connection::tcp()?];
    let fronts = [0, 1].map(|n: usize| connections[n].asking.as_raw_fd());
    let backs = [0, 1].map(|n: usize| connections[n].serving.as_raw_fd());
    let listeners = [0, 1].map(|n: usize| connections[n].listener.as_raw_fd());
    stage.process(|| {
        asleep::close_all(&fronts);
        asleep::end_upon_alarm();
        let workers = [0, 1].map(|n: usize| {
            let (role, back) = (roles[n], backs[n]);
            let name = format!("ow-{}", names[n]);
            std::thread::spawn(move || {
                role.claim(&name);
                serves(back, Hangs::Asleep, stopped, released);
            })
        });
        main.claim("ow-main");
        let listener = usize::try_from(listeners[0]).unwrap_or(usize::MAX);
        raw::syscall(libc::SYS_accept, [listener, 0, 0, 0]);
        drop(workers);
    })?;
    stage.process(|| {
        asleep::close_all(&[backs, listeners].concat());
        client.claim("ow-client");
        while stopped.load(SeqCst) == 0 && !told.exists() {
            fronts.into_iter().for_each(ask);
        }
        if stopped.load(SeqCst) == 0 {
            raw::write(fronts[1], HANG_BESIDE);
            raw::write(fronts[0], HANG);
            client.waits(|| raw::read(fronts[0], &mut [0; 8]));
        }
    })?;
    drop(connections);
    stage.play(|| {
        release(released);
        asleep::alarm(main);
    })
}

fn told_by(stage: &Stage) -> Result<PathBuf> {
    Ok(Path::new(stage.argument()?).join("hang"))
}

/// Asks for something, and waits for the answer.
fn ask(front: RawFd) {
    raw::write(front, ASK);
    raw::read(front, &mut [0; 8]);
    raw::nanosleep(PAUSE);
}

/// Serves until the other end is closed.
fn serves(back: RawFd, hangs: Hangs, stopped: &AtomicU32, released: &AtomicU32) {
    let mut request = [0; 8];
    while raw::read(back, &mut request) == 8 {
        match (&request, hangs) {
            (HANG, Hangs::Asleep) => sleeps_with_the_request(stopped),
            (HANG, Hangs::AtFutex) => waits_with_the_request(released),
            (HANG_BESIDE, _) => sleeps_beside_it(stopped),
            _ => {}
        }
        raw::write(back, ANSWER);
    }
}

#[inline(never)]
fn sleeps_with_the_request(stopped: &AtomicU32) {
    while stopped.load(SeqCst) == 0 {
        raw::nanosleep(NAP);
    }
}

#[inline(never)]
fn waits_with_the_request(released: &AtomicU32) {
    while released.load(SeqCst) == 0 {
        raw::futex_wait(released, 0);
    }
}

#[inline(never)]
fn sleeps_beside_it(stopped: &AtomicU32) {
    while stopped.load(SeqCst) == 0 {
        raw::nanosleep(NAP);
    }
}

fn release(released: &AtomicU32) {
    released.store(1, SeqCst);
    raw::futex_wake(released, i32::MAX.unsigned_abs());
}
