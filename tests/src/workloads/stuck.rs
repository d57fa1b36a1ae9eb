//! Waits that the window does not see the end of.

use std::{
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::Duration,
};

use anyhow::Result;

use super::{
    raw,
    stage::{Role, Stage},
};
use crate::{clock::spin, ground_truth::Activity};

/// One thread waits from before it says so until it is told to stop.
pub(super) fn all_along(stage: &Stage) -> Result<()> {
    let (stuck, released) = (stage.role("stuck")?, stage.word()?);
    stage.thread(move || {
        stuck.claim("ow-stuck");
        waits_for_ever(stuck, released, stuck.tid());
    })?;
    stage.play(|| release(released))
}

/// Every 50 ms a new thread comes, and waits until the end: whenever the window opens, some begin
/// in it. Each entry of the log is tied to the thread that waits.
pub(super) fn one_after_the_other(stage: &Stage) -> Result<()> {
    /// More threads than ten seconds release.
    const THREADS: u32 = 200;
    let (starter, released) = (stage.role("starter")?, stage.word()?);
    let stopped = stage.stopped();
    stage.thread(move || {
        starter.claim("ow-starter");
        let mut late = Vec::new();
        for _ in 0..THREADS {
            if stopped.load(SeqCst) != 0 {
                break;
            }
            late.push(std::thread::spawn(move || {
                // SAFETY: takes nothing, cannot fail.
                let tid = unsafe { libc::gettid() };
                waits_for_ever(starter, released, tid.cast_unsigned());
            }));
            spin(Duration::from_millis(1));
            raw::nanosleep(Duration::from_millis(49));
        }
        for thread in late {
            assert!(thread.join().is_ok(), "a late thread panicked");
        }
    })?;
    stage.play(|| release(released))
}

#[inline(never)]
fn waits_for_ever(log: &Role, released: &AtomicU32, tid: u32) {
    let wait = log.begin(Activity::Wait, tid);
    while released.load(SeqCst) == 0 {
        raw::futex_wait(released, 0);
    }
    log.end(wait);
}

fn release(released: &AtomicU32) {
    released.store(1, SeqCst);
    raw::futex_wake(released, i32::MAX.unsigned_abs());
}
