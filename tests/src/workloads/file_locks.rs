//! Locks on a file, which three processes want all the time.

use std::{
    fs::{File, OpenOptions},
    io,
    os::fd::AsRawFd,
    path::Path,
    sync::atomic::Ordering::SeqCst,
    thread,
    time::Duration,
};

use anyhow::{Context, Result};

use super::{asleep, owned_locks, raw, stage::Stage};
use crate::{clock::compute, ground_truth::Activity};

/// What a holder then does without the lock, so that another one gets it.
const AWAY: Duration = Duration::from_millis(1);

/// How a file is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileLock {
    /// `flock`: the lock belongs to the open file.
    Whole,
    /// `fcntl` with `F_SETLKW`, which `lockf` uses: the lock belongs to the process.
    OfProcess,
    /// `fcntl` with `F_OFD_SETLKW`: the lock belongs to the open file.
    OfOpenFile,
}

/// By `flock`.
pub(super) fn by_flock(stage: &Stage) -> Result<()> {
    hand_over(stage, FileLock::Whole)
}

/// By POSIX's locks.
pub(super) fn by_fcntl(stage: &Stage) -> Result<()> {
    hand_over(stage, FileLock::OfProcess)
}

/// By locks of open file descriptions.
pub(super) fn by_ofd(stage: &Stage) -> Result<()> {
    hand_over(stage, FileLock::OfOpenFile)
}

/// Three processes that want the lock all the time, and hold it for times of their own. Each logs
/// when it held the lock as work, and when it wanted it as a wait. The argument names the directory
/// of the file.
fn hand_over(stage: &Stage, kind: FileLock) -> Result<()> {
    let stopped = stage.stopped();
    let path = Path::new(stage.argument()?).join("lock");
    File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    let contenders = [("x", "ow-x", 2), ("y", "ow-y", 4), ("z", "ow-z", 6)];
    let cast: Vec<_> = contenders
        .into_iter()
        .map(|(name, comm, held_ms)| Ok((stage.role(name)?, comm, Duration::from_millis(held_ms))))
        .collect::<Result<_>>()?;
    for (role, comm, held) in cast {
        stage.process(|| {
            let file = OpenOptions::new().read(true).write(true).open(&path);
            let Ok(file) = file else { panic!("cannot open the file: {file:?}") };
            role.claim(comm);
            while stopped.load(SeqCst) == 0 {
                role.waits(|| waits_for_lock(&file, kind));
                let holds = role.begin(Activity::Work, 0);
                compute(held);
                role.end(holds);
                unlock(&file, kind);
                compute(AWAY);
            }
        })?;
    }
    stage.play(|| ())
}

/// One of two processes has the lock for good, and the other wants it.
pub(super) fn held_by_left(stage: &Stage) -> Result<()> {
    hold(stage, ["left", "right"])
}

/// The other way round.
pub(super) fn held_by_right(stage: &Stage) -> Result<()> {
    hold(stage, ["right", "left"])
}

