//! The clock of every record.

use offwake_recording::units::Timestamp;

/// `CLOCK_MONOTONIC` now.
pub(crate) fn monotonic_now() -> Timestamp {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Timestamp(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}
