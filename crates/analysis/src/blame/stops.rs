//! Why a thread was stopped: by a signal, by a debugger, by the freezer.

use offwake_recording::{StackRef, StackTable, StopOrigin};

use crate::text;

use super::cause::{self, Cause};

/// What stopped a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// A signal that stops: `SIGSTOP`, or a terminal's `SIGTSTP`. Another one has it go on.
    Signal,
    /// A tracer, such as a debugger or `strace`.
    Traced,
    /// The freezer of its cgroup, or of a machine that goes to sleep.
    Frozen,
}

impl Stop {
    /// Reads it from a wait's state and kernel stack; none if the thread was not stopped, or nothing
    /// tells by what.
    #[must_use]
    pub fn from_wait(
        cause: Cause,
        state: char,
        stacks: &StackTable,
        kernel: StackRef,
    ) -> Option<Self> {
        const FREEZERS: &[&str] = &["do_freezer_trap", "__refrigerator"];
        match (cause, state) {
            (Cause::Stopped, 'T') => Some(Self::Signal),
            (Cause::Stopped, 't') => Some(Self::Traced),
            (Cause::Stopped, _) => {
                let mut functions = cause::kernel_frames(stacks, kernel);
                functions.find_map(|function| match function {
                    _ if cause::matches_any(FREEZERS, function) => Some(Self::Frozen),
                    _ if cause::matches_any(&["ptrace_stop"], function) => Some(Self::Traced),
                    _ if cause::matches_any(&["do_signal_stop"], function) => Some(Self::Signal),
                    // Compilers put the freezer's trap into its only caller.
                    _ if cause::matches_any(&["get_signal"], function) => Some(Self::Frozen),
                    _ => None,
                })
            }
            _ => None,
        }
    }

    /// Returns whether anybody may end it, who need not be the one that stopped the thread. A tracer
    /// has the threads go on that it stops.
    #[must_use]
    pub fn is_ended_by_any(self) -> bool {
        match self {
            Self::Signal | Self::Frozen => true,
            Self::Traced => false,
        }
    }

    /// Returns what is said of a thread that is stopped.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Signal => "is stopped (SIGSTOP)",
            Self::Traced => "is stopped by a tracer (ptrace)",
            Self::Frozen => "is frozen (cgroup freezer)",
        }
    }

    /// Says of a thread that is stopped also by whom, if that is known and goes with how it is stopped.
    #[must_use]
    pub fn describe(self, origin: Option<&StopOrigin>) -> String {
        match (self, origin) {
            (Self::Traced, Some(StopOrigin::Tracer(tracer))) => {
                let name = if tracer.comm.is_empty() { "process" } else { &*tracer.comm };
                format!(
                    "is stopped by its tracer {} {} (ptrace)",
                    text::terminal(name),
                    tracer.tgid
                )
            }
            (
                Self::Frozen,
                Some(StopOrigin::FrozenCgroup(path) | StopOrigin::FrozenAsleep(path)),
            ) => {
                format!("is frozen (freezer of cgroup {})", text::terminal(path))
            }
            _ => self.words().to_owned(),
        }
    }
}
