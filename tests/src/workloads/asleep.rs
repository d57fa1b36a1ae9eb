//! Servers that fell asleep before anybody looked, and a client that still waits for the answer.
//!
//! ```text
//! client       asks |------ reads ---------------------------------
//! middle             asks |------ reads ---------------------------   if there is one
//! server                   |------ sleeps, in one of three functions
//! bystander    |------ sleeps beside them, and nobody asked it ----
//! ```

use std::{
    io::{PipeReader, Read as _},
    os::fd::{AsRawFd, OwnedFd, RawFd},
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::Duration,
};

use anyhow::{Context, Result};

use super::{
    connection::Connection,
    raw,
    stage::{Role, Stage},
};

/// Longer than anybody looks: a signal ends it.
const HOUR: Duration = Duration::from_secs(3600);

/// What the server sleeps in.
#[derive(Clone, Copy)]
enum Sleep {
    Pipe,
    Futex,
    Timer,
}

/// Who is between the client and the server.
#[derive(Clone, Copy)]
enum Between {
    Nobody,
    Middle,
}

pub(super) fn in_a_pipe(stage: &Stage) -> Result<()> {
    run(stage, Sleep::Pipe, Between::Nobody)
}

pub(super) fn in_a_futex(stage: &Stage) -> Result<()> {
    run(stage, Sleep::Futex, Between::Nobody)
}

pub(super) fn in_a_timer(stage: &Stage) -> Result<()> {
    run(stage, Sleep::Timer, Between::Nobody)
}

pub(super) fn behind_a_middle(stage: &Stage) -> Result<()> {
    run(stage, Sleep::Pipe, Between::Middle)
}

fn run(stage: &Stage, sleep: Sleep, between: Between) -> Result<()> {
    let (client, server) = (stage.role("client")?, stage.role("server")?);
    let (bystander, released) = (stage.role("bystander")?, stage.word()?);
    // First of all: it must hold no end of anything.
    stage.process(|| {
        bystander.claim("ow-bystander");
        sleeps_beside_them(released);
    })?;
    let (end, never) = std::io::pipe().context("cannot make a pipe")?;
    let (front, served) = match between {
        Between::Nobody => {
            let Connection { asking, serving, listener } = Connection::tcp()?;
            (asking, (serving, listener))
        }
        Between::Middle => {
            let middle = stage.role("middle")?;
            let to_middle = Connection::tcp()?;
            let to_server = Connection::tcp()?;
            let (front, back) = (to_middle.asking, to_server.asking);
            let (serving, others) = (to_server.serving, to_server.listener);
            let held = [front.as_raw_fd(), serving.as_raw_fd(), others.as_raw_fd()];
            stage.process(|| {
                close_all(&held);
                let _listener = &to_middle.listener;
                receive(&to_middle.serving);
                middle.claim("ow-middle");
                raw::write(back.as_raw_fd(), b"request!");
                receive(&back);
            })?;
            (front, (serving, others))
        }
    };
    let (serving, listener) = served;
    let asking = front.as_raw_fd();
    let writing = never.as_raw_fd();
    stage.process(|| {
        // Whoever is asked holds no end but its own, and both of the pipe: nobody else could end its wait.
        close_all(&[asking]);
        let _listener = &listener;
        receive(&serving);
        end_upon_alarm();
        server.claim("ow-server");
        match sleep {
            Sleep::Pipe => waits_for_the_ledger(&end),
            Sleep::Futex => waits_for_the_vault(released),
            Sleep::Timer => naps_for_an_hour(),
        }
    })?;
    let of_server = [serving.as_raw_fd(), listener.as_raw_fd(), end.as_raw_fd(), writing];
    stage.process(|| {
        close_all(&of_server);
        client.claim("ow-client");
        raw::write(asking, b"request!");
        client.waits(|| raw::read(asking, &mut [0; 8]));
    })?;
    // From here on each end is held by one process alone.
    drop((serving, listener, front));
    stage.play(|| {
        released.store(1, SeqCst);
        raw::futex_wake(released, i32::MAX.unsigned_abs());
        drop(never);
        alarm(server);
    })
}

/// Closes descriptors that the process inherited.
pub(super) fn close_all(descriptors: &[RawFd]) {
    for &descriptor in descriptors {
        // SAFETY: nobody in this process uses it.
        unsafe { libc::close(descriptor) };
    }
}

/// Receives a request, by another call than the one that sleeps.
fn receive(socket: &OwnedFd) {
    let mut request = [0_u8; 8];
    let into = request.as_mut_ptr().cast();
    // SAFETY: the buffer has this size.
    unsafe { libc::recv(socket.as_raw_fd(), into, request.len(), 0) };
}

/// Has an alarm end this process well.
pub(super) fn end_upon_alarm() {
    // SAFETY: a handler that ends the process, which has one thread.
    unsafe { libc::signal(libc::SIGALRM, end_process as *const () as libc::sighandler_t) };
}

/// Ends the process that plays a role, which has asked for that.
pub(super) fn alarm(role: &Role) {
    let process = libc::pid_t::try_from(role.tid()).unwrap_or(0);
    // SAFETY: plain integers, and a child that was not reaped.
    unsafe { libc::kill(process, libc::SIGALRM) };
}

extern "C" fn end_process(_signal: libc::c_int) {
    // SAFETY: ends this process without anything else.
    unsafe { libc::_exit(0) }
}

#[inline(never)]
fn waits_for_the_ledger(pipe: &PipeReader) {
    let mut byte = [0];
    let mut pipe = pipe;
    while pipe.read(&mut byte).is_ok_and(|read| read > 0) {}
}

#[inline(never)]
fn waits_for_the_vault(released: &AtomicU32) {
    while released.load(SeqCst) == 0 {
        raw::futex_wait(released, 0);
    }
}

#[inline(never)]
fn naps_for_an_hour() {
    loop {
        raw::nanosleep(HOUR);
    }
}

#[inline(never)]
fn sleeps_beside_them(released: &AtomicU32) {
    while released.load(SeqCst) == 0 {
        raw::futex_wait(released, 0);
    }
}
