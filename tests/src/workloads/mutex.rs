//! A pthread mutex, held by a thread that computes while another wants it.

use std::{
    cell::UnsafeCell,
    io,
    mem::MaybeUninit,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use anyhow::{Result, ensure};

use super::stage::Stage;
use crate::clock::spin;

/// How long the holder computes with the lock held.
const HELD: Duration = Duration::from_millis(5);

/// How long it then stays away, so that the other one gets the lock.
const AWAY: Duration = Duration::from_millis(1);

pub(super) struct PthreadMutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: sharing it between threads is what a mutex is for.
unsafe impl Sync for PthreadMutex {}
// SAFETY: it is only moved before its first use.
unsafe impl Send for PthreadMutex {}

/// Whether waiters lend a mutex's holder their priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// They do not: the mutex is a futex like any other.
    Plain,
    /// They do: the kernel keeps the futex's owner and its queue.
    PriorityInheritance,
}

/// What is special about a mutex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MutexType {
    /// Its owner may lock it again.
    Recursive,
    /// Its owner is told so who locks it again.
    ErrorChecking,
    /// The next one gets it should its owner die.
    Robust,
}

impl PthreadMutex {
    pub(super) fn unlocked(protocol: Protocol) -> Result<Arc<Self>> {
        let mutex = Arc::new(Self(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER)));
        if protocol == Protocol::PriorityInheritance {
            mutex.inherit_priority()?;
        }
        Ok(mutex)
    }

    /// Initialises the mutex anew; before its first use.
    fn inherit_priority(&self) -> Result<()> {
        self.initialise(|attributes| {
            // SAFETY: the attributes are initialised.
            unsafe { libc::pthread_mutexattr_setprotocol(attributes, libc::PTHREAD_PRIO_INHERIT) }
        })
    }

    /// Has processes share the mutex; before its first use, in memory that they share.
    pub(super) fn share_between_processes(&self) -> Result<()> {
        self.initialise(|attributes| {
            // SAFETY: the attributes are initialised.
            unsafe { libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED) }
        })
    }

    /// Makes it a mutex of this type (`PTHREAD_MUTEX_RECURSIVE`); before its first use.
    pub(super) fn set_type(&self, kind: MutexType) -> Result<()> {
        let set: fn(*mut libc::pthread_mutexattr_t) -> libc::c_int = match kind {
            // SAFETY: the attributes are initialised.
            MutexType::Recursive => |attributes| unsafe {
                libc::pthread_mutexattr_settype(attributes, libc::PTHREAD_MUTEX_RECURSIVE)
            },
            // SAFETY: as above.
            MutexType::ErrorChecking => |attributes| unsafe {
                libc::pthread_mutexattr_settype(attributes, libc::PTHREAD_MUTEX_ERRORCHECK)
            },
            // SAFETY: as above.
            MutexType::Robust => |attributes| unsafe {
                libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST)
            },
        };
        self.initialise(set)
    }

    /// Initialises the mutex anew, with attributes that `set` sets.
    fn initialise(&self, set: fn(*mut libc::pthread_mutexattr_t) -> libc::c_int) -> Result<()> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the attributes are initialised by the first call, the mutex is not in use and
        // stays where it is.
        let failed = unsafe {
            let attributes = attributes.as_mut_ptr();
            let failed = [
                libc::pthread_mutexattr_init(attributes),
                set(attributes),
                libc::pthread_mutex_init(self.0.get(), attributes),
            ];
            libc::pthread_mutexattr_destroy(attributes);
            failed.into_iter().find(|&error| error != 0)
        };
        ensure!(
            failed.is_none(),
            "cannot make such a mutex: {:?}",
            failed.map(io::Error::from_raw_os_error)
        );
        Ok(())
    }

    #[inline(never)]
    pub(super) fn lock(&self) {
        // SAFETY: the mutex is initialised and stays where it is, inside its Arc.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
    }

    /// Waits for the mutex for this long at most; returns whether it was had.
    #[inline(never)]
    pub(super) fn lock_within(&self, length: Duration) -> bool {
        let mut until = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the time is a valid place.
        unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut until) };
        until.tv_nsec += libc::c_long::from(length.subsec_nanos().cast_signed());
        until.tv_sec += until.tv_nsec / 1_000_000_000;
        until.tv_nsec %= 1_000_000_000;
        // SAFETY: as above; the time is valid.
        match unsafe { libc::pthread_mutex_timedlock(self.0.get(), &raw const until) } {
            0 => true,
            libc::ETIMEDOUT => false,
            error => panic!("cannot lock: {}", io::Error::from_raw_os_error(error)),
        }
    }

    pub(super) fn unlock(&self) {
        // SAFETY: as above; only the thread that locked it unlocks it.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}

/// Of the default kind.
pub(super) fn plain(stage: &Stage) -> Result<()> {
    run(stage, Protocol::Plain)
}

/// With priority inheritance.
pub(super) fn with_priority_inheritance(stage: &Stage) -> Result<()> {
    run(stage, Protocol::PriorityInheritance)
}

fn run(stage: &Stage, protocol: Protocol) -> Result<()> {
    let holder = stage.role("holder")?;
    let stopped = stage.stopped();
    let mutex = PthreadMutex::unlocked(protocol)?;
    let times_taken = Arc::new(AtomicU64::new(0));
    {
        let (mutex, times_taken) = (Arc::clone(&mutex), Arc::clone(&times_taken));
        stage.thread(move || {
            holder.claim("ow-holder");
            while stopped.load(SeqCst) == 0 {
                mutex.lock();
                times_taken.fetch_add(1, SeqCst);
                holder.works(HELD);
                mutex.unlock();
                spin(AWAY);
            }
        })?;
    }
    contend(stage, mutex, times_taken)?;
    stage.play(|| ())
}

/// A contender who wants the lock once for each time that its holder has taken it.
pub(super) fn contend(
    stage: &Stage,
    mutex: Arc<PthreadMutex>,
    times_taken: Arc<AtomicU64>,
) -> Result<()> {
    let contender = stage.role("contender")?;
    let stopped = stage.stopped();
    stage.thread(move || {
        contender.claim("ow-contender");
        let mut seen = 0;
        while stopped.load(SeqCst) == 0 {
            let taken = times_taken.load(SeqCst);
            if taken == seen {
                std::hint::spin_loop();
                continue;
            }
            seen = taken;
            contender.waits(|| mutex.lock());
            mutex.unlock();
        }
    })
}
