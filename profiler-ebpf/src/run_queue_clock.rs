//! How far the records' clock is ahead of that of a CPU's run queue.
//!
//! The run queue's clock is read by the scheduler and stands still until it reads it again, so that
//! it never is ahead of the truth, and the offset that one comparison finds is never too small:
//!
//! ```text
//! run queue's clock   --+-- read ----+-------------------> the least that was found is nearest
//!                       | the CPU is taken away, or
//!                       | an interrupt comes
//! records' clock      --+------------+-- now ------------>
//!                       |<- too much>|
//! ```

/// How much the offset may grow between two ticks of the sampling clock, some 10 ms: NTP corrects a
/// clock by at most 500 ppm
/// ([`MAX_TICKADJ`](https://github.com/torvalds/linux/blob/v6.12/kernel/time/ntp.c#L147)).
pub const MAX_DRIFT_NS: u64 = 5_000;

/// From here on an offset that grew is no late reading: a clock was set.
pub const JUMP_NS: u64 = 10_000_000;

/// How far after the present a time may seem to be that is past for certain: a CPU of a virtual
/// machine can be taken away for as long between the scheduler's reading and ours.
pub const MAX_AHEAD_NS: u64 = 1_000_000;

/// How fresh a run queue's clock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunQueueClock {
    /// The scheduler has just read it, as it does before each switch.
    Fresh,
    /// It was read some time ago, at a tick at the latest.
    Stale,
}

/// Returns the offset that counts from now on, of the one that is known (0 if none is) and the one
/// that was just found.
#[must_use]
#[inline(always)]
pub fn update_offset(known: u64, found: u64, clock: RunQueueClock) -> u64 {
    let grown = found.wrapping_sub(known).cast_signed();
    let is_jump = clock == RunQueueClock::Fresh && grown > JUMP_NS.cast_signed();
    if known == 0 || grown < MAX_DRIFT_NS.cast_signed() || is_jump {
        found
    } else {
        known.wrapping_add(MAX_DRIFT_NS)
    }
}

/// Returns when a thread came to its CPU that left one at `left` and is on one `now`. `arrival` is the
/// scheduler's account, by the records' clock; none if it contradicts that.
#[must_use]
#[inline(always)]
pub fn place_arrival(arrival: u64, left: u64, now: u64) -> Option<u64> {
    if arrival <= left || arrival > now.saturating_add(MAX_AHEAD_NS) {
        return None;
    }
    Some(if arrival > now { now } else { arrival })
}
