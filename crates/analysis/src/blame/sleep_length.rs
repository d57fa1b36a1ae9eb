//! Whether a thread slept for as long as it had asked to.
//!
//! A kernel may hide the wake that ended a sleep, as some do with whatever an interrupt does while a
//! certain process runs. Only a signal ends a sleep before its time; so one that lasted was ended by
//! its timer, whether that was seen or not.

use offwake_recording::{
    Wait,
    units::{Nanos, Timestamp},
};

use super::cause::syscalls;

/// `TIMER_ABSTIME` of `clock_nanosleep(2)`: the thread asked for a moment of a clock, not for a length.
const ABSOLUTE: u64 = 1;
/// `CLOCK_MONOTONIC`, the clock of recordings.
const MONOTONIC: u64 = 1;
/// How much later than its call a thread leaves its CPU, at most: a length counts from the call, and so
/// does a timeout.
pub(super) const CALL_TO_SWITCH: Nanos = Nanos(50_000);

/// Returns whether a wait was a sleep, and lasted until the moment that it had asked for.
pub(super) fn has_slept_its_time(wait: &Wait) -> bool {
    let (Some(syscall), Some(asked_for)) = (wait.syscall.as_ref(), wait.timeout) else {
        return false;
    };
    let [clock, flags, ..] = syscall.args;
    match syscalls::name(syscall) {
        Some("clock_nanosleep") if flags & ABSOLUTE != 0 => {
            clock == MONOTONIC && wait.on >= Timestamp(asked_for.0)
        }
        Some("nanosleep" | "clock_nanosleep") => {
            wait.on.since(wait.off) + CALL_TO_SWITCH >= asked_for
        }
        _ => false,
    }
}
