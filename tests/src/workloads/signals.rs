//! Waiting for a signal that another thread sends, and waits that a signal of a thread's own timer
//! cuts short.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use super::{
    raw,
    stage::{Role, Stage},
};
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

/// A signal that brings a number along, and of which several can be pending.
pub(super) fn queued() -> libc::c_int {
    libc::SIGRTMIN()
}

/// Blocks a signal in the calling thread and all that it starts.
pub(super) fn block(signal: libc::c_int) {
    let set = set_of(signal);
    // SAFETY: the set is valid.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
}

/// Sends a signal with a number to a process.
pub(super) fn queue(process: u32, signal: libc::c_int, number: usize) {
    let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(number) };
    // SAFETY: takes plain values; the number is no pointer to anybody.
    unsafe { libc::sigqueue(process.cast_signed(), signal, value) };
}

/// Waits for a signal, and returns its number.
#[inline(never)]
pub(super) fn wait_for_number(signal: libc::c_int) -> usize {
    let set = set_of(signal);
    // SAFETY: all bytes zero are a value.
    let mut told: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is valid, and `told` a place to write to.
    unsafe { libc::sigwaitinfo(&raw const set, &raw mut told) };
    // SAFETY: the signal was queued with a value.
    unsafe { told.si_value() }.sival_ptr.addr()
}

/// A signalfd for a signal that is blocked.
pub(super) fn signalfd(signal: libc::c_int) -> Result<OwnedFd> {
    let set = set_of(signal);
    // SAFETY: the set is valid.
    super::polls::descriptor(unsafe { libc::signalfd(-1, &raw const set, 0) }, "make a signalfd")
}

/// Reads the number of the next signal from a signalfd.
#[inline(never)]
pub(super) fn read_number(signals: RawFd) -> usize {
    // SAFETY: all bytes zero are a value.
    let mut told: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    // SAFETY: the place is as long as it says.
    unsafe { libc::read(signals, (&raw mut told).cast(), size_of_val(&told)) };
    usize::try_from(told.ssi_ptr).unwrap_or(0)
}

fn signals() -> libc::sigset_t {
    set_of(SIGNAL)
}

fn set_of(signal: libc::c_int) -> libc::sigset_t {
    // SAFETY: a set of zeroes is a place to make an empty one in.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        set
    }
}

/// How often the timer of a process sends its signal.
const EVERY: Duration = Duration::from_millis(7);

/// How a process has signals sent to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnTimer {
    /// `setitimer`, which `alarm` is made of.
    Interval,
    /// `timer_create`.
    Posix,
}

/// A read that nobody answers, cut short by `setitimer`'s signal each time.
pub(super) fn read_cut_short_by_itimer(stage: &Stage) -> Result<()> {
    read_cut_short(stage, OwnTimer::Interval)
}

/// The same by `timer_create`'s.
pub(super) fn read_cut_short_by_posix_timer(stage: &Stage) -> Result<()> {
    read_cut_short(stage, OwnTimer::Posix)
}

/// A loop that nobody asks for anything, cut short by `setitimer`'s signal. It also has a signalfd, for
/// another signal.
pub(super) fn epoll_cut_short_by_itimer(stage: &Stage) -> Result<()> {
    let looping = stage.role("loop")?;
    let stopped = stage.stopped();
    let (reads, _writes) = std::io::pipe().context("cannot make a pipe")?;
    stage.process(|| {
        block(libc::SIGURG);
        let Ok(signals) = signalfd(libc::SIGURG) else { return };
        let both = [reads.as_raw_fd(), signals.as_raw_fd()];
        let Ok(epoll) = super::polls::epoll_on_all(&both) else { return };
        handle_without_restart(libc::SIGALRM);
        start_timer(OwnTimer::Interval);
        looping.claim("ow-loop");
        while stopped.load(SeqCst) == 0 {
            looping.waits(|| super::polls::waits_in_epoll(epoll.as_raw_fd()));
            looping.works(Duration::from_millis(1));
        }
    })?;
    stage.play(|| ())
}

