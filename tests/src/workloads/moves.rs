//! A thread that computes on a busy CPU, and is moved from there to another one and back.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use anyhow::{Result, ensure};

use super::{
    raw, sleeps,
    stage::{Stage, allowed_cpus, bind},
};

/// How long it stays where it is: long enough to be preempted, too short to get far in the queue.
const STAY: Duration = Duration::from_millis(9);

/// Two CPUs with a hog each. The mover logs each move as a wait: it is over when the call returns.
pub(super) fn run(stage: &Stage) -> Result<()> {
    let (moved, mover) = (stage.role("moved")?, stage.role("mover")?);
    let hogs = [stage.role("first-hog")?, stage.role("second-hog")?];
    let cpus = allowed_cpus()?;
    ensure!(cpus.len() >= 2, "there is only one CPU");
    let places = [cpus[0], cpus[1]];
    let stopped = stage.stopped();
    for (hog, cpu) in hogs.into_iter().zip(places) {
        stage.thread(move || {
            // A hog that may run anywhere is one as well.
            let _bound = bind(0, cpu);
            hog.take("ow-hog");
            sleeps::hogs(hog, || stopped.load(SeqCst) == 0);
        })?;
    }
    stage.thread(move || {
        moved.take("ow-moved");
        sleeps::hogs(moved, || stopped.load(SeqCst) == 0);
    })?;
    stage.thread(move || {
        mover.take("ow-mover");
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
