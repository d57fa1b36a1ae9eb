//! Two threads that wait at the end of call paths. A path is a number whose bits say at each level
//! which of two functions is called, so that every number is a stack of its own, all equally deep.
//!
//! ```text
//! path 0: left  left  left …
//! path 1: right left  left …
//! path 2: left  right left …
//! ```

use std::{
    hint::black_box,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use anyhow::{Result, ensure};

use super::{Count, baton::Baton, ring};

/// Calls in a path: enough for 131,072 of them.
const LEVELS: u32 = 17;

/// How many paths there are. A turn is a plain function, and has no other way to know.
static PATHS: AtomicU32 = AtomicU32::new(1);

pub(super) fn run(paths: u32) -> Result<Count> {
    ensure!((1..=1 << LEVELS).contains(&paths), "there are 1 to {} paths", 1 << LEVELS);
    PATHS.store(paths, Relaxed);
    ring::around(2, |mine, next, count| {
        black_box(descend(count % u64::from(PATHS.load(Relaxed)), LEVELS, mine, next));
    })
}

#[inline(always)]
fn descend(path: u64, levels: u32, mine: &Baton, next: &Baton) -> u64 {
    if levels == 0 {
        mine.acquire();
        next.hand_over();
        0
    } else if path & 1 == 0 {
        turn_left(path >> 1, levels - 1, mine, next)
    } else {
        turn_right(path >> 1, levels - 1, mine, next)
    }
}

// What they add keeps the calls from becoming jumps, and the two functions from becoming one.

#[inline(never)]
fn turn_left(path: u64, levels: u32, mine: &Baton, next: &Baton) -> u64 {
    black_box(descend(path, levels, mine, next)) + 1
}

#[inline(never)]
fn turn_right(path: u64, levels: u32, mine: &Baton, next: &Baton) -> u64 {
    black_box(descend(path, levels, mine, next)) + 2
}
