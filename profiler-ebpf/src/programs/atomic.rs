//! Counters that all CPUs change at once.

use core::arch::asm;

/// Adds to a counter that is in a map.
///
/// # Safety
///
/// The counter is aligned and lives as long as this call, and every CPU changes it by this
/// function.
#[inline(always)]
pub unsafe fn add(counter: *mut u64, change: i64) {
    // The compiler offers no atomic operations for this machine, which has them.
    // SAFETY: by this function's own contract.
    unsafe {
        asm!("lock *(u64 *)({counter} + 0) += {change}", counter = in(reg) counter, change = in(reg) change);
    }
}