/// The holder lets go of the lock at the end alone. The argument names the directory of the file.
fn hold(stage: &Stage, [holder, waiter]: [&'static str; 2]) -> Result<()> {
    let path = Path::new(stage.argument()?).join("lock");
    File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    let open = || {
        let file = File::open(&path);
        let Ok(file) = file else { panic!("cannot open the file: {file:?}") };
        file
    };
    let (holder, waiter) = (stage.role(holder)?, stage.role(waiter)?);
    let (held, released) = (stage.word()?, stage.word()?);
    stage.process(|| {
        let file = open();
        waits_for_lock(&file, FileLock::Whole);
        holder.claim("ow-holder");
        held.store(1, SeqCst);
        raw::futex_wake(held, 1);
        while released.load(SeqCst) == 0 {
            raw::futex_wait(released, 0);
        }
    })?;
    stage.process(|| {
        let file = open();
        while held.load(SeqCst) == 0 {
            raw::futex_wait(held, 0);
        }
        waiter.claim("ow-waiter");
        waiter.waits(|| waits_for_lock(&file, FileLock::Whole));
    })?;
    stage.play(|| {
        released.store(1, SeqCst);
        raw::futex_wake(released, 1);
    })
}

/// Two processes have the lock by turns, asleep, and log when as work; a third one asks for it every
/// millisecond, without waiting for it. The argument names the directory of the file.
pub(super) fn polled(stage: &Stage) -> Result<()> {
    let stopped = stage.stopped();
    let path = Path::new(stage.argument()?).join("lock");
    File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    let open = || {
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let Ok(file) = file else { panic!("cannot open the file: {file:?}") };
        file
    };
    let holders = [("one", "ow-one", 20), ("other", "ow-other", 8)];
    for (name, comm, held_ms) in holders {
        let role = stage.role(name)?;
        stage.process(|| {
            let file = open();
            role.claim(comm);
            while stopped.load(SeqCst) == 0 {
                waits_for_lock(&file, FileLock::OfProcess);
                let holds = role.begin(Activity::Work, 0);
                thread::sleep(Duration::from_millis(held_ms));
                role.end(holds);
                unlock(&file, FileLock::OfProcess);
                thread::sleep(AWAY);
            }
        })?;
    }
    let asks = stage.role("asks")?;
    stage.process(|| {
        let file = open();
        asks.claim("ow-asks");
        while stopped.load(SeqCst) == 0 {
            if set_lock(&file, libc::F_SETLK, libc::F_WRLCK) == 0 {
                unlock(&file, FileLock::OfProcess);
            }
            thread::sleep(AWAY);
        }
    })?;
    stage.play(|| ())
}

/// Two processes have a file locked each, and want that of the other: `flock` does not mind.
pub(super) fn flock_deadlock(stage: &Stage) -> Result<()> {
    lock_crosswise(stage, FileLock::Whole)
}

/// The same with locks of open file descriptions, of which the kernel finds no deadlocks either.
pub(super) fn ofd_deadlock(stage: &Stage) -> Result<()> {
    lock_crosswise(stage, FileLock::OfOpenFile)
}

/// The argument names the directory of the files.
fn lock_crosswise(stage: &Stage, kind: FileLock) -> Result<()> {
    let directory = Path::new(stage.argument()?);
    let paths = ["ledger", "vault"].map(|name| directory.join(name));
    for path in &paths {
        File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
    }
    let roles = [(stage.role("left")?, "ow-left"), (stage.role("right")?, "ow-right")];
    let locked = stage.word()?;
    for (n, (role, comm)) in roles.into_iter().enumerate() {
        let (own, others) = (&paths[n], &paths[1 - n]);
        stage.process(|| {
            asleep::end_upon_alarm();
            let open = |path| {
                let file = OpenOptions::new().read(true).write(true).open(path);
                let Ok(file) = file else { panic!("cannot open the file: {file:?}") };
                file
            };
            let (own, others) = (open(own), open(others));
            role.claim(comm);
            waits_for_lock(&own, kind);
            owned_locks::wait_for_all(locked, 2);
            role.waits(|| wants_the_others_file(&others, kind));
        })?;
    }
    stage.play(|| roles.iter().for_each(|(role, _)| asleep::alarm(role)))
}

#[inline(never)]
fn wants_the_others_file(file: &File, kind: FileLock) {
    waits_for_lock(file, kind);
}

#[inline(never)]
fn waits_for_lock(file: &File, kind: FileLock) {
    let done = match kind {
        // SAFETY: the descriptor is open.
        FileLock::Whole => unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) },
        FileLock::OfProcess => set_lock(file, libc::F_SETLKW, libc::F_WRLCK),
        FileLock::OfOpenFile => set_lock(file, libc::F_OFD_SETLKW, libc::F_WRLCK),
    };
    assert!(done == 0, "cannot lock: {}", io::Error::last_os_error());
}

fn unlock(file: &File, kind: FileLock) {
    let done = match kind {
        // SAFETY: the descriptor is open.
        FileLock::Whole => unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) },
        FileLock::OfProcess => set_lock(file, libc::F_SETLK, libc::F_UNLCK),
        FileLock::OfOpenFile => set_lock(file, libc::F_OFD_SETLK, libc::F_UNLCK),
    };
    assert!(done == 0, "cannot unlock: {}", io::Error::last_os_error());
}

/// Locks or unlocks all of the file.
fn set_lock(file: &File, command: libc::c_int, kind: libc::c_int) -> libc::c_int {
    // SAFETY: all bytes zero are a value: from the file's beginning to its end.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    // SAFETY: the descriptor is open, the lock is a valid place.
    unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) }
}
