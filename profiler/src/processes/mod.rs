//! What processes and cgroups are, beyond their numbers: looked up while they are there.
//!
//! ```text
//!  observe_process: /proc/PID/{status,exe,cmdline,cgroup}   --> ProcessInfo
//!  observe_cgroup:  /proc/PID/cgroup, else a file handle    --> CgroupInfo
//!                   the container's engine, in its own time --> the same, with names
//! ```

mod cgroup_paths;
mod device_requests;
mod io_limits;
mod proc_files;
mod quotas;
mod stopped_threads;
mod used_up;

/// Parses any bytes as each of the files that are read here, for the fuzzer.
pub(crate) fn parse_hostile(bytes: &[u8]) {
    device_requests::parse_hostile(bytes);
    io_limits::parse_hostile(bytes);
    proc_files::parse_hostile(bytes);
    quotas::parse_hostile(bytes);
    stopped_threads::parse_hostile(bytes);
}

#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    hash::BuildHasher as _,
    time::{Duration, Instant},
};

use offwake_recording::{
    CgroupInfo, ContainerId, ContainerNames, ProcessInfo,
    loss::{Diagnostics, count},
    units::{CgroupId, Tgid},
};

use cgroup_paths::CgroupHierarchy;

pub use io_limits::IoLimits;
pub use quotas::Quotas;
pub(crate) use stopped_threads::find_stopped_threads;

use crate::containers::NameLookup;

/// How many living processes and how many cgroups are remembered, and how many processes may wait
/// to be taken.
const LIMIT: usize = 65_536;
/// Bytes of what was found of processes that waits to be taken, which is each second or so; and of the
/// paths of all cgroups.
const MAX_BYTES: usize = 64 << 20;

/// What was found since the last call, in the order in which it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewProcesses {
    /// The processes. One that has become another program is there again; until then the newest
    /// stands.
    pub processes: Vec<ProcessInfo>,
    /// The cgroups. One of a container is there again when the container's name is known.
    pub cgroups: Vec<CgroupInfo>,
}

/// Finds out what processes and cgroups are.
pub struct Processes {
    hierarchy: Option<CgroupHierarchy>,
    /// A hash of what was last found of each process.
    known: HashMap<Tgid, u64>,
    /// Ids of cgroups are not used twice (`kernfs_node::id`), so none is ever forgotten.
    cgroups: HashSet<CgroupId>,
    containers: HashMap<ContainerId, KnownContainer>,
    names: NameLookup,
    new: NewProcesses,
    /// Bytes of the processes in `new`.
    waiting_bytes: usize,
    /// Bytes of all paths of cgroups.
    path_bytes: usize,
    limit: usize,
    max_bytes: usize,
    diagnostics: Diagnostics,
}

/// The cgroups of a container.
#[derive(Default)]
struct KnownContainer {
    /// None until an engine or a file names the container.
    names: Option<ContainerNames>,
    /// The cgroups that have no name yet.
    cgroups: Vec<CgroupInfo>,
}

impl Default for Processes {
    fn default() -> Self {
        Self::new()
    }
}

