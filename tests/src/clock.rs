//! The clock that offwake and the workloads share.

use std::time::Duration;

/// `CLOCK_MONOTONIC` now, in ns: the clock of offwake's timestamps (`bpf_ktime_get_ns`).
#[must_use]
pub fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// The CPU time that the calling thread has had so far, in ns.
#[must_use]
pub fn cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place to write to; both clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    // Neither is negative: the clocks start at 0 when the machine boots or the thread does.
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// A duration in ns.
#[must_use]
pub fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Keeps the CPU busy for `length` of wall-clock time, and no syscall in it (the vDSO serves the
/// clock), so that the caller is never blocked meanwhile.
#[inline(never)]
pub fn spin(length: Duration) {
    let end = now_ns() + ns(length);
    while now_ns() < end {
        std::hint::spin_loop();
    }
}

/// Keeps the CPU busy until the calling thread has had `length` of CPU time, however long that
/// takes; returns how much it had, in ns. The clock is a syscall, but none that blocks.
#[inline(never)]
pub fn compute(length: Duration) -> u64 {
    let begin = cpu_ns();
    loop {
        let had = cpu_ns() - begin;
        if had >= ns(length) {
            return had;
        }
    }
}
