//! A readers-writer lock that two readers share, and a writer that waits until both have let go.
//!
//! ```text
//! long      has the lock, asleep |---------------|      pauses |----------------------|
//! short     |---|   pauses |--------|   |---|   pauses |--------|   |---|
//! writer         .............. waits ......^
//! ```

use std::{sync::Arc, sync::atomic::Ordering::SeqCst, time::Duration};

use anyhow::Result;

use super::{
    owned_locks::Rwlock,
    raw,
    stage::{Role, Stage},
};
use crate::{clock::compute, ground_truth::Activity};

/// What a reader does, again and again.
struct Reading {
    /// How long it sleeps without the lock,
    pause: Duration,
    /// … and with it.
    held: Duration,
}

const LONG: Reading = Reading { pause: Duration::from_millis(22), held: Duration::from_millis(15) };
const SHORT: Reading = Reading { pause: Duration::from_millis(8), held: Duration::from_millis(3) };
/// What the writer does without the lock, so that readers get it.
const AWAY: Duration = Duration::from_millis(3);

/// Two readers, which often have the lock at one time.
pub(super) fn two_readers(stage: &Stage) -> Result<()> {
    run(stage, vec![("long", "ow-long", LONG), ("short", "ow-short", SHORT)])
}

/// One reader, which has the lock while the writer waits, and pauses at other times.
pub(super) fn one_reader(stage: &Stage) -> Result<()> {
    run(stage, vec![("long", "ow-long", LONG)])
}

fn run(stage: &Stage, readers: Vec<(&'static str, &'static str, Reading)>) -> Result<()> {
    let lock = Arc::new(Rwlock::unlocked());
    let writer = stage.role("writer")?;
    let readers: Vec<_> = readers
        .into_iter()
        .map(|(name, comm, reading)| Ok((stage.role(name)?, comm, reading)))
        .collect::<Result<_>>()?;
    let stopped = stage.stopped();
    for (role, comm, reading) in readers {
        let lock = Arc::clone(&lock);
        stage.thread(move || {
            role.claim(comm);
            while stopped.load(SeqCst) == 0 {
                pauses(reading.pause);
                lock.lock_for_reading();
                reads(role, reading.held);
                lock.unlock();
            }
        })?;
    }
    stage.thread(move || {
        writer.claim("ow-writer");
        while stopped.load(SeqCst) == 0 {
            compute(AWAY);
            writer.waits(|| lock.lock_for_writing());
            lock.unlock();
        }
    })?;
    stage.play(|| ())
}

#[inline(never)]
fn pauses(length: Duration) {
    raw::nanosleep(length);
}

/// Logs when it has the lock as work.
#[inline(never)]
fn reads(role: &Role, length: Duration) {
    let has_it = role.begin(Activity::Work, 0);
    raw::nanosleep(length);
    role.end(has_it);
}
