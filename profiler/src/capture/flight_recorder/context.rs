//! What retained slices refer to that was in retired ones.

use std::collections::HashMap;

use offwake_recording::{
    CgroupInfo, CpuQuota, FileId, InterruptInfo, OpenFile, ProcessInfo, TagChange, TagName, TagSet,
    TagSetId,
    stream::Slice,
    units::{CgroupId, Tgid, Tid, Timestamp},
};

use super::{
    stacks::{MAX_STACKS, RetainedStacks},
    threads::{ThreadActivity, ThreadHistories},
};

/// How many of the newest files and cgroups are remembered at least, unless they take more bytes than
/// this: paths are 4 KiB at most, and others choose them.
const MAX_YOUNG: usize = 65_536;
const MAX_YOUNG_BYTES: usize = 32 << 20;

/// What retained slices may refer to. It grows with what lives on the machine, not with the time
/// that is recorded.
#[derive(Debug)]
pub(super) struct Context {
    threads: ThreadHistories,
    pub stacks: RetainedStacks,
    processes: HashMap<Tgid, ProcessInfo>,
    /// Bytes of the processes.
    process_bytes: usize,
    cgroups: AgingMap<CgroupId, CgroupInfo>,
    files: AgingMap<FileId, OpenFile>,
    interrupts: HashMap<u16, InterruptInfo>,
    /// They are bounded where they are looked up.
    quotas: HashMap<CgroupId, CpuQuota>,
    /// Of each living thread, the last that retired slices say.
    tag_changes: HashMap<Tid, TagChange>,
    tag_sets: AgingMap<TagSetId, TagSet>,
    tag_names: HashMap<(Tgid, u8), TagName>,
}

