//! One thread that computes and then wakes four others at once.

use std::{
    cell::UnsafeCell,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use anyhow::Result;

use super::{raw, stage::Stage};

/// What the broadcaster computes before each broadcast.
const WORK: Duration = Duration::from_millis(5);

/// The roles that wait, and the names of their threads.
const WAITERS: [(&str, &str); 4] = [
    ("first", "ow-first"),
    ("second", "ow-second"),
    ("third", "ow-third"),
    ("fourth", "ow-fourth"),
];

/// Something that goes up and is waited for.
trait Generation: Send + Sync + 'static {
    fn now(&self) -> u32;
    fn waits_until_past(&self, seen: u32);
    fn broadcast(&self);
}

/// `FUTEX_WAKE` of everybody.
pub(super) fn by_futex(stage: &Stage) -> Result<()> {
    run(stage, Arc::new(Word(AtomicU32::new(0))))
}

/// `pthread_cond_broadcast`.
pub(super) fn by_condvar(stage: &Stage) -> Result<()> {
    run(
        stage,
        Arc::new(Condvar {
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            changed: UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER),
            generation: AtomicU32::new(0),
        }),
    )
}

fn run(stage: &Stage, generation: Arc<impl Generation>) -> Result<()> {
    let broadcaster = stage.role("broadcaster")?;
    let stopped = stage.stopped();
    for (name, comm) in WAITERS {
        let role = stage.role(name)?;
        let generation = Arc::clone(&generation);
        stage.thread(move || {
            role.claim(comm);
            while stopped.load(SeqCst) == 0 {
                let seen = generation.now();
                role.waits(|| generation.waits_until_past(seen));
            }
        })?;
    }
    stage.thread(move || {
        broadcaster.claim("ow-broadcaster");
        while stopped.load(SeqCst) == 0 {
            broadcaster.computes(WORK);
            generation.broadcast();
        }
        // Some may have gone to wait after the one before.
        generation.broadcast();
    })?;
    stage.play(|| ())
}

struct Word(AtomicU32);

impl Generation for Word {
    fn now(&self) -> u32 {
        self.0.load(SeqCst)
    }

    #[inline(never)]
    fn waits_until_past(&self, seen: u32) {
        while self.now() == seen {
            raw::futex_wait(&self.0, seen);
        }
    }

    fn broadcast(&self) {
        self.0.fetch_add(1, SeqCst);
        raw::futex_wake(&self.0, i32::MAX.unsigned_abs());
    }
}

struct Condvar {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    changed: UnsafeCell<libc::pthread_cond_t>,
    generation: AtomicU32,
}

// SAFETY: sharing them between threads is what a mutex and a condition are for.
unsafe impl Sync for Condvar {}
// SAFETY: it is only moved before its first use.
unsafe impl Send for Condvar {}

impl Generation for Condvar {
    fn now(&self) -> u32 {
        self.generation.load(SeqCst)
    }

    #[inline(never)]
    fn waits_until_past(&self, seen: u32) {
        // SAFETY: both are initialised and stay inside their Arc.
        unsafe {
            libc::pthread_mutex_lock(self.mutex.get());
            while self.now() == seen {
                libc::pthread_cond_wait(self.changed.get(), self.mutex.get());
            }
            libc::pthread_mutex_unlock(self.mutex.get());
        }
    }

    fn broadcast(&self) {
        // SAFETY: as above.
        unsafe {
            libc::pthread_mutex_lock(self.mutex.get());
            self.generation.fetch_add(1, SeqCst);
            libc::pthread_mutex_unlock(self.mutex.get());
            libc::pthread_cond_broadcast(self.changed.get());
        }
    }
}
