//! Checks whether a process that is waited for still does something.

use std::time::{Duration, Instant};

use super::{cpu_time::CpuAccount, error::ChannelError};

/// How often the process is checked.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How long the process may use no CPU at all: it is stopped then, or waits for a file that never
/// comes.
const MAX_IDLE: Duration = Duration::from_secs(10);
/// How long the process may work on one answer. A GiB of debug information takes some 10 s.
const MAX_BUSY: Duration = Duration::from_secs(300);

/// Tells when a process or thread has taken too long to answer.
pub(super) struct Watchdog {
    /// None if it is a thread of this process.
    account: Option<CpuAccount>,
    used: Duration,
    idle_since: Instant,
    asked_at: Instant,
}

impl Watchdog {
    /// Watches a child process.
    pub(super) fn for_child(account: CpuAccount) -> Self {
        Self { account: Some(account), ..Self::for_thread() }
    }

    /// Watches a thread of this process, which may do nothing for as long as it may work.
    pub(super) fn for_thread() -> Self {
        let now = Instant::now();
        Self { account: None, used: Duration::ZERO, idle_since: now, asked_at: now }
    }

    /// Starts the time that an answer may take.
    pub(super) fn restart(&mut self) {
        let now = Instant::now();
        (self.idle_since, self.asked_at) = (now, now);
    }

    /// Checks on a process that has not answered yet: an error if it has taken too long.
    pub(super) fn check(&mut self) -> Result<(), ChannelError> {
        if let Some(used) = self.account.as_ref().and_then(CpuAccount::used) {
            if used != self.used {
                self.used = used;
                self.idle_since = Instant::now();
            }
            if self.idle_since.elapsed() >= MAX_IDLE {
                return Err(ChannelError::TimedOut);
            }
        }
        match self.asked_at.elapsed() < MAX_BUSY {
            true => Ok(()),
            false => Err(ChannelError::TimedOut),
        }
    }
}
