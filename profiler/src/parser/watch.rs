//! Whether a process that is waited for still does something.

use std::time::{Duration, Instant};

use super::{Broken, cpu::Account};

/// How often it is looked at.
pub(super) const PACE: Duration = Duration::from_millis(100);
/// How long a process may use no CPU at all: it is stopped, or waits for a file that never comes.
const STILL: Duration = Duration::from_secs(10);
/// How long it may work on one answer. A GiB of debug information takes some 10 s.
const BUSY: Duration = Duration::from_secs(300);

/// A look at it now and then.
pub(super) struct Watch {
    /// None if it is no process of its own.
    account: Option<Account>,
    used: Duration,
    still_since: Instant,
    asked_at: Instant,
}

impl Watch {
    /// At a child.
    pub(super) fn of_child(account: Account) -> Self {
        Self { account: Some(account), ..Self::of_thread() }
    }

    /// At a thread of this process: it may do nothing for as long as it may work.
    pub(super) fn of_thread() -> Self {
        let now = Instant::now();
        Self { account: None, used: Duration::ZERO, still_since: now, asked_at: now }
    }

    /// It is asked for something.
    pub(super) fn begin(&mut self) {
        let now = Instant::now();
        (self.still_since, self.asked_at) = (now, now);
    }

    /// It has not answered yet.
    pub(super) fn look(&mut self) -> Result<(), Broken> {
        if let Some(used) = self.account.as_ref().and_then(Account::used) {
            if used != self.used {
                self.used = used;
                self.still_since = Instant::now();
            }
            if self.still_since.elapsed() >= STILL {
                return Err(Broken::Silent);
            }
        }
        match self.asked_at.elapsed() < BUSY {
            true => Ok(()),
            false => Err(Broken::Silent),
        }
    }
}
