//! Threads that are moved from one CPU to another and back.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use anyhow::{Result, ensure};

use super::{
    raw, sleeps,
    stage::{Stage, allowed_cpus, bind},
};

/// How long it stays where it is: long enough to be preempted, too short to get far in the queue.
const STAY: Duration = Duration::from_millis(9);

/// How long the restless one stays: some hundred moves a second, more than anybody else makes.
const REST: Duration = Duration::from_millis(1);

/// A thread that goes from one CPU to another and back, and has a sleeper follow it, who moves as it
/// wakes.
pub(super) fn to_and_fro(stage: &Stage) -> Result<()> {
    let (sleeper, restless) = (stage.role("sleeper")?, stage.role("restless")?);
    let places = two_cpus()?;
    let stopped = stage.stopped();
    stage.thread(move || {
        sleeper.claim("ow-sleeper");
        while stopped.load(SeqCst) == 0 {
            sleeper.waits(|| raw::nanosleep(REST));
        }
    })?;
    stage.thread(move || {
        restless.claim("ow-restless");
        for cpu in places.into_iter().cycle() {
            if stopped.load(SeqCst) != 0 {
                break;
            }
            for tid in [restless.tid(), sleeper.tid()] {
                if tid != 0
                    && let Err(error) = bind(tid, cpu)
                {
                    return eprintln!("{error}");
                }
            }
            raw::nanosleep(REST);
        }
    })?;
    stage.play(|| ())
}

fn two_cpus() -> Result<[usize; 2]> {
    let cpus = allowed_cpus()?;
    ensure!(cpus.len() >= 2, "there is only one CPU");
    Ok([cpus[0], cpus[1]])
}

/// A thread that computes on a busy CPU, and is moved from there to another one and back. Two CPUs
/// with a hog each. The mover logs each move as a wait: it is over when the call returns.
pub(super) fn while_runnable(stage: &Stage) -> Result<()> {
    let (moved, mover) = (stage.role("moved")?, stage.role("mover")?);
    let hogs = [stage.role("first-hog")?, stage.role("second-hog")?];
    let places = two_cpus()?;
    let stopped = stage.stopped();
    for (hog, cpu) in hogs.into_iter().zip(places) {
        stage.thread(move || {
            // A hog that may run anywhere is one as well.
            let _bound = bind(0, cpu);
            hog.claim("ow-hog");
            sleeps::hogs(hog, || stopped.load(SeqCst) == 0);
        })?;
    }
    stage.thread(move || {
        moved.claim("ow-moved");
        sleeps::hogs(moved, || stopped.load(SeqCst) == 0);
    })?;
    stage.thread(move || {
        mover.claim("ow-mover");
        for cpu in places.into_iter().cycle() {
            if stopped.load(SeqCst) != 0 {
                break;
            }
            let tid = moved.tid();
            if tid != 0
                && let Err(error) = mover.waits(|| bind(tid, cpu))
            {
                eprintln!("{error}");
                break;
            }
            raw::nanosleep(STAY);
        }
    })?;
    stage.play(|| ())
}
