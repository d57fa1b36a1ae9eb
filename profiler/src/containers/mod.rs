//! Containers: from what people call one to its cgroup, and from its id to what people call it.
//!
//! ```text
//!  engines:  GET /containers/json       --+
//!  bundles:  /run/…/ID/config.json      --+--> Vec<Container> --resolve(Wanted)--> one of them, or a pod
//!  storage:  …/containers.json          --+                                               |
//!  hierarchy: directories that bear ids ------------------------------------------------> cgroup
//! ```
//!
//! Reading is at the edge ([`Host`]); [`resolve()`] and all parsers work on values. Whatever an engine or a
//! file says is bounded, and is believed about names alone: which processes are a container's, the
//! kernel's cgroups say.

mod bundle;
mod engine;
mod follow;
mod hierarchy;
mod host;
mod namer;
mod resolve;
mod small_file;
mod sockets;
mod storage;
#[cfg(test)]
mod tests;
mod unix_socket;
mod wanted;

pub use follow::Follower;
pub use host::{FindError, Found, Host, Place};
pub(crate) use namer::Namer;
pub use resolve::{NotFound, Resolved, resolve};
pub use wanted::Wanted;

use crate::recording::{ContainerId, ContainerNames};

/// A container, as its runtime has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its id.
    pub id: ContainerId,
    /// What people call it.
    pub names: ContainerNames,
    /// The unique id of its pod, if it is a part of one.
    pub pod_uid: Option<String>,
    /// What it is for.
    pub role: Role,
    /// Whether it runs.
    pub state: State,
}

/// What a container is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Somebody's program runs in it.
    Workload,
    /// It holds a pod's namespaces, and does nothing.
    Sandbox,
}

/// Whether a container runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// There are processes in it.
    Running,
    /// There are none; why, in the runtime's word (`exited`, `created`), if it says so.
    Stopped(Option<String>),
}
