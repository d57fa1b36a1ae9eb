//! What one thread hands to the next: the one that has it runs.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::workloads::raw::{futex_wait, futex_wake};

/// A baton, which is 1 while it has been handed over and not yet acquired.
#[derive(Default)]
pub(super) struct Baton(AtomicU32);

impl Baton {
    /// Waits for the baton and acquires it. Inlined, as the caller's frame has to be the one that
    /// waits.
    #[inline(always)]
    pub(super) fn acquire(&self) {
        while self.0.swap(0, SeqCst) == 0 {
            futex_wait(&self.0, 0);
        }
    }

    /// Hands the baton over to the thread that waits for it.
    #[inline(always)]
    pub(super) fn hand_over(&self) {
        self.0.store(1, SeqCst);
        futex_wake(&self.0, 1);
    }
}
