//! The budget: how much of a CPU's time walking and copying stacks may take.
//!
//! Each CPU's balance grows by its share of the time that passes, up to a limit, and every walk is
//! charged with the time that it took. Threads that appear for the first time, as all do when the
//! window opens, are paid from what has been saved up.

use super::{
    config::{CONFIG, frozen},
    maps::{STACK_BUDGETS, STACK_COUNTS},
    ring::now as clock,
    stack::CapturedStack,
};

/// The balance that one CPU begins with, and the most that it can save up: 30 ms of walking, which
/// are some 20,000 walks.
const MAX_BALANCE_NS: i64 = 30_000_000;

/// What a CPU may still spend.
#[repr(C)]
pub struct StackBudget {
    balance_ns: i64,
    updated_ns: u64,
}

/// Whether a stack may be left out to save time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The stack is left out if the budget is used up.
    WithinBudget,
    /// The stack is needed whatever it costs.
    Always,
}

/// Calls `walk` if there is budget for it, and charges for the time that it takes; `now` need not
/// be exact.
#[inline(always)]
pub fn walk(need: Need, now: u64, walk: impl Fn() -> CapturedStack) -> CapturedStack {
    if frozen(&CONFIG.stack_budget) == 0 {
        return walk();
    }
    if need == Need::WithinBudget && !has_budget(now) {
        if let Some(counters) = STACK_COUNTS.get_ptr_mut(0) {
            // SAFETY: this CPU's own entry.
            unsafe { (*counters).over_budget += 1 };
        }
        return CapturedStack::FAILED;
    }
    let begin = clock();
    let stack = walk();
    if let Some(budget) = STACK_BUDGETS.get_ptr_mut(0) {
        // SAFETY: this CPU's own entry.
        unsafe { (*budget).balance_ns -= clock().wrapping_sub(begin) as i64 };
    }
    stack
}

/// Whether this CPU may spend any more, with what it has gained since the last call.
#[inline(always)]
pub fn has_budget(now: u64) -> bool {
    if frozen(&CONFIG.stack_budget) == 0 {
        return true;
    }
    let Some(budget) = STACK_BUDGETS.get_ptr_mut(0) else { return false };
    // SAFETY: this CPU's own entry.
    let budget = unsafe { &mut *budget };
    // A `now` from before an interrupt may be earlier than the last update, and gains nothing. The
    // first call gains what a second does, as no later one gains more.
    let passed = now.saturating_sub(budget.updated_ns).min(1 << 30);
    // In units of 1,024 ns, so that a second times the share fits.
    let gained = ((passed >> 10) * u64::from(frozen(&CONFIG.stack_budget))) >> 10;
    if gained > 0 {
        budget.updated_ns = now;
        budget.balance_ns = (budget.balance_ns + gained as i64).min(MAX_BALANCE_NS);
    }
    budget.balance_ns > 0
}
