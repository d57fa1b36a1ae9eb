//! What kept threads stopped when a recording ended.

use crate::{file::PeerProcess, units::Tid};

/// What keeps a thread stopped that is not stopped by a signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopOrigin {
    /// The process that traces it, such as a debugger. Its name is empty if it had gone meanwhile.
    Tracer(PeerProcess),
    /// The cgroup that is frozen, by its path in its hierarchy: the nearest one that was told to freeze, of
    /// the thread's own and those above it.
    FrozenCgroup(String),
    /// The same, where the kernel says that the cgroup and this thread are frozen. The freezer of cgroups v1 leaves
    /// a thread that sleeps where it is, and its stack says nothing of it.
    FrozenAsleep(String),
}

/// A thread that was stopped when the window closed, and by what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoppedThread {
    /// The thread.
    pub tid: Tid,
    /// What kept it stopped.
    pub origin: StopOrigin,
}