impl Context {
    pub fn new() -> Self {
        Self {
            threads: ThreadHistories::default(),
            stacks: RetainedStacks::new(MAX_STACKS),
            processes: HashMap::new(),
            process_bytes: 0,
            cgroups: AgingMap::new(CgroupInfo::memory),
            files: AgingMap::new(OpenFile::memory),
            interrupts: HashMap::new(),
            quotas: HashMap::new(),
            tag_changes: HashMap::new(),
            tag_sets: AgingMap::new(TagSet::memory),
            tag_names: HashMap::new(),
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
        for set in &slice.tag_sets {
            self.tag_sets.insert(set.id, set.clone());
        }
        for name in &slice.tag_names {
            self.tag_names.insert((name.tgid, name.key), name.clone());
        }
    }

    /// Takes over what a slice that goes leaves behind: nothing before `start` is retained any
    /// more.
    pub fn retire_slice(
        &mut self,
        activity: ThreadActivity,
        processes: Vec<ProcessInfo>,
        tag_changes: Vec<TagChange>,
        start: Timestamp,
    ) {
        for change in tag_changes {
            self.tag_changes.insert(change.tid, change);
        }
        for exit in &activity.exits {
            self.tag_changes.remove(&exit.tid);
            self.tag_names.retain(|(tgid, _), _| exit.tid.0 != tgid.0);
        }
        self.threads.add(activity);
        for process in processes {
            if self.stacks.remembers(process.tgid) {
                self.process_bytes += process.memory();
                let before = self.processes.insert(process.tgid, process);
                self.process_bytes -= before.as_ref().map_or(0, ProcessInfo::memory);
            }
        }
        let Self { stacks, processes, process_bytes, .. } = self;
        stacks.drop_before(start, |tgid| {
            let dropped = processes.remove(&tgid);
            *process_bytes -= dropped.as_ref().map_or(0, ProcessInfo::memory);
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
            tag_changes: self.tag_changes.values().copied().collect(),
            tag_sets: self.tag_sets.values().cloned().collect(),
            tag_names: self.tag_names.values().cloned().collect(),
            ..Slice::default()
        }
    }

    /// About what it takes, in bytes.
    pub fn memory(&self) -> usize {
        self.threads.memory()
            + self.stacks.memory()
            + self.process_bytes
            + PER_ENTRY * self.processes.len()
            + self.cgroups.memory()
            + self.files.memory()
            + 256 * self.interrupts.len()
            + self.tag_sets.memory()
            + 256 * (self.tag_changes.len() + self.tag_names.len())
            + self.quotas.values().map(|quota| 256 + quota.path.len()).sum::<usize>()
    }

    /// Counts the files, cgroups and sets of labels that are no longer known though a retained slice may refer
    /// to them.
    pub fn count_forgotten(&self) -> [(&'static str, u64); 3] {
        [
            ("files_forgotten", self.files.forgotten),
            ("cgroups_forgotten", self.cgroups.forgotten),
            ("tag_sets_forgotten", self.tag_sets.forgotten),
        ]
    }
}

/// What an entry of a map takes beside its value.
const PER_ENTRY: usize = 64;

/// A map that forgets its older half when it has grown too large.
#[derive(Debug)]
struct AgingMap<K, V> {
    young: Half<K, V>,
    old: Half<K, V>,
    /// Returns the bytes that a value takes.
    measure: fn(&V) -> usize,
    forgotten: u64,
}

/// A half of it, with the bytes of its values.
#[derive(Debug)]
struct Half<K, V> {
    values: HashMap<K, V>,
    bytes: usize,
}

impl<K, V> Default for Half<K, V> {
    fn default() -> Self {
        Self { values: HashMap::new(), bytes: 0 }
    }
}

impl<K: std::hash::Hash + Eq, V> AgingMap<K, V> {
    fn new(measure: fn(&V) -> usize) -> Self {
        Self { young: Half::default(), old: Half::default(), measure, forgotten: 0 }
    }

    fn insert(&mut self, key: K, value: V) {
        let Self { young, old, measure, forgotten } = self;
        let bytes = measure(&value);
        old.remove(&key, *measure);
        young.remove(&key, *measure);
        if young.values.len() >= MAX_YOUNG || young.bytes + bytes > MAX_YOUNG_BYTES {
            *forgotten += old.values.len() as u64;
            *old = std::mem::take(young);
        }
        young.bytes += bytes;
        young.values.insert(key, value);
    }

    fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.old.values.iter().chain(&self.young.values)
    }

    fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    fn memory(&self) -> usize {
        let entries = self.old.values.len() + self.young.values.len();
        self.old.bytes + self.young.bytes + PER_ENTRY * entries
    }
}

impl<K: std::hash::Hash + Eq, V> Half<K, V> {
    fn remove(&mut self, key: &K, measure: fn(&V) -> usize) {
        self.bytes -= self.values.remove(key).as_ref().map_or(0, measure);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(bytes: usize) -> OpenFile {
        OpenFile::Named("x".repeat(bytes))
    }

    fn file(inode: u64) -> FileId {
        FileId { device: 1, inode, kind: offwake_recording::FileKind::Regular }
    }

    #[test]
    fn long_paths_are_forgotten_by_their_bytes_and_counted() {
        let mut files = AgingMap::new(OpenFile::memory);
        let mut most = 0;
        for number in 0..40_000 {
            files.insert(file(number), named(4_096));
            most = most.max(files.memory());
            let texts: usize = files.values().map(OpenFile::memory).sum();
            assert!(number % 1_000 != 0 || texts <= files.memory(), "{texts}");
        }
        // Two halves, and what their entries take beside.
        assert!((MAX_YOUNG_BYTES..2 * MAX_YOUNG_BYTES + (4 << 20)).contains(&most), "{most}");
        assert!((20_000..39_000).contains(&files.forgotten), "{}", files.forgotten);
        assert!(files.iter().any(|(id, _)| *id == file(39_999)), "the newest one is gone");
    }

    #[test]
    fn what_is_found_again_takes_the_place_of_what_was_known() {
        let mut files = AgingMap::new(OpenFile::memory);
        files.insert(file(1), named(1_000));
        files.insert(file(1), named(10));
        assert_eq!(files.memory(), named(10).memory() + PER_ENTRY);
        assert_eq!((files.iter().count(), files.forgotten), (1, 0));
    }
}
