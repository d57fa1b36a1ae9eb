//! The right to load the machine.

use std::{
    cell::RefCell,
    fs::File,
    os::fd::AsRawFd,
    rc::{Rc, Weak},
};

use anyhow::{Context, Result, ensure};

use crate::paths;

thread_local! {
    static HELD: RefCell<Weak<File>> = const { RefCell::new(Weak::new()) };
}

/// The right to run workloads and profilers. The machine may have two CPUs only: two tests at once
/// would disturb each other's times. It is held by a thread, which is to say by a test, and by
/// everything that the test starts: who takes it again in the same thread shares it.
pub struct MachineLock(
    // The lock is the open file's, and ends with it.
    #[expect(dead_code, reason = "held, not read")] Rc<File>,
);

impl MachineLock {
    /// Waits for the right, if this thread does not have it already.
    ///
    /// # Errors
    ///
    /// When the lock's file can't be made.
    pub fn acquire() -> Result<Self> {
        Self::acquire_as(libc::LOCK_EX)
    }

    /// Waits for a part of the right, which others may have at the same time: for a test that mostly waits until
    /// time is up, and judges no times of its own.
    ///
    /// # Errors
    ///
    /// As those of [`Self::acquire`].
    pub fn acquire_shared() -> Result<Self> {
        Self::acquire_as(libc::LOCK_SH)
    }

    fn acquire_as(operation: libc::c_int) -> Result<Self> {
        if let Some(held) = HELD.with_borrow(Weak::upgrade) {
            return Ok(Self(held));
        }
        let path = paths::target_directory().join("offwake-tests.lock");
        let file =
            File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        // SAFETY: takes plain integers.
        let locked = unsafe { libc::flock(file.as_raw_fd(), operation) };
        ensure!(locked == 0, "cannot lock {}", path.display());
        let held = Rc::new(file);
        HELD.set(Rc::downgrade(&held));
        Ok(Self(held))
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use super::*;

    #[test]
    fn several_threads_have_parts_of_it_at_once() -> Result<()> {
        let part = MachineLock::acquire_shared()?;
        let other = thread::spawn(|| MachineLock::acquire_shared().is_ok());
        assert!(other.join().is_ok_and(|is_acquired| is_acquired));
        drop(part);
        Ok(())
    }

    #[test]
    fn one_thread_shares_the_lock_and_others_wait() -> Result<()> {
        let lock = MachineLock::acquire()?;
        let again = MachineLock::acquire()?;
        let (sender, receiver) = mpsc::channel();
        let other = thread::spawn(move || {
            let lock = MachineLock::acquire();
            let _ = sender.send(lock.is_ok());
        });
        drop(lock);
        // Half of it is held still. A lock acquired wrongly would come well within this time.
        assert!(receiver.recv_timeout(Duration::from_millis(100)).is_err());
        drop(again);
        assert!(receiver.recv()?);
        assert!(other.join().is_ok());
        Ok(())
    }
}
