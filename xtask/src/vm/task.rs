//! What is done in a guest, one after the other.

use std::time::Duration;

/// A command, and how long it may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The task's name, one word.
    pub name: String,
    pub limit: Duration,
    /// The command line that the guest's shell runs.
    pub command: String,
}

impl Task {
    /// The line that the guest reads.
    pub fn line(&self) -> String {
        format!("{} {} {}\n", self.name, self.limit.as_secs(), self.command)
    }
}
