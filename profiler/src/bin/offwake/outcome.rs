//! How a run ended.

use std::{
    os::unix::process::ExitStatusExt as _,
    process::{ExitCode, ExitStatus},
};

use anyhow::bail;
use offwake::capture::{Ending, Sink, Written};

use crate::{output::on_one_line, terminal_thread::print_error};

/// How a run ended, as an exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The run did what it was asked for.
    Done,
    /// The same, and the command that was profiled ended with this exit status.
    CommandFailed(u8),
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
            Outcome::CommandFailed(status) => status,
            Outcome::Failed => 1,
            Outcome::NothingRecorded => 3,
        })
    }
}

/// A command whose end was the end of the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedCommand {
    /// The command's first word.
    pub name: String,
    /// How the command ended.
    pub status: ExitStatus,
}

impl EndedCommand {
    /// The command's exit status as shells give it: 128 and the number of the signal that ended it.
    fn shell_status(&self) -> u8 {
        let signalled = || self.status.signal().map(|signal| 128_i32.saturating_add(signal));
        let status = self.status.code().or_else(signalled);
        status.and_then(|status| u8::try_from(status).ok()).unwrap_or(u8::MAX)
    }
}

impl Outcome {
    /// Tells how a recording ended that was written to `name` as it came.
    pub fn from_written<S: Sink>(written: &Written<S>, name: &str) -> anyhow::Result<Self> {
        if let Some(error) = &written.failed {
            let lost = match written.ending {
                Ending::Written => "",
                Ending::Lost => ", and the names of its functions are lost",
            };
            bail!(
                "cannot write {name}: {error}: the recording ends after {}{lost}",
                written.length
            );
        }
        if let Some(error) = &written.broken {
            bail!("{error}: the recording {name} ends after {}", written.length);
        }
        if written.target_thread_events == 0 {
            print_error("nothing was recorded: no thread of the target was seen");
            return Ok(Self::NothingRecorded);
        }
        Ok(Self::Done)
    }

    /// Passes on the exit status of the command that was profiled, and prints on standard error that
    /// it failed, so that nobody takes it for offwake's. What went wrong with offwake itself comes
    /// first.
    #[must_use]
    pub fn pass_on(self, command: Option<&EndedCommand>) -> Self {
        match (self, command) {
            (Self::Done, Some(command)) if !command.status.success() => {
                let status = command.shell_status();
                let how = match command.status.signal() {
                    Some(signal) => format!("was ended by signal {signal}"),
                    None => format!("ended with exit status {status}"),
                };
                print_error(&format!("the command {} {how}", on_one_line(&command.name)));
                Self::CommandFailed(status)
            }
            (outcome, _) => outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(wait_status: i32) -> EndedCommand {
        EndedCommand { name: "x".to_owned(), status: ExitStatus::from_raw(wait_status) }
    }

    #[test]
    fn a_commands_status_is_passed_on_as_shells_do() {
        for (wait_status, expected) in [
            (0, Outcome::Done),
            (7 << 8, Outcome::CommandFailed(7)),
            (3 << 8, Outcome::CommandFailed(3)),
            (255 << 8, Outcome::CommandFailed(255)),
            (libc::SIGKILL, Outcome::CommandFailed(137)),
            (libc::SIGSEGV | 0x80, Outcome::CommandFailed(139)),
        ] {
            assert_eq!(Outcome::Done.pass_on(Some(&ended(wait_status))), expected);
        }
        assert_eq!(Outcome::Done.pass_on(None), Outcome::Done);
    }

    #[test]
    fn what_went_wrong_with_offwake_comes_before_the_command() {
        for outcome in [Outcome::Failed, Outcome::NothingRecorded] {
            assert_eq!(outcome.pass_on(Some(&ended(7 << 8))), outcome);
        }
    }
}
