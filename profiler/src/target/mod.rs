//! What to profile: processes, threads, a cgroup, a command, or everything.

mod cgroup;
mod command;
mod error;
mod process;

use std::{ffi::OsString, path::PathBuf};

pub use command::{HeldCommand, Streams};
pub use error::TargetError;

use crate::{
    kernel::TargetFilter,
    units::{Tgid, Tid},
};

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Every thread of the machine.
    All,
    /// All threads of these processes, and of the processes that they fork.
    Processes(Vec<Tgid>),
    /// These threads alone.
    Threads(Vec<Tid>),
    /// A cgroup and what is below it.
    Cgroup(PathBuf),
    /// A command, from its first instruction on.
    Command(Vec<OsString>, Streams),
}

/// What was asked for, found.
#[derive(Debug)]
pub struct Target {
    /// As the kernel half takes it.
    pub filter: TargetFilter,
    /// In words.
    pub description: String,
    /// The command, if it is one: it is held before its first instruction.
    pub command: Option<HeldCommand>,
}

impl Target {
    /// Finds what was asked for. A command is started, and held.
    ///
    /// # Errors
    ///
    /// If it is not there, or is something else than it was taken for.
    pub fn find(request: Request) -> Result<Self, TargetError> {
        let without_command = |filter, description| Self { filter, description, command: None };
        Ok(match request {
            Request::All => without_command(TargetFilter::All, "all threads".to_owned()),
            Request::Processes(processes) => {
                for process in &processes {
                    process::check_process(*process)?;
                }
                let description = describe("pid", &processes);
                without_command(TargetFilter::Processes(processes), description)
            }
            Request::Threads(threads) => {
                for thread in &threads {
                    process::check_thread(*thread)?;
                }
                let description = describe("tid", &threads);
                without_command(TargetFilter::Threads(threads), description)
            }
            Request::Cgroup(path) => {
                let (filter, description) = cgroup::find(&path)?;
                without_command(filter, description)
            }
            Request::Command(words, streams) => {
                let command = HeldCommand::start(&words, streams)?;
                Self {
                    filter: TargetFilter::Processes(vec![command.tgid()]),
                    description: format!("command {}", words[0].to_string_lossy()),
                    command: Some(command),
                }
            }
        })
    }
}

fn describe(what: &str, numbers: &[impl ToString]) -> String {
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    format!("{what} {}", numbers.join(","))
}
