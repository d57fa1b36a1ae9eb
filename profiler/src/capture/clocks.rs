//! Reading the clocks, and the CPU time that the profiler has used.

use std::time::Duration;

use offwake_recording::{
    Clocks,
    units::{Nanos, Timestamp},
};
use rustix::time::{ClockId, clock_gettime};

use crate::parser;

/// Readings that are taken; the one that took the least time is the best.
const TRIES: usize = 5;

/// Reads the three clocks as close to one moment as can be: far below a microsecond, unless the
/// thread is kept from the CPU each time.
#[must_use]
pub fn read() -> Clocks {
    let mut best = read_once();
    for _ in 1..TRIES {
        let next = read_once();
        if next.0 < best.0 {
            best = next;
        }
    }
    best.1
}

/// The clocks, and how long it took to read them.
fn read_once() -> (Nanos, Clocks) {
    let before = Timestamp(unsigned(ClockId::Monotonic));
    let realtime_ns = nanoseconds(ClockId::Realtime);
    let boottime_ns = unsigned(ClockId::Boottime);
    let took = Timestamp(unsigned(ClockId::Monotonic)).since(before);
    (took, Clocks { monotonic: before + Nanos(took.0 / 2), realtime_ns, boottime_ns })
}

/// Only the wall's clock can be negative: set to before 1970.
fn unsigned(clock: ClockId) -> u64 {
    u64::try_from(nanoseconds(clock)).unwrap_or(0)
}

/// Until the year 2262.
fn nanoseconds(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

/// CPU time that this process has used, user and system, and those that parse for it.
pub(super) fn own_cpu_time() -> Nanos {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call fills `usage`; it can't fail with these arguments, and zeroes are valid.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let duration = |time: libc::timeval| {
        Duration::new(
            u64::try_from(time.tv_sec).unwrap_or(0),
            u32::try_from(time.tv_usec).unwrap_or(0).saturating_mul(1000),
        )
    };
    let total = duration(usage.ru_utime) + duration(usage.ru_stime) + parser::cpu_used();
    Nanos(u64::try_from(total.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::read;
    use crate::kernel;
    use offwake_recording::units::Nanos;

    #[test]
    fn the_clocks_are_read_at_one_moment() {
        let wall = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
        let (from, wall_from) = (kernel::now(), wall());
        let one = read();
        let (until, wall_until) = (kernel::now(), wall());
        assert!(from <= one.monotonic && one.monotonic <= until, "{one:?}");
        let realtime = u128::try_from(one.realtime_ns).unwrap();
        assert!(wall_from <= realtime && realtime <= wall_until, "{one:?}");
        assert!(one.boottime_ns >= one.monotonic.0, "{one:?}");
        let other = read();
        assert_eq!((other.stepped_since(&one), other.suspended_since(&one)), (0, Nanos(0)));
    }
}
