//! Two threads that wake each other in bursts, one a millisecond: so often a second, whatever one
//! switch costs.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use anyhow::{Result, ensure};

use super::{Count, baton::Baton, ring};
use crate::{clock::now_ns, workloads::raw::nanosleep};

const MILLISECOND: u64 = 1_000_000;

/// Turns of the pacing thread in a burst. A turn is a plain function, and has no other way to know.
static BURST: AtomicU32 = AtomicU32::new(1);

/// When the next burst begins.
static NEXT: AtomicU64 = AtomicU64::new(0);

pub(super) fn run(switches: u32) -> Result<Count> {
    // Both threads switch once a turn, and whoever sleeps leaves the CPU to nobody and comes back.
    let turns = (switches / 1000).saturating_sub(1) / 2;
    ensure!(turns > 0, "less than 3,000 switches a second are no burst");
    BURST.store(turns, Relaxed);
    NEXT.store(now_ns() + MILLISECOND, Relaxed);
    ring::around(2, turn)
}

fn turn(mine: &Baton, next: &Baton, count: u64) {
    mine.acquire();
    if is_first(mine, next) && count.is_multiple_of(BURST.load(Relaxed).into()) {
        let due = NEXT.load(Relaxed);
        let now = now_ns();
        if due > now {
            nanosleep(Duration::from_nanos(due - now));
        }
        // A burst that took too long is not made up for.
        NEXT.store(due.max(now) + MILLISECOND, Relaxed);
    }
    next.hand_over();
}

/// Whether this is the thread that sets the pace: one of the two.
fn is_first(mine: &Baton, next: &Baton) -> bool {
    std::ptr::from_ref(mine) < std::ptr::from_ref(next)
}
