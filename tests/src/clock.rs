//! The clock that offwake and the workloads share.

use std::time::Duration;

/// `CLOCK_MONOTONIC` now, in ns: the clock of offwake's timestamps (`bpf_ktime_get_ns`).
#[must_use]
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place to write to; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    // Neither is negative: the clock starts at 0 when the machine boots.
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
