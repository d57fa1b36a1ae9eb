//! Reads all that it takes to find containers: engines, files and cgroups.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use offwake_analysis::text;
use offwake_recording::{ContainerId, ContainerNames, units::Tgid};
use rustix::io::Errno;
use thiserror::Error;

use super::{
    Container, ContainerQuery, ContainerRole, ContainerState, ResolveError, Resolved, bundle,
    docker_api,
    engine_sockets::{Caller, engine_sockets},
    hierarchy::{self, ContainerCgroups},
    resolve, small_file, storage,
};
use crate::{cgroup2, reader_process};

/// Bytes of one `config.json`: they have some 10 to 50 KB.
const MAX_BUNDLE: u64 = 4 << 20;
/// Bytes of a `containers.json`.
const MAX_STORAGE: u64 = 32 << 20;
/// How many bundles are read.
const MAX_BUNDLES: usize = 16_384;
/// How many that did not answer are named.
const MAX_UNANSWERED: usize = 8;
/// Characters of the reason why an engine did not answer.
const MAX_REASON: usize = 120;
/// Bytes of `cgroup.procs`.
const MAX_PROCESSES: u64 = 4 << 20;

/// A machine with containers, by the directories in which it has them.
#[derive(Clone, Debug)]
pub struct Host {
    /// `/run`
    run: PathBuf,
    /// `/var/lib`
    state: PathBuf,
    /// Where the v2 hierarchy is mounted.
    cgroup2: Option<PathBuf>,
    /// Where the hierarchies of v1 are mounted.
    cgroup1: Vec<PathBuf>,
    caller: Caller,
}

/// What a query has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundContainer {
    /// The container or pod.
    pub resolved: Resolved,
    /// Where its processes are.
    pub location: ContainerLocation,
}

/// Where the processes of a container or pod are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerLocation {
    /// All processes in this cgroup of the v2 hierarchy: a directory.
    Cgroup(PathBuf),
    /// These processes, which there are now: they are in no cgroup of that hierarchy but its root,
    /// as on a host that has v1 alone.
    Processes(Vec<Tgid>),
}

/// Why a container can't be profiled.
#[derive(Debug, Error)]
pub enum FindContainerError {
    /// The query means no container, or could mean several.
    #[error("{why}{silent}")]
    NotFound {
        /// Why the query means none.
        why: ResolveError,
        /// The engines that did not answer, in words.
        silent: String,
    },
    /// The container runs, and its processes can't be seen from here.
    #[error(
        "{0} runs, but no cgroup on this machine bears its id; name its processes with --pid, or its cgroup with --cgroup"
    )]
    NoCgroup(String),
}

/// What engines and files say of a machine's containers.
#[derive(Debug, Default)]
pub(super) struct ListedContainers {
    pub containers: BTreeMap<ContainerId, Container>,
    /// Engines that should have answered, and why they did not; directories that did not.
    pub unanswered: Vec<String>,
}

impl ListedContainers {
    /// Adds containers that are not listed yet: the source that is asked first is believed more.
    fn add(&mut self, containers: impl IntoIterator<Item = Container>) {
        for container in containers {
            self.containers.entry(container.id.clone()).or_insert(container);
        }
    }

    /// Notes that a file had no answer, if it had none. One for each directory will do.
    fn note_silence<T>(&mut self, path: &Path, asked: rustix::io::Result<T>) -> Option<T> {
        if asked.as_ref().is_err_and(|error| *error == Errno::TIMEDOUT) {
            let directory = path.parent().unwrap_or(path).display().to_string();
            let directory = text::cut_chars(&text::terminal(&directory), MAX_REASON);
            let silent = format!("no answer from the file system of {directory}");
            if !self.unanswered.contains(&silent) && self.unanswered.len() < MAX_UNANSWERED {
                self.unanswered.push(silent);
            }
        }
        asked.ok()
    }

