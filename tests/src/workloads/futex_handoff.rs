//! A raw futex: the waiter sleeps until the worker has computed for 5 ms and wakes it.

use std::{sync::atomic::AtomicU32, sync::atomic::Ordering::SeqCst, time::Duration};

use anyhow::Result;

use super::{raw, stage::Role, stage::Stage};

/// What the worker computes for each turn.
const WORK: Duration = Duration::from_millis(5);

/// What the waiter does with its turn.
const PAUSE: Duration = Duration::from_millis(1);

const WORKERS_TURN: u32 = 0;
const WAITERS_TURN: u32 = 1;
const END: u32 = 2;

pub(super) fn run(stage: &Stage) -> Result<()> {
    named(stage, b"ow-waiter", b"ow-worker")
}

/// Two threads whose names are an attack on whoever prints them: markup, terminal escapes, the
/// separators of folded stacks, bytes that are no UTF-8.
pub(super) fn run_with_hostile_names(stage: &Stage) -> Result<()> {
    named(stage, b"<script>alert(1)</script>", b"\x1b[31m;a b\n\"\xff--;")
}

fn named(stage: &Stage, waiters_name: &'static [u8], workers_name: &'static [u8]) -> Result<()> {
    let (waiter, worker) = (stage.role("waiter")?, stage.role("worker")?);
    let (turn, stopped) = (stage.word()?, stage.stopped());
    stage.thread(move || {
        waiter.claim_with_raw_name(waiters_name);
        loop {
            waiter.waits(|| waits_for_baton(turn, WORKERS_TURN));
            waiter.works(PAUSE);
            if stopped.load(SeqCst) != 0 {
                break hands_baton(turn, END);
            }
            hands_baton(turn, WORKERS_TURN);
        }
    })?;
    stage.thread(move || {
        worker.claim_with_raw_name(workers_name);
        while turn.load(SeqCst) != END {
            works_before_waking(worker, turn);
            worker.waits(|| waits_for_baton(turn, WAITERS_TURN));
        }
    })?;
    stage.play(|| ())
}

#[inline(never)]
fn works_before_waking(worker: &Role, turn: &AtomicU32) {
    worker.works(WORK);
    hands_baton(turn, WAITERS_TURN);
}

#[inline(never)]
fn waits_for_baton(turn: &AtomicU32, others: u32) {
    while turn.load(SeqCst) == others {
        raw::futex_wait(turn, others);
    }
}

#[inline(never)]
fn hands_baton(turn: &AtomicU32, whose: u32) {
    turn.store(whose, SeqCst);
    raw::futex_wake(turn, 1);
}
