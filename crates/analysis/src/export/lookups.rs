//! What rows are joined with: the program of a process at a moment, the cgroup of a thread.

use std::collections::HashMap;

use offwake_recording::{
    CgroupInfo, ContainerId, ProcessInfo, Recording, ThreadExit,
    units::{CgroupId, Tgid, Tid, Timestamp},
};

/// Looks up what was known of processes, threads and cgroups at a moment.
pub(super) struct RowLookups<'a> {
    recording: &'a Recording,
    /// The cgroups that a thread was seen in, in order of time.
    cgroups: HashMap<Tid, Vec<(Timestamp, CgroupId)>>,
    exits: HashMap<Tid, Vec<&'a ThreadExit>>,
}

impl<'a> RowLookups<'a> {
    pub(super) fn new(recording: &'a Recording) -> Self {
        let mut cgroups: HashMap<_, Vec<_>> = HashMap::new();
        for thread_event in &recording.thread_events {
            cgroups
                .entry(thread_event.tid)
                .or_default()
                .push((thread_event.at, thread_event.cgroup));
        }
        let mut exits: HashMap<_, Vec<_>> = HashMap::new();
        for exit in &recording.exits {
            exits.entry(exit.tid).or_default().push(exit);
        }
        Self { recording, cgroups, exits }
    }

    /// Returns what was read of a process last before `at`, or first after it.
    fn process(&self, tgid: Tgid, at: Timestamp) -> Option<&'a ProcessInfo> {
        let infos = &self.recording.processes;
        let later = infos.partition_point(|info| (info.tgid, info.at) <= (tgid, at));
        let before = later.checked_sub(1).and_then(|place| infos.get(place));
        before
            .filter(|info| info.tgid == tgid)
            .or_else(|| infos.get(later))
            .filter(|info| info.tgid == tgid)
    }

    /// Returns the program that a process ran.
    pub(super) fn executable(&self, tgid: Tgid, at: Timestamp) -> Option<&'a str> {
        self.process(tgid, at)?.executable.as_deref()
    }

    /// Returns the cgroup that a thread was in.
    pub(super) fn thread_cgroup(&self, tid: Tid, at: Timestamp) -> Option<CgroupId> {
        let seen = self.cgroups.get(&tid)?;
        let later = seen.partition_point(|(since, _)| *since <= at);
        seen.get(later.saturating_sub(1)).map(|(_, cgroup)| *cgroup)
    }

    /// Returns the path of a cgroup.
    pub(super) fn cgroup_path(&self, cgroup: CgroupId) -> Option<&'a str> {
        self.cgroup_info(cgroup).map(|cgroup| cgroup.path.as_str())
    }

    /// Returns the container that a cgroup belongs to.
    pub(super) fn cgroup_container(&self, cgroup: CgroupId) -> Option<&'a str> {
        self.cgroup_info(cgroup)?.container.as_ref().map(ContainerId::as_str)
    }

    /// Returns the exit of a thread that lived from `from` to `until`, if it exited by then.
    pub(super) fn thread_exit(
        &self,
        tid: Tid,
        from: Timestamp,
        until: Timestamp,
    ) -> Option<&'a ThreadExit> {
        let exits = self.exits.get(&tid)?;
        exits.iter().find(|exit| (from..=until).contains(&exit.at)).copied()
    }

    fn cgroup_info(&self, cgroup: CgroupId) -> Option<&'a CgroupInfo> {
        self.recording.cgroups.get(&cgroup)
    }
}
