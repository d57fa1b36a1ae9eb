//! What processes and cgroups are, beyond their numbers: looked up while they are there.
//!
//! ```text
//!  observe_process: /proc/PID/{status,exe,cmdline,cgroup}   --> ProcessInfo
//!  observe_cgroup:  /proc/PID/cgroup, else a file handle    --> CgroupInfo
//! ```

mod hierarchy;
mod look;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    hash::BuildHasher as _,
};

use hierarchy::Hierarchy;

use crate::{
    recording::{
        CgroupInfo, ProcessInfo,
        loss::{Shortfalls, count},
    },
    units::{CgroupId, Tgid},
};

/// Living processes that are remembered, cgroups that are remembered, and processes that wait to be
/// taken.
const LIMIT: usize = 65_536;

/// What was found since it was last asked for, in the order in which it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewProcesses {
    /// Processes. One that has become another program is there again; until then the newest stands.
    pub processes: Vec<ProcessInfo>,
    /// Cgroups, each once.
    pub cgroups: Vec<CgroupInfo>,
}

/// Finds out what processes and cgroups are.
pub struct Processes {
    hierarchy: Option<Hierarchy>,
    /// What was last handed out of each, as a hash.
    known: HashMap<Tgid, u64>,
    /// Ids of cgroups are not used twice (`kernfs_node::id`), so none is ever forgotten.
    cgroups: HashSet<CgroupId>,
    new: NewProcesses,
    limit: usize,
    shortfalls: Shortfalls,
}

impl Default for Processes {
    fn default() -> Self {
        Self::new()
    }
}

impl Processes {
    /// Knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            hierarchy: Hierarchy::open(),
            known: HashMap::new(),
            cgroups: HashSet::new(),
            new: NewProcesses::default(),
            limit: LIMIT,
            shortfalls: Shortfalls::new(),
        }
    }

    /// A process was seen for the first time, or has become another program: looks at it while it
    /// lives. Nothing is found of it twice unless it has changed.
    pub fn observe_process(&mut self, tgid: Tgid) {
        let too_many = self.known.len() >= self.limit && !self.known.contains_key(&tgid);
        if too_many || self.new.processes.len() >= self.limit {
            return count(&mut self.shortfalls, "processes_over_limit");
        }
        let Some(info) = look::look(tgid) else {
            self.known.remove(&tgid);
            return count(&mut self.shortfalls, "processes_gone");
        };
        let hash = self.known.hasher().hash_one((
            (info.parent, &info.executable, &info.arguments),
            (&info.cgroup, info.pid_in_container, info.uid),
        ));
        if self.known.insert(tgid, hash) != Some(hash) {
            self.new.processes.push(info);
        }
    }

    /// A process has ended: its number may be used again.
    pub fn observe_exit(&mut self, tgid: Tgid) {
        self.known.remove(&tgid);
    }

    /// A cgroup was seen on a thread of `tgid`: finds its path. Cheap when it was seen before.
    pub fn observe_cgroup(&mut self, id: CgroupId, tgid: Tgid) {
        // 0 is none at all.
        if id.0 == 0 || self.cgroups.contains(&id) {
            return;
        }
        if self.cgroups.len() >= self.limit {
            return count(&mut self.shortfalls, "cgroups_over_limit");
        }
        self.cgroups.insert(id);
        let found = self.hierarchy.as_ref().and_then(|hierarchy| hierarchy.path(id, tgid));
        match found {
            Some(path) => self.new.cgroups.push(CgroupInfo::new(id, path)),
            None => count(&mut self.shortfalls, "cgroups_unresolved"),
        }
    }

    /// What was found since the last time.
    pub fn take_new(&mut self) -> NewProcesses {
        std::mem::take(&mut self.new)
    }

    /// What could not be done so far.
    #[must_use]
    pub fn shortfalls(&self) -> &Shortfalls {
        &self.shortfalls
    }

    /// What was not taken yet, and what could not be done.
    #[must_use]
    pub fn finish(self) -> (NewProcesses, Shortfalls) {
        (self.new, self.shortfalls)
    }
}
