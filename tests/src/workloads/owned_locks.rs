//! Locks in memory that somebody has for as long as one looks, and others want.

use std::{
    cell::UnsafeCell,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use anyhow::Result;

use super::{
    mutex::{MutexType, Protocol, PthreadMutex},
    raw,
    shared::{Zeroed, map},
    stage::{Role, Stage},
};

/// Sleeps are so long that hardly anybody is awake at any moment, and end soon enough.
const NAP: Duration = Duration::from_millis(500);

/// Two threads have a mutex each, and want that of the other.
pub(super) fn deadlock(stage: &Stage) -> Result<()> {
    put_in_a_ring(stage, &["left", "right"])
}

/// Three threads have a mutex each, and each wants that of the next one.
pub(super) fn deadlock_of_three(stage: &Stage) -> Result<()> {
    put_in_a_ring(stage, &["left", "middle", "right"])
}

fn put_in_a_ring(stage: &Stage, names: &[&'static str]) -> Result<()> {
    let mutexes = (names.iter())
        .map(|_| PthreadMutex::unlocked(Protocol::Plain))
        .collect::<Result<Vec<_>>>()?;
    let roles = names.iter().map(|name| stage.role(name)).collect::<Result<Vec<_>>>()?;
    let (locked, count) = (stage.word()?, u32::try_from(names.len())?);
    for (n, (role, name)) in roles.into_iter().zip(names).enumerate() {
        let own = Arc::clone(&mutexes[n]);
        let others = Arc::clone(&mutexes[(n + 1) % names.len()]);
        let comm = format!("ow-{name}");
        stage.thread(move || {
            role.claim(&comm);
            own.lock();
            wait_for_all(locked, count);
            role.waits(|| wants_the_other(&others));
            others.unlock();
        })?;
    }
    // A plain mutex of the GNU C library does not mind who unlocks it. The thread whose mutex is given
    // away here does not unlock it any more, and neither does another one: nobody wants it.
    stage.play(|| mutexes.iter().for_each(|mutex| mutex.unlock()))
}

/// The same between two processes, with mutexes in memory that they share.
pub(super) fn deadlock_of_processes(stage: &Stage) -> Result<()> {
    let [mine, yours]: [&'static SharedMutex; 2] = [map()?, map()?];
    mine.0.share_between_processes()?;
    yours.0.share_between_processes()?;
    let locked = stage.word()?;
    let cast = [
        (stage.role("left")?, "ow-left", mine, yours),
        (stage.role("right")?, "ow-right", yours, mine),
    ];
    for (role, comm, own, others) in cast {
        stage.process(|| {
            role.claim(comm);
            own.0.lock();
            wait_for_all(locked, 2);
            role.waits(|| wants_the_other(&others.0));
            others.0.unlock();
        })?;
    }
    stage.play(|| {
        mine.0.unlock();
        yours.0.unlock();
    })
}

/// A mutex in memory that processes share.
struct SharedMutex(PthreadMutex);

// SAFETY: all zero is a mutex that nobody has, and it is shared by its own functions alone.
unsafe impl Zeroed for SharedMutex {}

/// Waits until so many have locked what they have.
pub(super) fn wait_for_all(locked: &AtomicU32, count: u32) {
    locked.fetch_add(1, SeqCst);
    raw::futex_wake(locked, count);
    loop {
        let so_far = locked.load(SeqCst);
        if so_far >= count {
            break;
        }
        raw::futex_wait(locked, so_far);
    }
}

#[inline(never)]
fn wants_the_other(mutex: &PthreadMutex) {
    mutex.lock();
}

/// `left` sleeps with a mutex held, `right` sleeps beside it.
pub(super) fn mutex_held_by_left(stage: &Stage) -> Result<()> {
    hold_mutex(stage, Protocol::Plain, ["left", "right"])
}

/// The other way round.
pub(super) fn mutex_held_by_right(stage: &Stage) -> Result<()> {
    hold_mutex(stage, Protocol::Plain, ["right", "left"])
}

/// A mutex with priority inheritance.
pub(super) fn pi_mutex_held_by_left(stage: &Stage) -> Result<()> {
    hold_mutex(stage, Protocol::PriorityInheritance, ["left", "right"])
}

fn hold_mutex(
    stage: &Stage,
    protocol: Protocol,
    [holder, beside]: [&'static str; 2],
) -> Result<()> {
    let mutex = PthreadMutex::unlocked(protocol)?;
    let (holder, beside) = (stage.role(holder)?, stage.role(beside)?);
    let (waiter, held) = (stage.role("waiter")?, stage.word()?);
    let stopped = stage.stopped();
    {
        let mutex = Arc::clone(&mutex);
        stage.thread(move || {
            mutex.lock();
            claim_held(holder, held);
            sleeps_with_the_lock(stopped);
            mutex.unlock();
        })?;
    }
    start_bystander(stage, beside)?;
    stage.thread(move || {
        wait_until_held(held);
        waiter.claim("ow-waiter");
        waiter.waits(|| wants_the_other(&mutex));
        mutex.unlock();
    })?;
    stage.play(|| ())
}

/// Each thread has a mutex of another type and wants that of the next one; the last one sleeps.
pub(super) fn in_a_row(stage: &Stage) -> Result<()> {
    let [recursive, checking] = [MutexType::Recursive, MutexType::ErrorChecking].map(Some);
    put_in_a_row(stage, [None, recursive, checking, Some(MutexType::Robust)])
}

/// The same, with the types in another order.
pub(super) fn in_another_row(stage: &Stage) -> Result<()> {
    let [recursive, checking] = [MutexType::Recursive, MutexType::ErrorChecking].map(Some);
    put_in_a_row(stage, [Some(MutexType::Robust), checking, recursive, None])
}

fn put_in_a_row(stage: &Stage, types: [Option<MutexType>; 4]) -> Result<()> {
    let mutexes = types
        .into_iter()
        .map(|kind| {
            let mutex = PthreadMutex::unlocked(Protocol::Plain)?;
            kind.map_or(Ok(()), |kind| mutex.set_type(kind))?;
            Ok(mutex)
        })
        .collect::<Result<Vec<_>>>()?;
    let names = ["first", "second", "third", "fourth"];
    let roles = names.map(|name| stage.role(name));
    let stopped = stage.stopped();
    let all_locked = Arc::new(Barrier::new(mutexes.len()));
    for (n, (role, name)) in roles.into_iter().zip(names).enumerate() {
        let (role, own, next) = (role?, Arc::clone(&mutexes[n]), mutexes.get(n + 1).cloned());
        let all_locked = Arc::clone(&all_locked);
        stage.thread(move || {
            role.claim(name);
            own.lock();
            all_locked.wait();
            match next {
                Some(next) => {
                    role.waits(|| wants_the_other(&next));
                    next.unlock();
                }
                None => sleeps_with_the_lock(stopped),
            }
            own.unlock();
        })?;
    }
    stage.play(|| ())
}

/// `left` sleeps with a readers-writer lock held for writing; a reader and a writer want it.
pub(super) fn rwlock_held_by_left(stage: &Stage) -> Result<()> {
    hold_rwlock(stage, ["left", "right"])
}

/// The other way round.
pub(super) fn rwlock_held_by_right(stage: &Stage) -> Result<()> {
    hold_rwlock(stage, ["right", "left"])
}

/// A readers-writer lock of the GNU C library.
pub(super) struct Rwlock(UnsafeCell<libc::pthread_rwlock_t>);

// SAFETY: sharing it between threads is what it is for.
unsafe impl Sync for Rwlock {}
// SAFETY: it is only moved before its first use.
unsafe impl Send for Rwlock {}

impl Rwlock {
    pub(super) fn unlocked() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER))
    }

    #[inline(never)]
    pub(super) fn lock_for_reading(&self) {
        // SAFETY: the lock is initialised and stays where it is, inside its Arc.
        unsafe { libc::pthread_rwlock_rdlock(self.0.get()) };
    }

    #[inline(never)]
    pub(super) fn lock_for_writing(&self) {
        // SAFETY: as above.
        unsafe { libc::pthread_rwlock_wrlock(self.0.get()) };
    }

    pub(super) fn unlock(&self) {
        // SAFETY: as above; only a thread that locked it unlocks it.
        unsafe { libc::pthread_rwlock_unlock(self.0.get()) };
    }
}

fn hold_rwlock(stage: &Stage, [holder, beside]: [&'static str; 2]) -> Result<()> {
    let lock = Arc::new(Rwlock::unlocked());
    let (holder, beside) = (stage.role(holder)?, stage.role(beside)?);
    let (reader, writer) = (stage.role("reader")?, stage.role("writer")?);
    let (held, stopped) = (stage.word()?, stage.stopped());
    {
        let lock = Arc::clone(&lock);
        stage.thread(move || {
            lock.lock_for_writing();
            claim_held(holder, held);
            sleeps_with_the_lock(stopped);
            lock.unlock();
        })?;
    }
    start_bystander(stage, beside)?;
    let wants: [fn(&Rwlock); 2] = [Rwlock::lock_for_reading, Rwlock::lock_for_writing];
    for ((role, comm), wants) in
        [(reader, "ow-reader"), (writer, "ow-writer")].into_iter().zip(wants)
    {
        let lock = Arc::clone(&lock);
        stage.thread(move || {
            wait_until_held(held);
            role.claim(comm);
            role.waits(|| wants(&lock));
            lock.unlock();
        })?;
    }
    stage.play(|| ())
}

/// `waiter` waits at a condition variable for a signal that never comes, `left` and `right` sleep.
pub(super) fn condition_never_signalled(stage: &Stage) -> Result<()> {
    let queue = super::condvar::Queue::empty();
    for role in ["left", "right"] {
        start_bystander(stage, stage.role(role)?)?;
    }
    let waiter = stage.role("waiter")?;
    {
        let queue = Arc::clone(&queue);
        stage.thread(move || {
            waiter.claim("ow-waiter");
            waiter.waits(|| queue.drain());
        })?;
    }
    stage.play(|| queue.put())
}

/// A process whose main thread waits at a condition variable that nobody signals. The other one could, once
/// it has slept.
pub(super) fn condition_of_main_never_signalled(stage: &Stage) -> Result<()> {
    let queue = super::condvar::Queue::empty();
    let waiter = stage.role("waiter")?;
    stage.process(|| {
        super::asleep::end_upon_alarm();
        let sleeper = std::thread::spawn(|| raw::nanosleep(Duration::from_secs(3600)));
        waiter.claim("ow-waiter");
        waiter.waits(|| queue.drain());
        drop(sleeper);
    })?;
    stage.play(|| super::asleep::alarm(waiter))
}

/// Plays the role of whoever has the lock.
fn claim_held(holder: &Role, held: &AtomicU32) {
    holder.claim("ow-holder");
    held.store(1, SeqCst);
    raw::futex_wake(held, i32::MAX.unsigned_abs());
}

fn wait_until_held(held: &AtomicU32) {
    while held.load(SeqCst) == 0 {
        raw::futex_wait(held, 0);
    }
}

#[inline(never)]
fn sleeps_with_the_lock(stopped: &AtomicU32) {
    while stopped.load(SeqCst) == 0 {
        raw::nanosleep(NAP);
    }
}

/// Somebody who sleeps like the holder, and has nothing.
fn start_bystander(stage: &Stage, role: &'static Role) -> Result<()> {
    let stopped = stage.stopped();
    stage.thread(move || {
        role.claim("ow-bystander");
        sleeps_beside_it(stopped);
    })
}

#[inline(never)]
fn sleeps_beside_it(stopped: &AtomicU32) {
    while stopped.load(SeqCst) == 0 {
        raw::nanosleep(NAP);
    }
}
