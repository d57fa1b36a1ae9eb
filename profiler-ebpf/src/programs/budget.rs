//! How much of a CPU's time may go into walking stacks.
//!
//! Each CPU saves up the share that it was given, a second's worth at most, and a walk takes what it
//! took. Threads that come up new, as all do at first, are paid from the savings.

use super::{
    maps::{STACK_COUNTS, WALKING_TIME},
    ring::now as clock,
    settings::{CONFIG, frozen},
    stack::Taken,
};

/// Nanoseconds of walking that one CPU can save up, and at first has: 30 ms, some 20,000 walks.
const SAVINGS: i64 = 30_000_000;

/// What a CPU may still spend.
#[repr(C)]
pub struct WalkingTime {
    left: i64,
    as_of: u64,
}

/// What a stack may cost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Price {
    /// What is left of the budget.
    WithinBudget,
    /// Any: it can't be done without.
    Any,
}

/// Walks a stack, if there is time for it; `now` is about now.
#[inline(always)]
pub fn walk(price: Price, now: u64, walk: impl Fn() -> Taken) -> Taken {
    if frozen(&CONFIG.walking_share) == 0 {
        return walk();
    }
    if price == Price::WithinBudget && !has_time(now) {
        if let Some(counters) = STACK_COUNTS.get_ptr_mut(0) {
            // SAFETY: this CPU's own entry.
            unsafe { (*counters).over_budget += 1 };
        }
        return Taken::FAILED;
    }
    let begin = clock();
    let taken = walk();
    if let Some(time) = WALKING_TIME.get_ptr_mut(0) {
        // SAFETY: this CPU's own entry.
        unsafe { (*time).left -= clock().wrapping_sub(begin) as i64 };
    }
    taken
}

/// Adds what was saved up since the last time.
#[inline(always)]
pub fn has_time(now: u64) -> bool {
    if frozen(&CONFIG.walking_share) == 0 {
        return true;
    }
    let Some(time) = WALKING_TIME.get_ptr_mut(0) else { return false };
    // SAFETY: this CPU's own entry.
    let time = unsafe { &mut *time };
    // A clock that was read before an interrupt's is none the worse; at first it is all of it.
    let passed = now.saturating_sub(time.as_of).min(1 << 30);
    // In units of 1,024 ns, so that a second of it times the share fits.
    let gained = ((passed >> 10) * u64::from(frozen(&CONFIG.walking_share))) >> 10;
    if gained > 0 {
        time.as_of = now;
        time.left = (time.left + gained as i64).min(SAVINGS);
    }
    time.left > 0
}
