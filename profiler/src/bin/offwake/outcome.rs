//! How a run ended.

use std::process::ExitCode;

use anyhow::bail;
use offwake::capture::{Sink, Written};

/// How a run ended, as an exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The run did what it was asked for.
    Done,
    /// Something went wrong, and was printed.
    Failed,
    /// Recording went well, and there is nothing to show for it.
    NothingRecorded,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        // 2 is a usage error, and clap's own.
        Self::from(match outcome {
            Outcome::Done => 0,
            Outcome::Failed => 1,
            Outcome::NothingRecorded => 3,
        })
    }
}

impl Outcome {
    /// Tells how a recording ended that was written to `name` as it came.
    pub fn from_written<S: Sink>(written: &Written<S>, name: &str) -> anyhow::Result<Self> {
        if let Some(error) = &written.failed {
            bail!("cannot write {name}: {error}: the recording ends after {}", written.length);
        }
        if written.counts.target_waits == 0 {
            eprintln!("offwake: nothing was recorded: no thread of the target waited");
            return Ok(Self::NothingRecorded);
        }
        Ok(Self::Done)
    }
}
