//! What one thread hands to the next: the one that has it runs.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::workloads::raw::{futex_wait, futex_wake};

/// Given and not yet taken, or not.
#[derive(Default)]
pub(super) struct Baton(AtomicU32);

impl Baton {
    /// Waits for it and takes it. Inlined, as the caller's frame has to be the one that waits.
    #[inline(always)]
    pub(super) fn take(&self) {
        while self.0.swap(0, SeqCst) == 0 {
            futex_wait(&self.0, 0);
        }
    }

    /// Gives it to whoever waits.
    #[inline(always)]
    pub(super) fn give(&self) {
        self.0.store(1, SeqCst);
        futex_wake(&self.0, 1);
    }
}
