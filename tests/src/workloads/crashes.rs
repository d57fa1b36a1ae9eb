//! A callee that dies in the middle of a request, in three ways by turns. The caller logs each wait
//! with the callee that it was for; what the callees compute is in its log as well.

use std::{
    os::fd::AsRawFd, os::unix::net::UnixStream, sync::atomic::Ordering::SeqCst, time::Duration,
};

use anyhow::{Context, Result};

use super::{
    raw,
    stage::{Role, Stage, fork, reap},
};
use crate::ground_truth::Activity;

/// What a callee computes before it dies.
const WORK: Duration = Duration::from_millis(4);

/// What the caller waits in.
#[derive(Clone, Copy)]
enum Waits {
    ForTheReply,
    ForTheChild,
}

/// The caller reads from a socket whose other end the callee holds, and finds its end.
pub(super) fn behind_a_socket(stage: &Stage) -> Result<()> {
    run(stage, Waits::ForTheReply)
}

/// The caller waits in `wait4`.
pub(super) fn behind_wait4(stage: &Stage) -> Result<()> {
    run(stage, Waits::ForTheChild)
}

fn run(stage: &Stage, waits: Waits) -> Result<()> {
    let caller = stage.role("caller")?;
    let stopped = stage.stopped();
    stage.process(|| {
        caller.claim("ow-caller");
        for dies in [segfaults, aborts, exits].into_iter().cycle() {
            if stopped.load(SeqCst) != 0 {
                break;
            }
            let called = calls(caller, waits, dies);
            assert!(called.is_ok(), "cannot call: {called:?}");
        }
    })?;
    stage.play(|| ())
}

fn calls(caller: &Role, waits: Waits, dies: fn()) -> Result<()> {
    let (ours, theirs) = UnixStream::pair().context("cannot make a socket pair")?;
    let callee = fork(|| {
        become_a_callee();
        raw::read(theirs.as_raw_fd(), &mut [0; 8]);
        caller.computes(WORK);
        dies();
    })?;
    // The callee's is the last one then: when it dies, we read the end.
    drop(theirs);
    raw::write(ours.as_raw_fd(), b"request!");
    let wait = caller.begin(Activity::Wait, callee.unsigned_abs());
    if let Waits::ForTheReply = waits {
        raw::read(ours.as_raw_fd(), &mut [0; 8]);
        caller.end(wait);
    }
    reap(callee)?;
    if let Waits::ForTheChild = waits {
        caller.end(wait);
    }
    Ok(())
}

fn become_a_callee() {
    // SAFETY: the name ends in a NUL; the other call takes plain integers. No core is left behind.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"ow-callee".as_ptr());
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
    }
}

fn segfaults() {
    // SAFETY: a mapping at an address of the kernel's choice touches nothing else.
    let forbidden = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            1,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    // SAFETY: not at all: the page is there, and may not be written to. The process ends here.
    unsafe { forbidden.cast::<u8>().write_volatile(1) };
}

fn aborts() {
    std::process::abort();
}

fn exits() {
    // SAFETY: ends this process without running what the parent registered.
    unsafe { libc::_exit(1) };
}