    /// The directories in a directory.
    fn directories(&mut self, path: &Path) -> Vec<PathBuf> {
        let listed = reader_process::list_directories(path, MAX_BUNDLES);
        self.note_silence(&path.join("_"), listed).unwrap_or_default()
    }
}

impl Host {
    /// This machine, for the user who runs this program.
    #[must_use]
    pub fn local() -> Self {
        Self {
            run: PathBuf::from("/run"),
            state: PathBuf::from("/var/lib"),
            cgroup2: cgroup2::mount_point(),
            cgroup1: cgroup2::v1_mount_points(),
            caller: Caller::from_environment(),
        }
    }

    /// Another machine, whose directories lie below `root`, for a user without engines of their
    /// own.
    #[cfg(test)]
    pub(super) fn below(root: &Path) -> Self {
        Self {
            run: root.join("run"),
            state: root.join("var/lib"),
            cgroup2: Some(root.join("sys/fs/cgroup/unified")),
            cgroup1: vec![root.join("sys/fs/cgroup/pids")],
            caller: Caller::default(),
        }
    }

    /// Finds the container or pod that a query means.
    ///
    /// # Errors
    ///
    /// If it is not there, does not run, or could be any of several.
    pub fn find(&self, query: &ContainerQuery) -> Result<FoundContainer, FindContainerError> {
        let mut listed = self.list_containers();
        let cgroups = self.cgroup2.as_deref().map(hierarchy::scan).unwrap_or_default();
        // Where the v2 hierarchy has any container, it has all.
        let v1 = if cgroups.containers.is_empty() {
            V1Hierarchy::scan_all(&self.cgroup1)
        } else {
            Vec::new()
        };
        listed.add(containers_of_cgroups(&cgroups));
        v1.iter().for_each(|hierarchy| listed.add(containers_of_cgroups(&hierarchy.cgroups)));
        let runs = |id| {
            cgroups.containers.contains_key(id)
                || v1.iter().any(|hierarchy| hierarchy.cgroups.containers.contains_key(id))
        };
        for container in listed.containers.values_mut() {
            // Files don't say whether their container runs.
            if container.state == ContainerState::Stopped(None) && runs(&container.id) {
                container.state = ContainerState::Running;
            }
        }
        let containers: Vec<_> = listed.containers.into_values().collect();
        let resolved = resolve(query, &containers).map_err(|why| FindContainerError::NotFound {
            why,
            silent: listed.unanswered.iter().map(|engine| format!("; {engine}")).collect(),
        })?;
        let location = (self.cgroup2.as_deref())
            .and_then(|root| {
                Some(ContainerLocation::Cgroup(root.join(resolved.path_in(&cgroups)?)))
            })
            .or_else(|| v1.iter().find_map(|hierarchy| hierarchy.locate(&resolved)))
            .ok_or_else(|| FindContainerError::NoCgroup(query.to_string()))?;
        Ok(FoundContainer { resolved, location })
    }

    /// Lists what engines and files say of containers. Whether those run that only files list is
    /// left open.
    pub(super) fn list_containers(&self) -> ListedContainers {
        let mut listed = ListedContainers::default();
        let sockets = engine_sockets(&self.caller, &self.run);
        let own = sockets.iter().position(|socket| self.belongs_to_caller(socket));
        let (systems, callers) = sockets.split_at(own.unwrap_or(sockets.len()));
        let user = self.caller.user;
        Self::query_engines(systems, &[0, user], &mut listed);
        self.read_bundles(&mut listed);
        let list = self.state.join("containers/storage/overlay-containers/containers.json");
        let read = small_file::read(&list, MAX_STORAGE);
        if let Some(list) = listed.note_silence(&list, read) {
            listed.add(storage::parse(&list));
        }
        // A link in the user's own directories could lead to anybody's socket, so that the listener
        // must be this user's.
        Self::query_engines(callers, &[user], &mut listed);
        listed
    }

    fn belongs_to_caller(&self, socket: &Path) -> bool {
        let shared = self.run.join("user");
        socket.starts_with(shared)
            || self.caller.runtime_directory.as_ref().is_some_and(|own| socket.starts_with(own))
    }