impl Processes {
    /// Has found nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            hierarchy: CgroupHierarchy::open(),
            known: HashMap::new(),
            cgroups: HashSet::new(),
            containers: HashMap::new(),
            names: NameLookup::default(),
            new: NewProcesses::default(),
            waiting_bytes: 0,
            path_bytes: 0,
            limit: LIMIT,
            max_bytes: MAX_BYTES,
            diagnostics: Diagnostics::new(),
        }
    }

    /// Reads what a process is while it lives, as it was seen for the first time or has become
    /// another program. Nothing is found of it twice unless it has changed.
    pub fn observe_process(&mut self, tgid: Tgid) {
        let too_many = self.known.len() >= self.limit && !self.known.contains_key(&tgid);
        if too_many || self.new.processes.len() >= self.limit {
            return count(&mut self.diagnostics, "processes_over_limit");
        }
        let Some(info) = proc_files::read_process(tgid) else {
            self.known.remove(&tgid);
            return count(&mut self.diagnostics, "processes_gone");
        };
        let bytes = info.memory();
        if self.waiting_bytes + bytes > self.max_bytes {
            return count(&mut self.diagnostics, "processes_over_limit");
        }
        let hash = self.known.hasher().hash_one((
            (info.parent, &info.executable, &info.arguments),
            (&info.cgroup, info.pid_in_container, info.uid),
        ));
        if self.known.insert(tgid, hash) != Some(hash) {
            self.waiting_bytes += bytes;
            self.new.processes.push(info);
        }
    }

    /// Reads once more what processes are that sleep, within `time`: since they were seen for the first time, they may
    /// have given themselves other titles. All of them are found again, changed or not: each has the time at which it
    /// was read.
    pub fn observe_again(&mut self, sleepers: &[Tgid], time: Duration) {
        let deadline = Instant::now() + time;
        for &tgid in sleepers {
            if Instant::now() >= deadline || self.new.processes.len() >= self.limit {
                return count(&mut self.diagnostics, "processes_over_limit");
            }
            let Some(info) = proc_files::read_sleeping_process(tgid) else { continue };
            let bytes = info.memory();
            if self.waiting_bytes + bytes > self.max_bytes {
                return count(&mut self.diagnostics, "processes_over_limit");
            }
            self.waiting_bytes += bytes;
            self.new.processes.push(info);
        }
    }

    /// Forgets a process that has ended: its number may be used again.
    pub fn observe_exit(&mut self, tgid: Tgid) {
        self.known.remove(&tgid);
    }

    /// Finds the path of a cgroup in which a thread of `tgid` was seen. Cheap when it was seen
    /// before.
    pub fn observe_cgroup(&mut self, id: CgroupId, tgid: Tgid) {
        // 0 is no cgroup at all.
        if id.0 == 0 || self.cgroups.contains(&id) {
            return;
        }
        if self.cgroups.len() >= self.limit {
            return count(&mut self.diagnostics, "cgroups_over_limit");
        }
        self.cgroups.insert(id);
        let found = self.hierarchy.as_ref().and_then(|hierarchy| hierarchy.find_path(id, tgid));
        match found {
            Some(path) if self.path_bytes + path.len() > self.max_bytes => {
                count(&mut self.diagnostics, "cgroups_over_limit");
            }
            Some(path) => {
                self.path_bytes += path.len();
                self.add_cgroup(CgroupInfo::new(id, path));
            }
            None => count(&mut self.diagnostics, "cgroups_unresolved"),
        }
    }

    fn add_cgroup(&mut self, cgroup: CgroupInfo) {
        let container = cgroup.container.clone().or_else(|| ContainerId::borne_by(&cgroup.path));
        let Some(container) = container else { return self.new.cgroups.push(cgroup) };
        if !self.containers.contains_key(&container) {
            self.names.request(container.clone());
        }
        let known = self.containers.entry(container.clone()).or_default();
        let cgroup = match &known.names {
            Some(names) => cgroup.named(container, names.clone()),
            None => {
                known.cgroups.push(cgroup.clone());
                cgroup
            }
        };
        self.new.cgroups.push(cgroup);
    }

    fn add_names(&mut self, named: Vec<(ContainerId, ContainerNames)>) {
        for (id, names) in named {
            let Some(known) = self.containers.get_mut(&id) else { continue };
            let cgroups = std::mem::take(&mut known.cgroups).into_iter();
            self.new.cgroups.extend(cgroups.map(|cgroup| cgroup.named(id.clone(), names.clone())));
            known.names = Some(names);
        }
    }

    /// What was found since the last time.
    pub fn take_new(&mut self) -> NewProcesses {
        self.add_names(self.names.drain());
        self.waiting_bytes = 0;
        std::mem::take(&mut self.new)
    }

    /// What could not be done so far.
    #[must_use]
    pub fn diagnostics(&self) -> &Diagnostics {
        &self.diagnostics
    }

    /// What was not taken yet, and what could not be done. Names of containers are waited for, for
    /// two seconds at most.
    #[must_use]
    pub fn finish(mut self) -> (NewProcesses, Diagnostics) {
        let named = std::mem::take(&mut self.names).finish();
        self.add_names(named);
        (self.new, self.diagnostics)
    }
}
