//! Waiting for a signal that another thread sends.

use std::{
    io,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::Duration,
};

use anyhow::{Result, ensure};

use super::stage::{Role, Stage};
use crate::clock::{now_ns, ns};

/// What the sender computes before each signal.
const WORK: Duration = Duration::from_millis(5);

/// The signal; it is blocked in all threads, so that it only ever ends a wait for it.
const SIGNAL: libc::c_int = libc::SIGUSR1;

/// `sigwaitinfo`.
pub(super) fn sigwait(stage: &Stage) -> Result<()> {
    run(stage, || {
        let set = signals();
        // SAFETY: the set is valid, and nothing is to be told of the signal.
        unsafe { libc::sigwaitinfo(&raw const set, std::ptr::null_mut()) };
    })
}

/// `sigsuspend` with a handler that does nothing.
pub(super) fn sigsuspend(stage: &Stage) -> Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = nothing;
    // SAFETY: the handler does nothing, so it may run at any place.
    let before = unsafe { libc::signal(SIGNAL, handler as libc::sighandler_t) };
    ensure!(before != libc::SIG_ERR, "cannot set a handler: {}", io::Error::last_os_error());
    run(stage, || {
        // SAFETY: an empty set is valid once `sigemptyset` has made it.
        unsafe {
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigsuspend(&raw const none);
        }
    })
}

fn run(stage: &Stage, waits_for_signal: fn()) -> Result<()> {
    let (waiter, sender) = (stage.role("waiter")?, stage.role("sender")?);
    let stopped = stage.stopped();
    // How often the waiter has begun to wait: one signal for each time.
    let begun = stage.word()?;
    let set = signals();
    // SAFETY: the set is valid; threads started later inherit the mask.
    let masked =
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    ensure!(masked == 0, "cannot block a signal: {}", io::Error::from_raw_os_error(masked));
    stage.thread(move || {
        waiter.claim("ow-waiter");
        while stopped.load(SeqCst) == 0 {
            begun.fetch_add(1, SeqCst);
            waiter.waits(waits_for_signal);
        }
        begun.store(u32::MAX, SeqCst);
    })?;
    stage.thread(move || {
        sender.claim("ow-sender");
        while let Some(()) = next_wait(begun, sender) {
            sends(waiter.tid());
        }
    })?;
    stage.play(|| ())
}

/// Computes, then waits (busily, without a syscall) until the waiter waits again; none at the end.
fn next_wait(begun: &AtomicU32, sender: &Role) -> Option<()> {
    sender.works(WORK);
    // The waiter's next wait has begun long before the work is done, except when it was kept from
    // its CPU.
    static SENT: AtomicU32 = AtomicU32::new(0);
    let sent = SENT.load(SeqCst);
    let late = now_ns() + ns(crate::wait_until::deadline());
    loop {
        match begun.load(SeqCst) {
            u32::MAX => return None,
            times if times > sent => {
                SENT.store(times, SeqCst);
                return Some(());
            }
            _ => assert!(now_ns() < late, "the waiter never waits"),
        }
    }
}

#[inline(never)]
fn sends(tid: u32) {
    // SAFETY: takes plain integers; the signal is blocked or waited for.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, SIGNAL) };
}

fn signals() -> libc::sigset_t {
    // SAFETY: a set of zeroes is a place to make an empty one in.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, SIGNAL);
        set
    }
}
