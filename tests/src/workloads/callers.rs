//! One thread that waits in the same place for two callers by turns, as long for each as its name says.

use std::{hint::black_box, sync::atomic::Ordering::SeqCst, time::Duration};

use anyhow::Result;

use super::{raw, stage::Stage};

/// Waits for the caller that is named after it.
const SHORT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_millis(3);

/// A wait whose two callers are next to it on the stack.
pub(super) fn near(stage: &Stage) -> Result<()> {
    alternate::<1>(stage)
}

/// Between them and where it waits are more frames, all the same, than offwake looks at to recognise
/// a stack.
pub(super) fn far(stage: &Stage) -> Result<()> {
    alternate::<24>(stage)
}

fn alternate<const FRAMES: u32>(stage: &Stage) -> Result<()> {
    let sleeper = stage.role("sleeper")?;
    let stopped = stage.stopped();
    stage.thread(move || {
        sleeper.claim("ow-sleeper");
        while stopped.load(SeqCst) == 0 {
            sleeper.waits(|| short_caller(FRAMES));
            sleeper.waits(|| long_caller(FRAMES));
        }
    })?;
    stage.play(|| ())
}

/// Calls as [`long_caller`] does, with the same code, so that their frames are of one size.
#[inline(never)]
fn short_caller(frames: u32) {
    down(black_box(frames), black_box(SHORT));
    black_box(1);
}

#[inline(never)]
fn long_caller(frames: u32) {
    down(black_box(frames), black_box(LONG));
    black_box(2);
}

#[inline(never)]
fn down(frames: u32, length: Duration) {
    if frames == 0 {
        raw::nanosleep(length);
    } else {
        down(frames - 1, length);
    }
    black_box(frames);
}
