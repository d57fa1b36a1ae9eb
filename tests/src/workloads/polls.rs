//! Waiting for one of several descriptors, and for a counter.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    sync::atomic::Ordering::SeqCst,
    time::Duration,
};

use anyhow::{Context, Result};

use super::{
    raw,
    stage::{Role, Stage},
};

/// What the writer computes before each write.
const WORK: Duration = Duration::from_millis(5);

/// `epoll_wait` on a pipe that a thread writes to.
pub(super) fn epoll_on_a_pipe(stage: &Stage) -> Result<()> {
    let (reads, writes) = std::io::pipe().context("cannot make a pipe")?;
    let epoll = epoll_on(&reads)?;
    run(stage, reads.into(), writes.into(), move |_| {
        waits_in_epoll(epoll.as_raw_fd());
    })
}

/// An epoll that says when there is something to read.
pub(super) fn epoll_on(reads: &impl AsRawFd) -> Result<OwnedFd> {
    epoll_on_all(&[reads.as_raw_fd()])
}

/// An epoll that says where there is something to read.
pub(super) fn epoll_on_all(all: &[RawFd]) -> Result<OwnedFd> {
    // SAFETY: takes plain integers.
    let epoll = descriptor(unsafe { libc::epoll_create1(0) }, "make an epoll")?;
    for &reads in all {
        let events = libc::EPOLLIN.cast_unsigned();
        let mut event = libc::epoll_event { events, u64: reads.unsigned_abs().into() };
        // SAFETY: both descriptors are open, the event is a valid place.
        let added = unsafe {
            libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, reads, &raw mut event)
        };
        anyhow::ensure!(added == 0, "cannot watch a descriptor: {}", io::Error::last_os_error());
    }
    Ok(epoll)
}

/// `ppoll` on an eventfd that a thread writes to.
pub(super) fn poll_on_an_eventfd(stage: &Stage) -> Result<()> {
    let (reads, writes) = eventfd()?;
    run(stage, reads, writes, waits_in_poll)
}

/// A blocking read of an eventfd that a thread writes to.
pub(super) fn read_of_an_eventfd(stage: &Stage) -> Result<()> {
    let (reads, writes) = eventfd()?;
    let (waiter, writer) = (stage.role("waiter")?, stage.role("writer")?);
    write_after_work(stage, writer, writes)?;
    let stopped = stage.stopped();
    stage.thread(move || {
        waiter.claim("ow-waiter");
        while stopped.load(SeqCst) == 0 {
            waiter.waits(|| waits_in_read(reads.as_raw_fd()));
        }
    })?;
    stage.play(|| ())
}

fn run(
    stage: &Stage,
    reads: OwnedFd,
    writes: OwnedFd,
    wait: impl Fn(RawFd) + Send + 'static,
) -> Result<()> {
    let (waiter, writer) = (stage.role("waiter")?, stage.role("writer")?);
    write_after_work(stage, writer, writes)?;
    let stopped = stage.stopped();
    stage.thread(move || {
        waiter.claim("ow-waiter");
        while stopped.load(SeqCst) == 0 {
            waiter.waits(|| wait(reads.as_raw_fd()));
            // It is ready, so this does not block.
            raw::read(reads.as_raw_fd(), &mut [0; 8]);
        }
    })?;
    stage.play(|| ())
}

/// The writer writes once more when the end has come: the waiter may be waiting.
fn write_after_work(stage: &Stage, writer: &'static Role, writes: OwnedFd) -> Result<()> {
    let stopped = stage.stopped();
    stage.thread(move || {
        writer.claim("ow-writer");
        while stopped.load(SeqCst) == 0 {
            writer.works(WORK);
            raw::write(writes.as_raw_fd(), &1_u64.to_ne_bytes());
        }
        raw::write(writes.as_raw_fd(), &1_u64.to_ne_bytes());
    })
}

/// An eventfd, and another descriptor of it.
pub(super) fn eventfd() -> Result<(OwnedFd, OwnedFd)> {
    // SAFETY: takes plain integers.
    let reads = descriptor(unsafe { libc::eventfd(0, 0) }, "make an eventfd")?;
    let writes = reads.try_clone().context("cannot duplicate an eventfd")?;
    Ok((reads, writes))
}

pub(super) fn descriptor(result: RawFd, what: &str) -> Result<OwnedFd> {
    anyhow::ensure!(result >= 0, "cannot {what}: {}", io::Error::last_os_error());
    // SAFETY: the descriptor was just made, nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// Returns the descriptor that there is something to read from.
#[inline(never)]
pub(super) fn waits_in_epoll(epoll: RawFd) -> RawFd {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: one event fits into the place given. Not made raw: some machines have no epoll_wait.
    unsafe { libc::epoll_wait(epoll, &raw mut event, 1, -1) };
    RawFd::try_from(event.u64).unwrap_or(-1)
}

#[inline(never)]
fn waits_in_poll(reads: RawFd) {
    let mut poll = libc::pollfd { fd: reads, events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor, no timeout, no signal mask.
    unsafe { libc::ppoll(&raw mut poll, 1, std::ptr::null(), std::ptr::null()) };
}

#[inline(never)]
fn waits_in_read(reads: RawFd) {
    raw::read(reads, &mut [0; 8]);
}