    fn query_engines(sockets: &[PathBuf], listeners: &[u32], listed: &mut ListedContainers) {
        for socket in sockets {
            // Most machines have one of them at most.
            let Some(_name) = listed.note_silence(socket, reader_process::open_path(socket)) else {
                continue;
            };
            match docker_api::list(socket, listeners) {
                Ok(containers) => listed.add(containers),
                Err(reason) => {
                    let reason = text::cut_chars(&text::terminal(&reason), MAX_REASON);
                    let unanswered = format!("no answer from {}: {reason}", socket.display());
                    listed.unanswered.push(unanswered);
                }
            }
        }
    }

    /// Reads the bundles of containerd and CRI-O.
    fn read_bundles(&self, listed: &mut ListedContainers) {
        let namespaces = self.run.join("containerd/io.containerd.runtime.v2.task");
        let crio_containers = self.run.join("containers/storage/overlay-containers");
        let mut bundles = Vec::new();
        for namespace in listed.directories(&namespaces) {
            let of_it = listed.directories(&namespace).into_iter();
            bundles.extend(of_it.map(|bundle| (bundle.join("config.json"), bundle)));
        }
        let crio = listed.directories(&crio_containers).into_iter();
        bundles.extend(crio.map(|container| (container.join("userdata/config.json"), container)));
        for (config, directory) in bundles.into_iter().take(MAX_BUNDLES) {
            let name = directory.file_name().and_then(OsStr::to_str);
            let Some(id) = name.and_then(ContainerId::new) else { continue };
            let read = small_file::read(&config, MAX_BUNDLE);
            let read = listed.note_silence(&config, read);
            listed.add(read.and_then(|bytes| bundle::parse(&id, &bytes)));
        }
    }
}

/// The containers that are certain from their cgroups alone, without names.
fn containers_of_cgroups(cgroups: &ContainerCgroups) -> impl Iterator<Item = Container> {
    cgroups.certain_containers().map(|(id, path)| Container {
        id: id.clone(),
        names: ContainerNames::default(),
        pod_uid: hierarchy::find_pod_uid(path),
        role: ContainerRole::Workload,
        state: ContainerState::Running,
    })
}

/// A cgroup hierarchy of v1.
struct V1Hierarchy<'h> {
    root: &'h Path,
    cgroups: ContainerCgroups,
}

impl<'h> V1Hierarchy<'h> {
    fn scan_all(roots: &'h [PathBuf]) -> Vec<Self> {
        roots.iter().map(|root| Self { root, cgroups: hierarchy::scan(root) }).collect()
    }

    /// Lists the processes in the cgroup of a container or pod, and below it.
    fn locate(&self, resolved: &Resolved) -> Option<ContainerLocation> {
        let directory = self.root.join(resolved.path_in(&self.cgroups)?);
        let mut processes = Vec::new();
        let mut open = vec![directory];
        while let Some(directory) = open.pop() {
            let list = small_file::read(&directory.join("cgroup.procs"), MAX_PROCESSES);
            let list = String::from_utf8(list.unwrap_or_default()).unwrap_or_default();
            processes.extend(list.lines().filter_map(|pid| pid.parse().ok().map(Tgid)));
            open.extend(directories(&directory));
        }
        (!processes.is_empty()).then_some(ContainerLocation::Processes(processes))
    }
}

impl Resolved {
    /// The path of the container's or pod's cgroup.
    fn path_in<'c>(&self, cgroups: &'c ContainerCgroups) -> Option<&'c PathBuf> {
        match self {
            Self::Container(container) => cgroups.containers.get(&container.id),
            Self::Pod { uid, .. } => cgroups.pods.get(uid),
        }
    }
}

/// The cgroups in a cgroup, which the kernel itself lists.
fn directories(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.filter(is_directory).map(|entry| entry.path()).take(MAX_BUNDLES).collect()
}
