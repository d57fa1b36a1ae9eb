//! Two threads that meet at a barrier; one of them computes six times as long as the other.

use std::{
    cell::UnsafeCell,
    mem::MaybeUninit,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use anyhow::{Result, ensure};

use super::stage::Stage;

const SHORT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_millis(6);

struct Barrier(UnsafeCell<libc::pthread_barrier_t>);

// SAFETY: sharing it between threads is what a barrier is for.
unsafe impl Sync for Barrier {}
// SAFETY: it is initialised where it stays, inside its Arc.
unsafe impl Send for Barrier {}

impl Barrier {
    fn for_two() -> Result<Arc<Self>> {
        // SAFETY: plain bytes, made a barrier of before anybody uses it.
        let blank = unsafe { MaybeUninit::zeroed().assume_init() };
        let barrier = Arc::new(Self(UnsafeCell::new(blank)));
        // SAFETY: the place is valid, and nobody else has it yet.
        let made = unsafe { libc::pthread_barrier_init(barrier.0.get(), std::ptr::null(), 2) };
        ensure!(made == 0, "cannot make a barrier: {}", std::io::Error::from_raw_os_error(made));
        Ok(barrier)
    }

    #[inline(never)]
    fn waits_for_the_other(&self) {
        // SAFETY: the barrier is initialised and stays where it is.
        unsafe { libc::pthread_barrier_wait(self.0.get()) };
    }
}

pub(super) fn late_left(stage: &Stage) -> Result<()> {
    run(stage, LONG, SHORT)
}

pub(super) fn late_right(stage: &Stage) -> Result<()> {
    run(stage, SHORT, LONG)
}

fn run(stage: &Stage, left_computes: Duration, right_computes: Duration) -> Result<()> {
    let (left, right) = (stage.role("left")?, stage.role("right")?);
    let stopped = stage.stopped();
    // The round that is the last for both; 0 as long as nobody has said so.
    let last = stage.word()?;
    let barrier = Barrier::for_two()?;
    for (role, comm, length) in
        [(left, "ow-left", left_computes), (right, "ow-right", right_computes)]
    {
        let barrier = Arc::clone(&barrier);
        stage.thread(move || {
            role.claim(comm);
            for round in 1.. {
                role.computes(length);
                if comm == "ow-left" && stopped.load(SeqCst) != 0 {
                    last.store(round, SeqCst);
                }
                role.waits(|| barrier.waits_for_the_other());
                if last.load(SeqCst) == round {
                    break;
                }
            }
        })?;
    }
    stage.play(|| ())
}
