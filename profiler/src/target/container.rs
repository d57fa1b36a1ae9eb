//! Finds a container or pod by what people call it.

use std::path::Path;

use super::{Restarts, Target, TargetError, cgroup};
use crate::{
    containers::{
        ContainerLocation, ContainerQuery, FoundContainer, Host, Resolved, RestartWatcher,
    },
    kernel::TargetFilter,
    privileges, reader_process,
};

/// Finds the cgroup of a container or pod; where it has none in the v2 hierarchy, its processes.
pub(super) fn find(query: &ContainerQuery, restarts: Restarts) -> Result<Target, TargetError> {
    let host = Host::local();
    // What engines leave in files can lie where nobody answers.
    reader_process::use_processes();
    let FoundContainer { resolved, location } = privileges::with_dac_override(|| host.find(query))?;
    let description = describe(&resolved);
    match location {
        ContainerLocation::Cgroup(path) => in_cgroup(host, &resolved, &path, description, restarts),
        ContainerLocation::Processes(_) if restarts == Restarts::Followed => {
            Err(TargetError::FollowWithoutCgroup(description))
        }
        ContainerLocation::Processes(processes) => Ok(Target {
            filter: TargetFilter::Processes(processes),
            description: format!(
                "{description} (cgroup v1: its processes now, and their children)"
            ),
            command: None,
            restarts: None,
        }),
    }
}

fn in_cgroup(
    host: Host,
    resolved: &Resolved,
    path: &Path,
    description: String,
    restarts: Restarts,
) -> Result<Target, TargetError> {
    let cgroup = cgroup::find(path)?;
    let (filter, watcher) = match restarts {
        Restarts::Ignored => (TargetFilter::Cgroup { id: cgroup.id, level: cgroup.level }, None),
        Restarts::Followed => (
            TargetFilter::Cgroups { id: cgroup.id, level: cgroup.level },
            Some(RestartWatcher::start(host, resolved, path.to_owned(), cgroup.id)),
        ),
    };
    Ok(Target { filter, description, command: None, restarts: watcher })
}

/// `container web (nginx:1.27, 4f1c0b5a9d3e)`, `pod shop/cart-7d9f`
fn describe(resolved: &Resolved) -> String {
    match resolved {
        Resolved::Pod { name: Some(name), .. } => format!("pod {name}"),
        Resolved::Pod { uid, name: None } => format!("pod {uid}"),
        Resolved::Container(container) => {
            let (names, id) = (&container.names, &container.id);
            let image = names.image.as_ref().map(|image| format!("{image}, ")).unwrap_or_default();
            match &names.name {
                Some(_) => format!("container {} ({image}{})", names.label(id), id.short()),
                None => format!("container {}", id.short()),
            }
        }
    }
}
