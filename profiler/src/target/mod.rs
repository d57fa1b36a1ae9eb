//! What to profile: processes, threads, a cgroup, a container, a command, or everything.
//!
//! A kind of target is a variant of [`TargetRequest`], made of the command line's arguments
//! (`bin/offwake/cli.rs`, `session.rs`); the kernel half is told of it by
//! [`TargetFilter`] and decides in `profiler-ebpf/src/programs/target.rs`.
//! That a report can be narrowed to it afterwards is the business of
//! `crates/analysis/src/selection/criteria.rs`.

mod cgroup;
mod command;
mod container;
mod error;
mod process;

use std::{ffi::OsString, path::PathBuf};

pub use offwake_analysis::selection::Children;
use offwake_analysis::selection::describe_processes;
use offwake_recording::units::{Tgid, Tid};

pub use command::{HeldCommand, Streams};
pub use error::TargetError;

use crate::{
    containers::{ContainerQuery, RestartWatcher},
    kernel::TargetFilter,
};

/// What a user wants to profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetRequest {
    /// Every thread of the machine.
    All,
    /// All threads of these processes, and of all that descend from them unless those are excluded.
    Processes(Vec<Tgid>, Children),
    /// These threads alone.
    Threads(Vec<Tid>),
    /// A cgroup and what is below it.
    Cgroup(PathBuf),
    /// A container, or a pod's containers.
    Container(ContainerQuery, Restarts),
    /// A command, from its first instruction on.
    Command(Vec<OsString>, Streams, Children),
}

/// What becomes of the target when its container stops and starts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restarts {
    /// Nothing more is recorded.
    Ignored,
    /// The container that has the same name then is the target.
    Followed,
}

/// A target that was found.
#[derive(Debug)]
pub struct Target {
    /// The target as the kernel half selects it.
    pub filter: TargetFilter,
    /// The target in words.
    pub description: String,
    /// The target's command, if it is one: it is held before its first instruction.
    pub command: Option<HeldCommand>,
    /// Finds the target's container again, if that is to be followed.
    pub restarts: Option<RestartWatcher>,
}

impl Target {
    /// Finds a target. A command is started, and held.
    ///
    /// # Errors
    ///
    /// If it is not there, or is something else than it was taken for.
    pub fn find(request: TargetRequest) -> Result<Self, TargetError> {
        let without_command =
            |filter, description| Self { filter, description, command: None, restarts: None };
        Ok(match request {
            TargetRequest::All => without_command(TargetFilter::All, "all threads".to_owned()),
            TargetRequest::Processes(processes, children) => {
                for process in &processes {
                    process::check_process(*process)?;
                }
                let description = describe_processes(&processes, children);
                without_command(filter_processes(processes, children), description)
            }
            TargetRequest::Threads(threads) => {
                for thread in &threads {
                    process::check_thread(*thread)?;
                }
                let numbers: Vec<String> = threads.iter().map(ToString::to_string).collect();
                let description = format!("tid {}", numbers.join(","));
                without_command(TargetFilter::Threads(threads), description)
            }
            TargetRequest::Cgroup(path) => {
                let cgroup = cgroup::find(&path)?;
                let filter = TargetFilter::Cgroup { id: cgroup.id, level: cgroup.level };
                without_command(filter, format!("cgroup {}", cgroup.path))
            }
            TargetRequest::Container(query, restarts) => container::find(&query, restarts)?,
            TargetRequest::Command(words, streams, children) => {
                let command = HeldCommand::start(&words, streams)?;
                let description = format!("command {}", words[0].to_string_lossy());
                Self {
                    filter: filter_processes(vec![command.tgid()], children),
                    description: match children {
                        Children::Included => description,
                        Children::Excluded => format!("{description} without children"),
                    },
                    command: Some(command),
                    restarts: None,
                }
            }
        })
    }
}

fn filter_processes(processes: Vec<Tgid>, children: Children) -> TargetFilter {
    match children {
        Children::Included => TargetFilter::Processes(processes),
        Children::Excluded => TargetFilter::ProcessesAlone(processes),
    }
}
