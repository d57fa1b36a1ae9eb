//! Memory that what other processes have mapped may take, in bytes: they choose how much that is.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that are in use, and how many may be.
#[derive(Debug)]
pub(crate) struct ByteAccount {
    used: AtomicUsize,
    limit: usize,
}

impl ByteAccount {
    pub(crate) const fn new(limit: usize) -> Self {
        Self { used: AtomicUsize::new(0), limit }
    }

    /// Takes bytes until the result is dropped. None if there are not so many.
    pub(crate) fn take(&'static self, bytes: usize) -> Option<HeldBytes> {
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|used| *used <= self.limit)
        });
        taken.is_ok().then(|| HeldBytes { account: self, bytes })
    }
}

/// Bytes of an account that are in use.
#[derive(Debug)]
pub(crate) struct HeldBytes {
    account: &'static ByteAccount,
    bytes: usize,
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.account.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_can_be_taken_again_and_no_more_is_taken_than_there_is() {
        static ACCOUNT: ByteAccount = ByteAccount::new(100);
        let first = ACCOUNT.take(60).unwrap();
        assert!(ACCOUNT.take(41).is_none() && ACCOUNT.take(usize::MAX).is_none());
        let second = ACCOUNT.take(40).unwrap();
        assert!(ACCOUNT.take(1).is_none());
        drop(first);
        drop((ACCOUNT.take(60).unwrap(), second));
        assert!(ACCOUNT.take(100).is_some());
    }
}
