//! What retained slices refer to that was in retired ones.

use std::collections::HashMap;

use offwake_recording::{
    CgroupInfo, CpuQuota, FileId, InterruptInfo, OpenFile, ProcessInfo,
    stream::Slice,
    units::{CgroupId, Tgid, Timestamp},
};

use super::{
    stacks::{MAX_STACKS, RetainedStacks},
    threads::{ThreadActivity, ThreadHistories},
};

/// How many of the newest files and cgroups are remembered at least.
const MAX_YOUNG: usize = 65_536;

/// What retained slices may refer to. It grows with what lives on the machine, not with the time
/// that is recorded.
#[derive(Debug)]
pub(super) struct Context {
    threads: ThreadHistories,
    pub stacks: RetainedStacks,
    processes: HashMap<Tgid, ProcessInfo>,
    cgroups: AgingMap<CgroupId, CgroupInfo>,
    files: AgingMap<FileId, OpenFile>,
    interrupts: HashMap<u16, InterruptInfo>,
    /// They are bounded where they are looked up.
    quotas: HashMap<CgroupId, CpuQuota>,
}

impl Context {
    pub fn new() -> Self {
        Self {
            threads: ThreadHistories::default(),
            stacks: RetainedStacks::new(MAX_STACKS),
            processes: HashMap::new(),
            cgroups: AgingMap::default(),
            files: AgingMap::default(),
            interrupts: HashMap::new(),
            quotas: HashMap::new(),
        }
    }

    /// Adds what later slices may refer to.
    pub fn add_slice(&mut self, slice: &Slice, activity: &ThreadActivity) {
        for wait in &slice.waits {
            self.stacks.on_thread_record(wait.tid, wait.tgid, wait.on);
        }
        let mut exits = activity.exits.iter().peekable();
        for thread_event in &activity.thread_events {
            while let Some(exit) = exits.next_if(|exit| exit.at <= thread_event.at) {
                self.stacks.on_exit(exit);
            }
            self.stacks.on_thread_event(thread_event);
        }
        for exit in exits {
            self.stacks.on_exit(exit);
        }
        for (id, stack) in &slice.stacks {
            self.stacks.add(*id, stack.clone(), slice.clocks.monotonic);
        }
        for &(space, id) in &slice.passing {
            self.stacks.retire_one(space, id, slice.clocks.monotonic);
        }
        for (id, file) in &slice.files {
            self.files.insert(*id, file.clone());
        }
        for cgroup in &slice.cgroups {
            self.cgroups.insert(cgroup.id, cgroup.clone());
        }
        for info in &slice.interrupts {
            self.interrupts.insert(info.number, info.clone());
        }
        for quota in &slice.quotas {
            self.quotas.insert(quota.cgroup, quota.clone());
        }
    }

    /// Takes over what a slice that goes leaves behind: nothing before `start` is retained any
    /// more.
    pub fn retire_slice(
        &mut self,
        activity: ThreadActivity,
        processes: Vec<ProcessInfo>,
        start: Timestamp,
    ) {
        self.threads.add(activity);
        for process in processes {
            if self.stacks.remembers(process.tgid) {
                self.processes.insert(process.tgid, process);
            }
        }
        let Self { stacks, processes, .. } = self;
        stacks.drop_before(start, |tgid| {
            processes.remove(&tgid);
        });
    }

    /// Everything but the stacks, as rows of a slice.
    pub fn to_slice(&self) -> Slice {
        let (waits, preemptions, thread_events) = self.threads.records();
        Slice {
            waits,
            preemptions,
            thread_events,
            processes: self.processes.values().cloned().collect(),
            cgroups: self.cgroups.values().cloned().collect(),
            files: self.files.iter().map(|(id, file)| (*id, file.clone())).collect(),
            interrupts: self.interrupts.values().cloned().collect(),
            quotas: self.quotas.values().cloned().collect(),
            ..Slice::default()
        }
    }

    /// About what it takes, in bytes.
    pub fn memory(&self) -> usize {
        self.threads.memory()
            + self.stacks.memory()
            + 512 * self.processes.len()
            + 256
                * (self.cgroups.len()
                    + self.files.len()
                    + self.interrupts.len()
                    + self.quotas.len())
    }
}

/// A map that forgets its older half when it has grown too large.
#[derive(Debug)]
struct AgingMap<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K, V> Default for AgingMap<K, V> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }
}

impl<K: std::hash::Hash + Eq, V> AgingMap<K, V> {
    fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= MAX_YOUNG && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&key);
        self.young.insert(key, value);
    }

    fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.old.iter().chain(&self.young)
    }

    fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    fn len(&self) -> usize {
        self.old.len() + self.young.len()
    }
}
