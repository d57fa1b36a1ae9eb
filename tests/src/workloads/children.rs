//! Waiting for children.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use anyhow::Result;

use super::{
    raw,
    sleeps::computes,
    stage::{Stage, die_with_parent, fork, reap},
};
use crate::{clock::now_ns, ground_truth::Activity, intervals::Interval};

/// How long a child lives.
const LIFE: Duration = Duration::from_millis(5);

/// A parent that waits for one computing child after the other. Each entry of its log is tied to
/// the child that ends the wait.
pub(super) fn child_exit(stage: &Stage) -> Result<()> {
    churn(stage, || computes(LIFE))
}

/// The same with children that sleep: a process that blocks comes and goes all the time.
pub(super) fn fork_churn(stage: &Stage) -> Result<()> {
    churn(stage, || {
        raw::nanosleep(LIFE);
    })
}

fn churn(stage: &Stage, life: fn()) -> Result<()> {
    let parent = stage.role("parent")?;
    let stopped = stage.stopped();
    stage.process(|| {
        parent.claim("ow-parent");
        while stopped.load(SeqCst) == 0 {
            let child = fork(|| {
                name_child();
                life();
            });
            let Ok(child) = child else { panic!("no more processes") };
            let wait = parent.begin(Activity::Wait, child.unsigned_abs());
            let reaped = reap(child);
            parent.end(wait);
            assert!(reaped.is_ok(), "the child is gone");
        }
    })?;
    stage.play(|| ())
}

/// A parent that is kept in `vfork` until its child ends. Each entry of its log is tied to the
/// child.
pub(super) fn vfork_churn(stage: &Stage) -> Result<()> {
    let parent = stage.role("parent")?;
    let stopped = stage.stopped();
    stage.process(|| {
        parent.claim("ow-parent");
        let mut stack = vec![0_u128; 4096];
        while stopped.load(SeqCst) == 0 {
            // Who the child is shows itself only after the wait.
            let start_ns = now_ns();
            let child = vfork_a_sleeper(&mut stack);
            let wait = Interval::new(start_ns, now_ns());
            parent.log_past(Activity::Wait, wait, child.unsigned_abs());
            assert!(reap(child).is_ok(), "the child is gone");
        }
    })?;
    stage.play(|| ())
}

#[inline(never)]
fn vfork_a_sleeper(stack: &mut [u128]) -> libc::pid_t {
    extern "C" fn child(_: *mut libc::c_void) -> libc::c_int {
        raw::nanosleep(LIFE);
        0
    }
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the child runs on a stack of its own, aligned and 64 KiB large, touches nothing of
    // the parent's, and the parent sleeps until it has ended.
    unsafe { libc::clone(child, stack.as_mut_ptr_range().end.cast(), flags, std::ptr::null_mut()) }
}

fn name_child() {
    die_with_parent();
    // SAFETY: the name ends in a NUL.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"ow-child".as_ptr()) };
}
