//! Locks that are held for a known time, by computing or sleeping.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use anyhow::Result;

use super::{
    mutex::{Protocol, PthreadMutex, contend},
    raw,
    stage::Stage,
};
use crate::{clock::compute, ground_truth::Activity};

/// What the holder computes with the lock held, half of it before it sleeps.
const COMPUTED: Duration = Duration::from_millis(4);

/// How long it sleeps meanwhile.
const SLEPT: Duration = Duration::from_millis(6);

/// How long somebody who has little time waits for a lock at once.
const PATIENCE: Duration = Duration::from_millis(3);

/// What a holder then does without the lock, so that another one gets it.
const AWAY: Duration = Duration::from_millis(1);

/// A holder that computes, sleeps and computes again, all with the lock held, and one who wants it.
/// The holder logs its sleeps as waits.
pub(super) fn with_a_sleep_inside(stage: &Stage) -> Result<()> {
    let holder = stage.role("holder")?;
    let stopped = stage.stopped();
    let mutex = PthreadMutex::unlocked(Protocol::Plain)?;
    let times_taken = Arc::new(AtomicU64::new(0));
    {
        let (mutex, times_taken) = (Arc::clone(&mutex), Arc::clone(&times_taken));
        stage.thread(move || {
            holder.claim("ow-holder");
            while stopped.load(SeqCst) == 0 {
                mutex.lock();
                times_taken.fetch_add(1, SeqCst);
                holder.computes(COMPUTED / 2);
                holder.waits(|| raw::nanosleep(SLEPT));
                holder.computes(COMPUTED / 2);
                mutex.unlock();
                compute(AWAY);
            }
        })?;
    }
    contend(stage, mutex, times_taken)?;
    stage.play(|| ())
}

/// Three who want one lock all the time, and hold it for times of their own. Each logs when it
/// held the lock as work, and when it wanted it as a wait.
pub(super) fn handed_over(stage: &Stage) -> Result<()> {
    hand_over(stage, Protocol::Plain, [2, 4, 6], PthreadMutex::lock)
}

/// The same lock with priority inheritance.
pub(super) fn pi_handed_over(stage: &Stage) -> Result<()> {
    hand_over(stage, Protocol::PriorityInheritance, [2, 4, 6], PthreadMutex::lock)
}

/// A plain lock that nobody waits for longer than this at once: they try again. The last of them has it longest.
pub(super) fn handed_over_with_timeouts(stage: &Stage) -> Result<()> {
    hand_over(stage, Protocol::Plain, [2, 4, 6], try_again)
}

/// The same, but that the first of them has it longest.
pub(super) fn handed_over_with_timeouts_to_the_first(stage: &Stage) -> Result<()> {
    hand_over(stage, Protocol::Plain, [6, 4, 2], try_again)
}

fn try_again(mutex: &PthreadMutex) {
    while !mutex.lock_within(PATIENCE) {}
}

/// A lock that three hold by turns, so that somebody waits for it at any time, and that a fourth one
/// wants who gives up after a time and does something else.
pub(super) fn given_up(stage: &Stage) -> Result<()> {
    let stopped = stage.stopped();
    let mutex = PthreadMutex::unlocked(Protocol::Plain)?;
    let holders = [("x", "ow-x", 10), ("y", "ow-y", 5), ("z", "ow-z", 7)];
    let cast: Vec<_> = holders
        .into_iter()
        .map(|(name, comm, held_ms)| Ok((stage.role(name)?, comm, Duration::from_millis(held_ms))))
        .collect::<Result<_>>()?;
    let impatient = stage.role("impatient")?;
    for (role, comm, held) in cast {
        let mutex = Arc::clone(&mutex);
        stage.thread(move || {
            role.claim(comm);
            while stopped.load(SeqCst) == 0 {
                mutex.lock();
                let holds = role.begin(Activity::Work, 0);
                compute(held);
                role.end(holds);
                mutex.unlock();
                compute(AWAY);
            }
        })?;
    }
    stage.thread(move || {
        impatient.claim("ow-impatient");
        while stopped.load(SeqCst) == 0 {
            if impatient.waits(|| mutex.lock_within(PATIENCE)) {
                mutex.unlock();
            }
            compute(AWAY);
        }
    })?;
    stage.play(|| ())
}

fn hand_over(
    stage: &Stage,
    protocol: Protocol,
    [x_ms, y_ms, z_ms]: [u64; 3],
    lock: fn(&PthreadMutex),
) -> Result<()> {
    let stopped = stage.stopped();
    let mutex = PthreadMutex::unlocked(protocol)?;
    let contenders = [("x", "ow-x", x_ms), ("y", "ow-y", y_ms), ("z", "ow-z", z_ms)];
    let cast: Vec<_> = contenders
        .into_iter()
        .map(|(name, comm, held_ms)| Ok((stage.role(name)?, comm, Duration::from_millis(held_ms))))
        .collect::<Result<_>>()?;
    for (role, comm, held) in cast {
        let mutex = Arc::clone(&mutex);
        stage.thread(move || {
            role.claim(comm);
            while stopped.load(SeqCst) == 0 {
                role.waits(|| lock(&mutex));
                let holds = role.begin(Activity::Work, 0);
                compute(held);
                role.end(holds);
                mutex.unlock();
                compute(AWAY);
            }
        })?;
    }
    stage.play(|| ())
}
