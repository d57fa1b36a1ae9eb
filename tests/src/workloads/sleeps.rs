//! Sleeping on purpose.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use anyhow::{Context, Result};

use super::{
    raw,
    stage::{Role, Stage, pin_to_last_cpu},
};
use crate::{
    clock::{now_ns, spin},
    ground_truth::Activity,
    intervals::Interval,
};

/// A thread that sleeps 10 ms and computes 1 ms, over and over.
pub(super) fn sleeper(stage: &Stage) -> Result<()> {
    let sleeper = stage.role("sleeper")?;
    let stopped = stage.stopped();
    stage.thread(move || {
        sleeper.claim("ow-sleeper");
        while stopped.load(SeqCst) == 0 {
            sleeper.waits(|| sleeps(Duration::from_millis(10)));
            sleeper.works(Duration::from_millis(1));
        }
    })?;
    stage.play(|| ())
}

/// A thread that sleeps for 2 ms and for 20 ms by turns: half of its waits are short.
pub(super) fn short_and_long(stage: &Stage) -> Result<()> {
    let sleeper = stage.role("sleeper")?;
    let stopped = stage.stopped();
    stage.thread(move || {
        sleeper.claim("ow-sleeper");
        while stopped.load(SeqCst) == 0 {
            sleeper.waits(|| sleeps(Duration::from_millis(2)));
            sleeper.waits(|| sleeps(Duration::from_millis(20)));
        }
    })?;
    stage.play(|| ())
}

/// A sleeper bound to one CPU with a hog: its timers fire over the hog, who has nothing to do with
/// them.
pub(super) fn over_a_hog(stage: &Stage) -> Result<()> {
    let (sleeper, hog) = (stage.role("sleeper")?, stage.role("hog")?);
    let stopped = stage.stopped();
    pin_to_last_cpu()?;
    stage.thread(move || {
        sleeper.claim("ow-sleeper");
        while stopped.load(SeqCst) == 0 {
            sleeper.waits(|| sleeps(Duration::from_millis(7)));
        }
    })?;
    stage.thread(move || {
        hog.claim("ow-hog");
        hogs(hog, || stopped.load(SeqCst) == 0);
    })?;
    stage.play(|| ())
}

/// Nothing but a wait of 30 ms right at the start, then the end, with status 7. The truth goes to
/// the file that the argument names, as nobody may be there to talk to.
pub(super) fn first_wait(stage: &Stage) -> Result<()> {
    let role = stage.role("command")?;
    role.claim("ow-command");
    role.waits(|| sleeps(Duration::from_millis(30)));
    let truth = serde_json::to_vec(&stage.truth()).context("cannot make JSON")?;
    let path = stage.argument()?;
    std::fs::write(path, truth).with_context(|| format!("cannot write {path}"))?;
    std::process::exit(7);
}

#[inline(never)]
pub(super) fn sleeps(length: Duration) {
    raw::nanosleep(length);
}

/// Computes as long as `going`, and logs the holes in which it did not have the CPU.
pub(super) fn hogs(role: &Role, going: impl Fn() -> bool) {
    /// A hole is what takes longer than any interrupt ought to.
    const HOLE_NS: u64 = 300_000;
    let mut last = now_ns();
    while going() {
        let now = now_ns();
        if now - last > HOLE_NS {
            role.log_past(Activity::OffCpu, Interval::new(last, now), 0);
        }
        last = now;
        std::hint::spin_loop();
    }
}

/// Two threads bound to one CPU, both computing all the time: each has it half the time.
pub(super) fn two_spinners(stage: &Stage) -> Result<()> {
    pin_to_last_cpu()?;
    for (name, comm) in [("first", "ow-first"), ("second", "ow-second")] {
        let role = stage.role(name)?;
        let stopped = stage.stopped();
        stage.thread(move || {
            role.claim(comm);
            hogs(role, || stopped.load(SeqCst) == 0);
        })?;
    }
    stage.play(|| ())
}

/// Keeps computing for a moment: what a short-lived child does.
pub(super) fn computes(length: Duration) {
    spin(length);
}
