//! Why a target can't be profiled.

use std::{io, path::PathBuf};

use offwake_recording::units::{Tgid, Tid};
use thiserror::Error;

use crate::containers::{FindContainerError, ResolveError};

/// Says what failed, on what, and what to do about it.
#[derive(Debug, Error)]
pub enum TargetError {
    /// There is no such process.
    #[error("no process has the PID {0}; it may have ended: look with `ps -p {0}`")]
    NoProcess(Tgid),
    /// The process has ended, and only waits to be collected.
    #[error("process {0} has ended; its parent has not collected it yet")]
    DeadProcess(Tgid),
    /// The number is that of a thread.
    #[error("{tid} is a thread of process {tgid}; use --tid {tid} for it alone, or --pid {tgid}")]
    ThreadNotProcess {
        /// The number that was given.
        tid: Tid,
        /// The process that it belongs to.
        tgid: Tgid,
    },
    /// There is no such thread.
    #[error("no thread has the TID {0}; it may have ended: look with `ps -eLo pid,lwp,comm`")]
    NoThread(Tid),
    /// `/proc` could not be read.
    #[error("cannot look up {what} in /proc: {source}")]
    Proc {
        /// What was looked for.
        what: String,
        /// Why `/proc` could not be read.
        source: io::Error,
    },
    /// No cgroup2 filesystem is mounted.
    #[error(
        "no cgroup v2 hierarchy is mounted, and --cgroup needs one: mount -t cgroup2 none /sys/fs/cgroup/unified"
    )]
    NoCgroups,
    /// The path is no cgroup.
    #[error(
        "{} is no cgroup of the v2 hierarchy mounted at {}: {why}",
        .path.display(),
        .mount.display()
    )]
    NotACgroup {
        /// The path that was given.
        path: PathBuf,
        /// Where the hierarchy is mounted.
        mount: PathBuf,
        /// Why the path is no cgroup.
        why: String,
    },
    /// The path may be a cgroup or not.
    #[error("cannot look up the cgroup {}: no answer from its file system", .0.display())]
    Silent(PathBuf),
    /// There is no such container.
    #[error(transparent)]
    Container(#[from] FindContainerError),
    /// A container can be followed by its cgroup alone.
    #[error(
        "{0} has no cgroup of its own in the v2 hierarchy: it can't be followed; leave --follow out"
    )]
    FollowWithoutCgroup(String),
    /// The command is not there, or can't be run.
    #[error("cannot run `{command}`: {why}")]
    Command {
        /// The command's first word.
        command: String,
        /// Why the command can't be run. It is said already, and no source of this error, which would be said again.
        why: io::Error,
    },
}

impl TargetError {
    /// Whether a container that starts may be what is missing.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Container(FindContainerError::NotFound { why, .. }) => match why {
                ResolveError::Unknown { .. } | ResolveError::NotRunning(..) => true,
                ResolveError::Ambiguous { .. } => false,
            },
            _ => false,
        }
    }
}
