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

    /// Reserves bytes until the result is dropped. None if there are not so many.
    pub(crate) fn reserve(&'static self, bytes: usize) -> Option<HeldBytes> {
        let reserved = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|used| *used <= self.limit)
        });
        reserved.is_ok().then(|| HeldBytes { account: self, bytes })
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
    fn what_is_dropped_can_be_reserved_again_and_no_more_is_reserved_than_there_is() {
        static ACCOUNT: ByteAccount = ByteAccount::new(100);
        let first = ACCOUNT.reserve(60).unwrap();
        assert!(ACCOUNT.reserve(41).is_none() && ACCOUNT.reserve(usize::MAX).is_none());
        let second = ACCOUNT.reserve(40).unwrap();
        assert!(ACCOUNT.reserve(1).is_none());
        drop(first);
        drop((ACCOUNT.reserve(60).unwrap(), second));
        assert!(ACCOUNT.reserve(100).is_some());
    }
}
