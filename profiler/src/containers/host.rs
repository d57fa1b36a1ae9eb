//! The edge: everything that is read to find containers.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::{
    Container, NotFound, Resolved, Role, State, Wanted, bundle, engine,
    hierarchy::{self, Cgroups},
    resolve, small_file,
    sockets::{Caller, sockets},
    storage,
};
use crate::{
    cgroup2,
    recording::{ContainerId, ContainerNames},
    report::text,
    units::Tgid,
};

/// Bytes of one `config.json`: they have some 10 to 50 KB.
const MAX_BUNDLE: u64 = 4 << 20;
/// Bytes of a `containers.json`.
const MAX_STORAGE: u64 = 32 << 20;
/// Bundles that are read.
const MAX_BUNDLES: usize = 16_384;
/// Characters of why an engine did not answer.
const LONGEST_WHY: usize = 120;
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
    /// Where those of v1 are.
    cgroup1: Vec<PathBuf>,
    caller: Caller,
}

/// What was wanted, found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which it is.
    pub resolved: Resolved,
    /// Where its processes are.
    pub place: Place,
}

/// Where processes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In this cgroup of the v2 hierarchy: a directory.
    Cgroup(PathBuf),
    /// In no cgroup of that hierarchy but its root, as on a host that has v1 alone: these, now.
    Processes(Vec<Tgid>),
}

/// Why a container can't be profiled.
#[derive(Debug, Error)]
pub enum FindError {
    /// Nobody knows which one it is.
    #[error("{why}{silent}")]
    NotFound {
        /// Why not.
        why: NotFound,
        /// The engines that did not answer, in words.
        silent: String,
    },
    /// It runs, and its processes are not to be seen from here.
    #[error(
        "{0} runs, but no cgroup on this machine bears its id; name its processes with --pid, or its cgroup with --cgroup"
    )]
    NoCgroup(String),
}

/// What is known of a machine's containers.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub containers: BTreeMap<ContainerId, Container>,
    /// Engines that should have answered, and why they did not.
    pub silent: Vec<String>,
}

impl Known {
    /// What is known already stands: who comes first is believed more.
    fn add(&mut self, containers: impl IntoIterator<Item = Container>) {
        for container in containers {
            self.containers.entry(container.id.clone()).or_insert(container);
        }
    }
}

impl Host {
    /// This machine, for the user who runs this program.
    #[must_use]
    pub fn this() -> Self {
        Self {
            run: PathBuf::from("/run"),
            state: PathBuf::from("/var/lib"),
            cgroup2: cgroup2::mount_point(),
            cgroup1: cgroup2::mount_points_of_v1(),
            caller: Caller::from_environment(),
        }
    }

    /// Another one, whose directories lie below `root`, for a user without engines of his own.
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

    /// Finds what is wanted.
    ///
    /// # Errors
    ///
    /// If it is not there, does not run, or could be any of several.
    pub fn find(&self, wanted: &Wanted) -> Result<Found, FindError> {
        let mut known = self.known();
        let cgroups = self.cgroup2.as_deref().map(hierarchy::scan).unwrap_or_default();
        // Where the v2 hierarchy has any container, it has all.
        let older =
            if cgroups.containers.is_empty() { Older::scan(&self.cgroup1) } else { Vec::new() };
        known.add(unnamed(&cgroups));
        older.iter().for_each(|older| known.add(unnamed(&older.cgroups)));
        let runs = |id| {
            cgroups.containers.contains_key(id)
                || older.iter().any(|older| older.cgroups.containers.contains_key(id))
        };
        for container in known.containers.values_mut() {
            // Files don't say whether their container runs.
            if container.state == State::Stopped(None) && runs(&container.id) {
                container.state = State::Running;
            }
        }
        let containers: Vec<_> = known.containers.into_values().collect();
        let resolved = resolve(wanted, &containers).map_err(|why| FindError::NotFound {
            why,
            silent: known.silent.iter().map(|silent| format!("; {silent}")).collect(),
        })?;
        let place = (self.cgroup2.as_deref())
            .and_then(|root| Some(Place::Cgroup(root.join(resolved.path_in(&cgroups)?))))
            .or_else(|| older.iter().find_map(|older| older.place(&resolved)))
            .ok_or_else(|| FindError::NoCgroup(wanted.to_string()))?;
        Ok(Found { resolved, place })
    }

