//! Pipes at which somebody waits for as long as one looks, each end held by one process alone.
//!
//! ```text
//! left    writes to right |--- no room ------     right does not read: it writes to left
//! right   writes to left  |--- no room ------     left does not read either
//! ```

use std::{
    io::{PipeReader, PipeWriter},
    os::fd::{AsRawFd, OwnedFd, RawFd},
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::Duration,
};

use anyhow::{Context, Result};

use super::{asleep, raw, stage::Stage};

/// The pieces in which a process sleeps that should read or write.
const NAP: Duration = Duration::from_millis(500);

/// What both processes do with the two pipes between them.
#[derive(Clone, Copy)]
enum Both {
    Write,
    Read,
}

/// Two processes write to each other, and neither reads.
pub(super) fn both_write(stage: &Stage) -> Result<()> {
    talk(stage, Both::Write)
}

/// Two processes wait for something from each other.
pub(super) fn both_read(stage: &Stage) -> Result<()> {
    talk(stage, Both::Read)
}

fn talk(stage: &Stage, both: Both) -> Result<()> {
    let roles = [(stage.role("left")?, "ow-left"), (stage.role("right")?, "ow-right")];
    let (to_right, from_left) = pipe()?;
    let (to_left, from_right) = pipe()?;
    let mine = [(&from_right, &to_right), (&from_left, &to_left)];
    for (n, (role, comm)) in roles.into_iter().enumerate() {
        let (reads, writes) = mine[n];
        let (other_reads, other_writes) = mine[1 - n];
        stage.process(|| {
            asleep::close_all(&[other_reads.as_raw_fd(), other_writes.as_raw_fd()]);
            asleep::end_upon_alarm();
            role.claim(comm);
            role.waits(|| match both {
                Both::Write => writes_without_end(writes.as_raw_fd()),
                Both::Read => waits_for_a_word(reads.as_raw_fd()),
            });
        })?;
    }
    drop((to_right, from_left, to_left, from_right));
    stage.play(|| roles.iter().for_each(|(role, _)| asleep::alarm(role)))
}

/// `left` has the other end of a full pipe, and sleeps; `right` sleeps beside it.
pub(super) fn not_read_by_left(stage: &Stage) -> Result<()> {
    run(stage, ["left", "right"], Both::Write)
}

/// The other way round.
pub(super) fn not_read_by_right(stage: &Stage) -> Result<()> {
    run(stage, ["right", "left"], Both::Write)
}

/// `left` has the other end of an empty pipe, and sleeps; `right` sleeps beside it.
pub(super) fn not_written_by_left(stage: &Stage) -> Result<()> {
    run(stage, ["left", "right"], Both::Read)
}

/// The other way round.
pub(super) fn not_written_by_right(stage: &Stage) -> Result<()> {
    run(stage, ["right", "left"], Both::Read)
}

fn run(stage: &Stage, [holder, beside]: [&'static str; 2], waiter_does: Both) -> Result<()> {
    let (waiter, holder, beside) =
        (stage.role("waiter")?, stage.role(holder)?, stage.role(beside)?);
    let stopped = stage.stopped();
    // First of all: it must hold no end of anything.
    stage.process(|| {
        beside.claim("ow-bystander");
        sleeps_beside_it(stopped);
    })?;
    let (writes, reads) = pipe()?;
    let (of_waiter, of_holder) = match waiter_does {
        Both::Write => (OwnedFd::from(writes), OwnedFd::from(reads)),
        Both::Read => (OwnedFd::from(reads), OwnedFd::from(writes)),
    };
    stage.process(|| {
        asleep::close_all(&[of_waiter.as_raw_fd()]);
        holder.claim("ow-holder");
        sleeps_with_the_other_end(stopped);
    })?;
    stage.process(|| {
        asleep::close_all(&[of_holder.as_raw_fd()]);
        asleep::end_upon_alarm();
        waiter.claim("ow-waiter");
        waiter.waits(|| match waiter_does {
            Both::Write => writes_without_end(of_waiter.as_raw_fd()),
            Both::Read => waits_for_a_word(of_waiter.as_raw_fd()),
        });
    })?;
    drop((of_waiter, of_holder));
    stage.play(|| asleep::alarm(waiter))
}

fn pipe() -> Result<(PipeWriter, PipeReader)> {
    let (reads, writes) = std::io::pipe().context("cannot make a pipe")?;
    Ok((writes, reads))
}

#[inline(never)]
fn writes_without_end(pipe: RawFd) {
    while raw::write(pipe, b"a line.\n") == 8 {}
}

#[inline(never)]
fn waits_for_a_word(pipe: RawFd) {
    while raw::read(pipe, &mut [0; 8]) == 8 {}
}

#[inline(never)]
fn sleeps_with_the_other_end(stopped: &AtomicU32) {
    while stopped.load(SeqCst) == 0 {
        raw::nanosleep(NAP);
    }
}

#[inline(never)]
fn sleeps_beside_it(stopped: &AtomicU32) {
    while stopped.load(SeqCst) == 0 {
        raw::nanosleep(NAP);
    }
}
