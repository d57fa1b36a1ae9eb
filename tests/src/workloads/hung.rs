//! Processes that hang from before anybody looks until the end, and one that only has nothing to do.
//!
//! ```text
//! client   asks left |------- reads its answer ----------------------
//! left                | reads |-- sleeps, or computes ---------------
//! right    reads ----------------------------------------------------   nobody asks it anything
//! ```

use std::{
    ffi::CString,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    path::Path,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use super::{
    asleep,
    connection::Connection,
    polls, raw, sleeps,
    stage::{Role, Stage},
};

/// The pieces in which a server sleeps that does not answer.
const NAP: Duration = Duration::from_millis(500);

/// What a server does instead of answering.
#[derive(Clone, Copy)]
enum Instead {
    Sleeps,
    Computes,
}

/// Two servers behind Unix sockets, of which `left` is asked.
pub(super) fn unix_left(stage: &Stage) -> Result<()> {
    let connections = unix_connections(stage)?;
    ask(stage, ["left", "right"], connections, Instead::Sleeps)
}

/// The other way round.
pub(super) fn unix_right(stage: &Stage) -> Result<()> {
    let connections = unix_connections(stage)?;
    ask(stage, ["right", "left"], connections, Instead::Sleeps)
}

fn unix_connections(stage: &Stage) -> Result<[Connection; 2]> {
    let directory = Path::new(stage.argument()?);
    let [asked, other] = ["asked", "other"].map(|name| Connection::unix(&directory.join(name)));
    Ok([asked?, other?])
}

/// A server that computes for an answer until the end.
pub(super) fn computing(stage: &Stage) -> Result<()> {
    ask(stage, ["left", "right"], [Connection::tcp()?, Connection::tcp()?], Instead::Computes)
}

/// Each end of a connection is held by one process alone.
fn ask(
    stage: &Stage,
    servers: [&'static str; 2],
    connections: [Connection; 2],
    instead: Instead,
) -> Result<()> {
    let client = stage.role("client")?;
    let roles = [stage.role(servers[0])?, stage.role(servers[1])?];
    let held: Vec<[RawFd; 3]> = connections
        .iter()
        .map(|it| [&it.asking, &it.serving, &it.listener].map(AsRawFd::as_raw_fd))
        .collect();
    let stopped = stage.stopped();
    for (n, role) in roles.into_iter().enumerate() {
        let (own, others) = (held[n], held[1 - n]);
        let comm = format!("ow-{}", servers[n]);
        stage.process(|| {
            // As long as it listens, the kernel knows which end serves.
            asleep::close_all(&[own[0], others[0], others[1], others[2]]);
            role.claim(&comm);
            serve(role, own[1], stopped, instead);
        })?;
    }
    stage.process(|| {
        asleep::close_all(&[held[0][1], held[0][2], held[1][1], held[1][2]]);
        client.claim("ow-client");
        raw::write(held[0][0], b"request!");
        client.waits(|| raw::read(held[0][0], &mut [0; 8]));
    })?;
    drop(connections);
    stage.play(|| ())
}

/// Serves until the other end is closed.
fn serve(role: &'static Role, socket: RawFd, stopped: &AtomicU32, instead: Instead) {
    while raw::read(socket, &mut [0; 8]) == 8 {
        match instead {
            Instead::Sleeps => sleeps_without_an_answer(stopped),
            Instead::Computes => computes_without_an_answer(role, stopped),
        }
        raw::write(socket, b"reply..!");
    }
}

#[inline(never)]
fn sleeps_without_an_answer(stopped: &AtomicU32) {
    while stopped.load(SeqCst) == 0 {
        raw::nanosleep(NAP);
    }
}

#[inline(never)]
fn computes_without_an_answer(role: &'static Role, stopped: &AtomicU32) {
    sleeps::hogs(role, || stopped.load(SeqCst) == 0);
}

/// A process in an event loop to which nothing ever comes.
pub(super) fn idle(stage: &Stage) -> Result<()> {
    let role = stage.role("idle")?;
    let (reads, _writes) = polls::eventfd()?;
    let epoll: OwnedFd = polls::epoll_on(&reads)?;
    stage.process(|| {
        asleep::end_upon_alarm();
        role.claim("ow-idle");
        role.waits(|| polls::waits_in_epoll(epoll.as_raw_fd()));
    })?;
    stage.play(|| asleep::alarm(role))
}

/// A process that opens a FIFO to write, which nobody reads.
pub(super) fn fifo_without_reader(stage: &Stage) -> Result<()> {
    open_fifo(stage, libc::O_WRONLY)
}

/// A process that opens a FIFO to read, to which nobody writes.
pub(super) fn fifo_without_writer(stage: &Stage) -> Result<()> {
    open_fifo(stage, libc::O_RDONLY)
}

fn open_fifo(stage: &Stage, mode: libc::c_int) -> Result<()> {
    let role = stage.role("waiter")?;
    let path = Path::new(stage.argument()?).join("orders");
    let path = CString::new(path.as_os_str().as_encoded_bytes()).context("a path without NUL")?;
    // SAFETY: the path ends in a NUL.
    let made = unsafe { libc::mkfifo(path.as_ptr(), 0o600) };
    ensure!(made == 0, "cannot make a FIFO: {}", std::io::Error::last_os_error());
    stage.process(|| {
        asleep::end_upon_alarm();
        role.claim("ow-waiter");
        role.waits(|| opens_the_orders(&path, mode));
    })?;
    stage.play(|| asleep::alarm(role))
}

#[inline(never)]
fn opens_the_orders(path: &CString, mode: libc::c_int) {
    // SAFETY: the path ends in a NUL.
    unsafe { libc::open(path.as_ptr(), mode) };
}
