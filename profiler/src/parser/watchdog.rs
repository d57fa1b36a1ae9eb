//! Checks whether a process that is waited for still does something.

use std::time::{Duration, Instant};

use super::{cpu_time::CpuAccount, error::ChannelError};

/// How often the process is checked.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How long the process may use no CPU at all: it is stopped then, or waits for a file that never
/// comes.
const MAX_IDLE: Duration = Duration::from_secs(10);
/// How long the process may work on one question, however many messages its answer has. A GiB of
/// debug information takes some 10 s.
const MAX_BUSY: Duration = Duration::from_secs(300);

/// Tells when a process or thread has taken too long to answer.
pub(super) struct Watchdog {
    /// None if it is a thread of this process.
    account: Option<CpuAccount>,
    used: Duration,
    idle_since: Instant,
    deadline: Instant,
}

impl Watchdog {
    /// Watches a child process.
    pub(super) fn for_child(account: CpuAccount) -> Self {
        Self { account: Some(account), ..Self::for_thread() }
    }

    /// Watches a thread of this process, which may do nothing for as long as it may work.
    pub(super) fn for_thread() -> Self {
        let now = Instant::now();
        Self { account: None, used: Duration::ZERO, idle_since: now, deadline: now + MAX_BUSY }
    }

    /// Starts the time that the answer to a question may take.
    pub(super) fn begin_question(&mut self) {
        self.deadline = Instant::now() + MAX_BUSY;
    }

    /// Moves the end of that time by what was not the process's doing.
    pub(super) fn extend_deadline(&mut self, by: Duration) {
        self.deadline += by;
    }

    /// Starts the time for which the process may do nothing before it sends or takes a message.
    pub(super) fn begin_message(&mut self) {
        self.idle_since = Instant::now();
    }

    /// Checks whether a process that sends one message after the other will ever be done.
    pub(super) fn check_deadline(&self) -> Result<(), ChannelError> {
        match Instant::now() < self.deadline {
            true => Ok(()),
            false => Err(ChannelError::TimedOut),
        }
    }

    /// Checks on a process that has sent nothing yet: an error if it has taken too long.
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
        self.check_deadline()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_has_one_deadline_whatever_comes_meanwhile() {
        let mut watchdog = Watchdog::for_thread();
        assert_eq!(watchdog.check_deadline(), Ok(()));
        watchdog.deadline = Instant::now();
        watchdog.begin_message();
        assert_eq!(watchdog.check_deadline(), Err(ChannelError::TimedOut));
        assert_eq!(watchdog.check(), Err(ChannelError::TimedOut));
        watchdog.extend_deadline(MAX_BUSY);
        assert_eq!(watchdog.check(), Ok(()));
        watchdog.deadline = Instant::now();
        watchdog.begin_question();
        assert_eq!(watchdog.check_deadline(), Ok(()));
    }
}
