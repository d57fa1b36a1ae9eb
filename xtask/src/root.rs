//! Doing things as root, through sudo where that is needed.

use std::{fs, os::unix::fs::MetadataExt as _, process::Command};

use anyhow::bail;

use crate::command;

/// How this process can do something as root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootAccess {
    /// This process is root.
    Already,
    /// Commands run as root through sudo, which may ask for a password.
    Sudo,
}

impl RootAccess {
    /// # Errors
    ///
    /// When this is not root and there is no sudo. `what` says what root is wanted for.
    pub fn obtain_for(what: &str) -> anyhow::Result<Self> {
        if fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
            Ok(Self::Already)
        } else if command::find_program("sudo").is_some() {
            Ok(Self::Sudo)
        } else {
            bail!("no root for {what}: there is no sudo here, so run this as root")
        }
    }

    /// A command that runs as root. Sudo drops most of the environment: pass on `env`.
    pub fn command(self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        match self {
            Self::Already => Command::new(program),
            Self::Sudo => {
                let mut command = Command::new("sudo");
                command.arg(program);
                command
            }
        }
    }
}
