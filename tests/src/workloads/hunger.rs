//! A process that wants more and more memory.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use anyhow::Result;

use super::{
    raw,
    stage::{Role, Stage},
};

/// What it takes at once …
const BITE: usize = 1 << 20;
/// … and how often before it begins anew: nobody is to be driven out who has not set a limit.
const BITES: usize = 256;
/// Between two bites.
const PAUSE: Duration = Duration::from_millis(5);

/// Allocates memory until there is none, and sleeps in between.
pub(super) fn run(stage: &Stage) -> Result<()> {
    let eater = stage.role("eater")?;
    let stopped = stage.stopped();
    stage.process(|| {
        eater.claim("ow-eater");
        let mut eaten: Vec<Vec<u8>> = Vec::with_capacity(BITES);
        while stopped.load(SeqCst) == 0 {
            if eaten.len() == BITES {
                eaten.clear();
            }
            // Written, so that it is really there.
            eaten.push(std::hint::black_box(vec![1; BITE]));
            sleeps(eater);
        }
    })?;
    stage.play(|| ())
}

#[inline(never)]
fn sleeps(eater: &Role) {
    eater.waits(|| raw::nanosleep(PAUSE));
}