/// A loop that gets the same signal through its signalfd: a timer of its own.
pub(super) fn epoll_of_an_alarm(stage: &Stage) -> Result<()> {
    let looping = stage.role("loop")?;
    let stopped = stage.stopped();
    stage.process(|| {
        block(libc::SIGALRM);
        let Ok(alarms) = signalfd(libc::SIGALRM) else { return };
        let Ok(epoll) = super::polls::epoll_on(&alarms) else { return };
        start_timer(OwnTimer::Interval);
        looping.claim("ow-loop");
        while stopped.load(SeqCst) == 0 {
            looping.waits(|| super::polls::waits_in_epoll(epoll.as_raw_fd()));
            read_number(alarms.as_raw_fd());
            looping.works(Duration::from_millis(1));
        }
    })?;
    stage.play(|| ())
}

fn read_cut_short(stage: &Stage, timer: OwnTimer) -> Result<()> {
    let reader = stage.role("reader")?;
    let stopped = stage.stopped();
    let (reads, _writes) = std::io::pipe().context("cannot make a pipe")?;
    // A process of its own: the kernel gives such signals to a process's first thread.
    stage.process(|| {
        handle_without_restart(libc::SIGALRM);
        start_timer(timer);
        reader.claim("ow-reader");
        while stopped.load(SeqCst) == 0 {
            let read = reader.waits(|| raw::read(reads.as_raw_fd(), &mut [0; 8]));
            assert!(read == -(libc::EINTR as isize), "the read returned {read}");
            // What it does about it. Less would be no more than to look again.
            reader.works(Duration::from_millis(1));
        }
    })?;
    stage.play(|| ())
}

/// Sleeps that end in time, while a signal is pending that the sleeper blocks.
pub(super) fn sleeps_beside_a_blocked_alarm(stage: &Stage) -> Result<()> {
    let sleeper = stage.role("sleeper")?;
    let stopped = stage.stopped();
    stage.process(|| {
        block(libc::SIGALRM);
        start_timer(OwnTimer::Interval);
        sleeper.claim("ow-sleeper");
        while stopped.load(SeqCst) == 0 {
            let slept = sleeper.waits(|| raw::nanosleep(Duration::from_millis(10)));
            assert!(slept == 0, "the sleep returned {slept}");
        }
    })?;
    stage.play(|| ())
}

/// Has a signal handled by doing nothing, and calls that it interrupts return `EINTR`.
fn handle_without_restart(signal: libc::c_int) {
    extern "C" fn nothing(_: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = nothing;
    // SAFETY: all bytes zero are a value: no flags, no signals blocked meanwhile.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: the handler does nothing, so it may run at any place.
    let set = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    assert!(set == 0, "cannot set a handler: {}", io::Error::last_os_error());
}

/// Has `SIGALRM` sent to the calling process now and then, as long as it lives.
fn start_timer(timer: OwnTimer) {
    let ns = libc::c_long::from(EVERY.subsec_nanos().cast_signed());
    let started = match timer {
        OwnTimer::Interval => {
            let every = libc::timeval { tv_sec: 0, tv_usec: (ns / 1_000) as libc::suseconds_t };
            let times = libc::itimerval { it_interval: every, it_value: every };
            let real = libc::ITIMER_REAL as usize;
            raw::syscall(libc::SYS_setitimer, [real, &raw const times as usize, 0, 0])
        }
        OwnTimer::Posix => {
            // SAFETY: all bytes zero are a value.
            let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
            event.sigev_notify = libc::SIGEV_SIGNAL;
            event.sigev_signo = libc::SIGALRM;
            let mut id: libc::c_int = 0;
            let clock = libc::CLOCK_MONOTONIC as usize;
            let (event, place) = (&raw const event as usize, &raw mut id as usize);
            let made = raw::syscall(libc::SYS_timer_create, [clock, event, place, 0]);
            assert!(made == 0, "cannot make a timer: {made}");
            let every = libc::timespec { tv_sec: 0, tv_nsec: ns };
            let times = libc::itimerspec { it_interval: every, it_value: every };
            raw::syscall(libc::SYS_timer_settime, [id as usize, 0, &raw const times as usize, 0])
        }
    };
    assert!(started == 0, "cannot start a timer: {started}");
}