    /// What engines and files say of containers. Whether those run that only files know is open.
    pub(super) fn known(&self) -> Known {
        let mut known = Known::default();
        let sockets = sockets(&self.caller, &self.run);
        let own = sockets.iter().position(|socket| self.is_callers(socket));
        let (systems, callers) = sockets.split_at(own.unwrap_or(sockets.len()));
        let user = self.caller.user;
        Self::ask(systems, &[0, user], &mut known);
        known.add(self.bundles());
        let list = self.state.join("containers/storage/overlay-containers/containers.json");
        known
            .add(small_file::read(&list, MAX_STORAGE).iter().flat_map(|list| storage::parse(list)));
        // A link in there could lead to anybody's socket.
        Self::ask(callers, &[user], &mut known);
        known
    }

    fn is_callers(&self, socket: &Path) -> bool {
        let shared = self.run.join("user");
        socket.starts_with(shared)
            || self.caller.runtime_directory.as_ref().is_some_and(|own| socket.starts_with(own))
    }

    fn ask(sockets: &[PathBuf], listeners: &[u32], known: &mut Known) {
        for socket in sockets {
            // Most machines have one of them at most.
            if !socket.exists() {
                continue;
            }
            match engine::list(socket, listeners) {
                Ok(containers) => known.add(containers),
                Err(why) => {
                    let why = text::cut(&text::terminal(&why), LONGEST_WHY);
                    known.silent.push(format!("no answer from {}: {why}", socket.display()));
                }
            }
        }
    }

    /// The bundles of containerd and CRI-O.
    fn bundles(&self) -> Vec<Container> {
        let namespaces = self.run.join("containerd/io.containerd.runtime.v2.task");
        let crio = self.run.join("containers/storage/overlay-containers");
        let of_containerd = (directories(&namespaces).into_iter())
            .flat_map(|namespace| directories(&namespace))
            .map(|bundle| (bundle.join("config.json"), bundle));
        let of_crio = (directories(&crio).into_iter())
            .map(|container| (container.join("userdata/config.json"), container));
        of_containerd
            .chain(of_crio)
            .take(MAX_BUNDLES)
            .filter_map(|(config, directory)| {
                let id = ContainerId::new(directory.file_name()?.to_str()?)?;
                bundle::parse(&id, &small_file::read(&config, MAX_BUNDLE)?)
            })
            .collect()
    }
}

/// The containers that only their cgroups tell of.
fn unnamed(cgroups: &Cgroups) -> impl Iterator<Item = Container> {
    cgroups.beyond_doubt().map(|(id, path)| Container {
        id: id.clone(),
        names: ContainerNames::default(),
        pod_uid: hierarchy::pod_of(path),
        role: Role::Workload,
        state: State::Running,
    })
}

/// A hierarchy of v1.
struct Older<'h> {
    root: &'h Path,
    cgroups: Cgroups,
}

impl<'h> Older<'h> {
    fn scan(roots: &'h [PathBuf]) -> Vec<Self> {
        roots.iter().map(|root| Self { root, cgroups: hierarchy::scan(root) }).collect()
    }

    fn place(&self, resolved: &Resolved) -> Option<Place> {
        let directory = self.root.join(resolved.path_in(&self.cgroups)?);
        let mut processes = Vec::new();
        let mut open = vec![directory];
        while let Some(directory) = open.pop() {
            let list = small_file::read(&directory.join("cgroup.procs"), MAX_PROCESSES);
            let list = String::from_utf8(list.unwrap_or_default()).unwrap_or_default();
            processes.extend(list.lines().filter_map(|pid| pid.parse().ok().map(Tgid)));
            open.extend(directories(&directory));
        }
        (!processes.is_empty()).then_some(Place::Processes(processes))
    }
}

impl Resolved {
    fn path_in<'c>(&self, cgroups: &'c Cgroups) -> Option<&'c PathBuf> {
        match self {
            Self::Container(container) => cgroups.containers.get(&container.id),
            Self::Pod { uid, .. } => cgroups.pods.get(uid),
        }
    }
}

/// The directories in one; links are none.
fn directories(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.filter(is_directory).map(|entry| entry.path()).take(MAX_BUNDLES).collect()
}
