//! Checks whether a process that is waited for still does something.

use std::{
    fs,
    time::{Duration, Instant},
};

use super::{
    AtEnd, ParserRole, Patience, cpu_time::CpuAccount, end_deadline, error::ChannelError,
    time_budget::WaitMeter,
};

/// How often the process is checked.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Tells when a process or thread has taken too long to answer.
pub(super) struct Watchdog {
    /// None if it is a thread of this process.
    child: Option<(CpuAccount, u32)>,
    patience: Patience,
    used: Duration,
    idle_since: Instant,
    deadline: Instant,
    meter: Option<WaitMeter>,
    /// How long may be waited for the answer while the process does nothing.
    allowance: Duration,
    /// How long the process had to wait for this one meanwhile.
    not_its_doing: Duration,
}

impl Watchdog {
    /// Watches a child process.
    pub(super) fn for_child(account: CpuAccount, id: u32, patience: Patience) -> Self {
        let meter = Some(WaitMeter::new(id));
        Self { child: Some((account, id)), meter, ..Self::with(patience) }
    }

    /// Watches a thread of this process, which may do nothing for as long as it may work.
    pub(super) fn for_thread() -> Self {
        Self::with(ParserRole::Names.patience())
    }

    fn with(patience: Patience) -> Self {
        let now = Instant::now();
        let deadline = now + patience.busy;
        Self {
            child: None,
            patience,
            used: Duration::ZERO,
            idle_since: now,
            deadline,
            meter: None,
            allowance: Duration::MAX,
            not_its_doing: Duration::ZERO,
        }
    }

    /// Starts the time that the answer to a question may take.
    pub(super) fn begin_question(&mut self, allowance: Duration) {
        (self.allowance, self.not_its_doing) = (allowance, Duration::ZERO);
        if let Some(meter) = &mut self.meter {
            meter.begin();
        }
        self.deadline = Instant::now() + self.patience.busy;
    }

    /// How long was waited since the question, while the process neither computed nor wanted a CPU.
    pub(super) fn waited(&self) -> Duration {
        let waited = self.meter.as_ref().map_or(Duration::ZERO, WaitMeter::waited);
        waited.saturating_sub(self.not_its_doing)
    }

    /// Moves the end of that time by what was not the process's doing.
    pub(super) fn extend_deadline(&mut self, by: Duration) {
        self.deadline += by;
        self.not_its_doing += by;
    }

    /// Starts the time for which the process may do nothing before it sends or takes a message.
    pub(super) fn begin_message(&mut self) {
        self.idle_since = Instant::now();
    }

    /// Checks whether a process that sends one message after the other will ever be done.
    pub(super) fn check_deadline(&self) -> Result<(), ChannelError> {
        if self.patience.at_end == AtEnd::GivenUp && end_deadline::has_passed() {
            return Err(ChannelError::OutOfTime);
        }
        match Instant::now() < self.deadline {
            true => Ok(()),
            false => Err(ChannelError::TimedOut),
        }
    }

    /// Checks on a process that has sent nothing yet: an error if it has taken too long.
    pub(super) fn check(&mut self) -> Result<(), ChannelError> {
        // Before it could be blamed.
        self.check_deadline()?;
        if let Some((account, id)) = &self.child
            && let Some(used) = account.used()
        {
            // Who gets no CPU on a busy machine has not stopped working.
            if used != self.used || is_runnable(*id) {
                self.used = used;
                self.idle_since = Instant::now();
            }
            if self.idle_since.elapsed() >= self.patience.idle {
                return Err(ChannelError::TimedOut);
            }
            if self.waited() > self.allowance {
                return Err(ChannelError::TimedOut);
            }
        }
        Ok(())
    }
}

/// Whether the main thread of a process computes, or waits for nothing but a CPU.
fn is_runnable(id: u32) -> bool {
    let stat = fs::read(format!("/proc/{id}/stat")).unwrap_or_default();
    // The name of a process can have any bytes.
    let behind_name = stat.iter().rposition(|&byte| byte == b')');
    behind_name.is_some_and(|at| stat.get(at..).is_some_and(|rest| rest.starts_with(b") R")))
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
        watchdog.extend_deadline(watchdog.patience.busy);
        assert_eq!(watchdog.check(), Ok(()));
        watchdog.deadline = Instant::now();
        watchdog.begin_question(Duration::MAX);
        assert_eq!(watchdog.check_deadline(), Ok(()));
    }
}
