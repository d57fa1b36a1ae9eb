//! Containers: from what people call one to its cgroup, and from its id to what people call it.
//!
//! ```text
//!  engines:  GET /containers/json       --+
//!  bundles:  /run/…/ID/config.json      --+--> Vec<Container> --resolve(query)--> one of them, or a pod
//!  storage:  …/containers.json          --+                                              |
//!  hierarchy: directories that bear ids -----------------------------------------------> cgroup
//! ```
//!
//! Reading is at the edge ([`Host`]); [`resolve()`] and all parsers work on values. Whatever an
//! engine or a file says is bounded, and is believed about names alone: which processes are a
//! container's, the kernel's cgroups say.

mod bundle;
mod docker_api;
mod engine_sockets;
mod hierarchy;
mod host;
mod name_lookup;
mod resolve;
mod restarts;
mod small_file;
mod storage;
/// Parses any bytes as each of an engine's lists and files, and as a path of a cgroup, for the fuzzer.
pub(crate) fn parse_hostile(bytes: &[u8]) {
    let id = ContainerId::new(&"0123456789abcdef".repeat(4));
    let bundle = id.and_then(|id| bundle::parse(&id, bytes));
    let listed = docker_api::parse(bytes).unwrap_or_default();
    let containers: Vec<Container> =
        listed.into_iter().chain(storage::parse(bytes)).chain(bundle).collect();
    let path = String::from_utf8_lossy(bytes);
    let _pod = hierarchy::find_pod_uid(std::path::Path::new(&*path));
    let _id = ContainerId::from_cgroup_path(&path);
    let _resolved = ContainerQuery::parse(&path).map(|query| resolve(&query, &containers));
}

#[cfg(test)]
mod tests;
mod unix_socket;

pub use host::{ContainerLocation, FindContainerError, FoundContainer, Host};
pub(crate) use name_lookup::NameLookup;
pub use offwake_analysis::selection::ContainerQuery;
pub use resolve::{ResolveError, Resolved, resolve};
pub use restarts::RestartWatcher;

use offwake_recording::{ContainerId, ContainerNames};

/// A container, as its runtime describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// The container's id.
    pub id: ContainerId,
    /// What people call the container.
    pub names: ContainerNames,
    /// The unique id of the container's pod, if it is a part of one.
    pub pod_uid: Option<String>,
    /// What the container is for.
    pub role: ContainerRole,
    /// Whether the container runs.
    pub state: ContainerState,
}

/// What a container is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerRole {
    /// The container runs somebody's program.
    Workload,
    /// The container holds a pod's namespaces, and does nothing.
    Sandbox,
}

/// Whether a container runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// The container has processes.
    Running,
    /// The container has none; why, in the runtime's word (`exited`, `created`), if it says so.
    Stopped(Option<String>),
}
