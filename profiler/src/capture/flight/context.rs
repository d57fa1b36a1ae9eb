//! What the kept slices refer to and what was in retired ones.

use std::collections::HashMap;

use super::{
    stacks::{MAX_STACKS, Stacks},
    threads::{Doings, Threads},
};
use crate::{
    recording::{CgroupInfo, FileId, InterruptInfo, OpenFile, ProcessInfo, stream::Slice},
    units::{CgroupId, Tgid, Timestamp},
};

/// Files and cgroups of which the newer half, at least, is remembered.
const MAX_YOUNG: usize = 65_536;

/// See above. Grows with what lives on the machine, not with the time that it records.
#[derive(Debug)]
pub(super) struct Context {
    threads: Threads,
    pub stacks: Stacks,
    processes: HashMap<Tgid, ProcessInfo>,
    cgroups: Aging<CgroupId, CgroupInfo>,
    files: Aging<FileId, OpenFile>,
    interrupts: HashMap<u16, InterruptInfo>,
}

impl Context {
    pub fn new() -> Self {
        Self {
            threads: Threads::default(),
            stacks: Stacks::new(MAX_STACKS),
            processes: HashMap::new(),
            cgroups: Aging::default(),
            files: Aging::default(),
            interrupts: HashMap::new(),
        }
    }

    /// A slice came: what others may refer to later is noted at once.
    pub fn note(&mut self, slice: &Slice, doings: &Doings) {
        for wait in &slice.waits {
            self.stacks.meet(wait.tid, wait.tgid, wait.on);
        }
        let mut exits = doings.exits.iter().peekable();
        for sighting in &doings.sightings {
            while let Some(exit) = exits.next_if(|exit| exit.at <= sighting.at) {
                self.stacks.exit(exit);
            }
            self.stacks.see(sighting);
        }
        for exit in exits {
            self.stacks.exit(exit);
        }
        for (id, stack) in &slice.stacks {
            self.stacks.add(*id, stack.clone(), slice.clocks.monotonic);
        }
        for &(space, id) in &slice.passing {
            self.stacks.pass(space, id, slice.clocks.monotonic);
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
    }

    /// A slice goes: nothing before `start` is kept any more.
    pub fn fold(&mut self, doings: Doings, processes: Vec<ProcessInfo>, start: Timestamp) {
        self.threads.fold(doings);
        for process in processes {
            if self.stacks.remembers(process.tgid) {
                self.processes.insert(process.tgid, process);
            }
        }
        let Self { stacks, processes, .. } = self;
        stacks.retire(start, |tgid| {
            processes.remove(&tgid);
        });
    }

    /// Everything but stacks, as rows of a slice.
    pub fn to_slice(&self) -> Slice {
        let (waits, preemptions, sightings) = self.threads.records();
        Slice {
            waits,
            preemptions,
            sightings,
            processes: self.processes.values().cloned().collect(),
            cgroups: self.cgroups.values().cloned().collect(),
            files: self.files.iter().map(|(id, file)| (*id, file.clone())).collect(),
            interrupts: self.interrupts.values().cloned().collect(),
            ..Slice::default()
        }
    }

    /// About what it takes, in bytes.
    pub fn memory(&self) -> usize {
        self.threads.memory()
            + self.stacks.memory()
            + 512 * self.processes.len()
            + 256 * (self.cgroups.len() + self.files.len() + self.interrupts.len())
    }
}

/// A map that forgets its older half when it has grown too large.
#[derive(Debug)]
struct Aging<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K, V> Default for Aging<K, V> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }
}

impl<K: std::hash::Hash + Eq, V> Aging<K, V> {
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
