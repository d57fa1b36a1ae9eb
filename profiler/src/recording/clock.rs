//! The three clocks.

use crate::units::Timestamp;

/// One reading of three clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// `CLOCK_MONOTONIC`, the clock of every record.
    pub monotonic: Timestamp,
    /// Unix time in ns.
    pub realtime_ns: i64,
    /// `CLOCK_BOOTTIME`: it goes on while the machine is suspended.
    pub boottime_ns: u64,
}
