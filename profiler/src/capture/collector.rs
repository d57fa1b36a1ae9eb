//! Keeping what comes out of the rings, within a limit, and asking for what must be looked up soon.

use std::collections::{HashMap, HashSet};

use super::{Lookups, lookup::Lookup};
use crate::{
    recording::{
        End, FileId, Meta, Preemption, Recording, Sample, Sighting, SightingReason, ThreadExit,
        Wait,
        decode::{self, Record},
    },
    units::{CgroupId, Tgid, Tid, Timestamp},
};

/// How often a file is asked for: it may be gone for one thread and there for another.
const FILE_LOOKUPS: u8 = 3;
/// Files that are kept track of.
const MAX_FILES: usize = 1 << 20;
/// Cgroups that have been asked for are all forgotten when there are so many: asking again is cheap.
const MAX_CGROUPS: usize = 65_536;

/// What was lost on this side of the rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LostHere {
    pub undecodable: u64,
    pub over_memory: u64,
}

/// The records of a run.
pub(super) struct Collector {
    recording: Recording,
    lookups: Lookups,
    files: HashMap<FileId, u8>,
    processes: HashSet<Tgid>,
    cgroups: HashSet<CgroupId>,
    memory_limit: usize,
    memory: usize,
    lost: LostHere,
}

impl Collector {
    pub fn new(lookups: Lookups, memory_limit: usize) -> Self {
        Self {
            recording: Recording::default(),
            lookups,
            files: HashMap::new(),
            processes: HashSet::new(),
            cgroups: HashSet::new(),
            memory_limit,
            memory: 0,
            lost: LostHere::default(),
        }
    }

    pub fn is_full(&self) -> bool {
        self.memory >= self.memory_limit
    }

    /// Takes one record as it came.
    pub fn take(&mut self, bytes: &[u8]) {
        let Some(record) = self.decode(bytes) else { return };
        // What says who and when a thread was stays, so that the rest can be told apart; it is
        // bounded by the number of threads.
        let is_bulk = !matches!(record, Record::Sighting(_) | Record::Exit(_));
        if is_bulk && self.is_full() {
            self.lost.over_memory += 1;
        } else {
            self.keep(record);
        }
    }

    /// Takes one record from before anybody was looked at: only what others refer to is kept.
    pub fn take_early(&mut self, bytes: &[u8]) {
        match self.decode(bytes) {
            None | Some(Record::Wait(_) | Record::Preemption(_) | Record::Sample(_)) => {}
            Some(record) => self.keep(record),
        }
    }

    fn decode(&mut self, bytes: &[u8]) -> Option<Record> {
        let record = decode::decode(bytes);
        self.lost.undecodable += u64::from(record.is_err());
        record.ok()
    }

    fn keep(&mut self, record: Record) {
        match record {
            Record::Wait(wait) => {
                self.memory += size_of::<Wait>();
                self.want_file(&wait);
                self.want_cgroup(wait.cgroup, wait.tgid);
                self.recording.waits.push(*wait);
            }
            Record::Preemption(preemption) => {
                self.memory += size_of::<Preemption>();
                self.recording.preemptions.push(preemption);
            }
            Record::Stack(stack) => {
                self.memory += size_of::<u64>() * stack.addresses.len();
                self.want(Lookup::Stack(stack));
            }
            Record::Sighting(sighting) => {
                self.memory += size_of::<Sighting>();
                self.want_process(&sighting);
                self.want_cgroup(sighting.cgroup, sighting.tgid);
                self.recording.sightings.push(sighting);
            }
            Record::Exit(exit) => {
                self.memory += size_of::<ThreadExit>();
                if exit.tid.0 == exit.tgid.0 {
                    self.processes.remove(&exit.tgid);
                    self.want(Lookup::Exit { tgid: exit.tgid, at: exit.at });
                }
                self.recording.exits.push(exit);
            }
            Record::Sample(sample) => {
                self.memory += size_of::<Sample>();
                self.recording.samples.push(sample);
            }
        }
    }

    fn want(&self, lookup: Lookup) {
        // The other end is gone only if its thread has died, and that is noticed when it is joined.
        let _died = self.lookups.send(lookup);
    }

    fn want_file(&mut self, wait: &Wait) {
        let (Some(file), Some(syscall)) = (wait.file, wait.syscall) else { return };
        if self.files.len() >= MAX_FILES && !self.files.contains_key(&file) {
            return;
        }
        let asked = self.files.entry(file).or_default();
        if *asked < FILE_LOOKUPS {
            *asked += 1;
            let descriptor = (syscall.args[0] & u64::from(u32::MAX)) as u32;
            self.want(Lookup::File { file, tgid: wait.tgid, descriptor });
        }
    }

    fn want_process(&mut self, sighting: &Sighting) {
        let Sighting { tgid, parent, at, reason, kind, .. } = sighting;
        if *kind == crate::recording::ThreadKind::Kernel {
            return;
        }
        match reason {
            SightingReason::Exec => {
                self.processes.insert(*tgid);
                self.want(Lookup::Exec { tgid: *tgid, at: *at });
            }
            SightingReason::Fork if sighting.tid.0 == tgid.0 => {
                self.processes.insert(*tgid);
                self.want(Lookup::Fork { parent: *parent, child: *tgid, at: *at });
            }
            _ => {
                if self.processes.insert(*tgid) {
                    self.want(Lookup::Process { tgid: *tgid });
                }
            }
        }
    }

    /// Asks for each cgroup once. Waits are looked at as well: no sighting says that a thread moved.
    fn want_cgroup(&mut self, id: CgroupId, tgid: Tgid) {
        if self.cgroups.contains(&id) {
            return;
        }
        if self.cgroups.len() >= MAX_CGROUPS {
            self.cgroups.clear();
        }
        self.cgroups.insert(id);
        self.want(Lookup::Cgroup { id, tgid });
    }

    /// Puts the recording together, unsorted; what was looked up is still to come.
    pub fn into_recording(self, meta: Meta) -> (Recording, LostHere) {
        let mut recording = self.recording;
        recording.meta = meta;
        drop_doubles(&mut recording.waits, |wait| (wait.tid, wait.off, wait.end));
        drop_doubles(&mut recording.preemptions, |preemption| {
            (preemption.tid, preemption.off, preemption.end)
        });
        (recording, self.lost)
    }
}

/// The closing survey sends a wait that is still open; if the thread comes back while the survey is
/// under way, the same wait is sent once more, whole. The window has closed by then, and both say
/// the same of what lies inside; the open one is the one whose number the survey has counted.
fn drop_doubles<T>(list: &mut Vec<T>, key: impl Fn(&T) -> (Tid, Timestamp, End)) {
    let open: HashSet<(Tid, Timestamp)> = list
        .iter()
        .map(&key)
        .filter(|(_, _, end)| *end == End::StillOff)
        .map(|(tid, off, _)| (tid, off))
        .collect();
    list.retain(|item| {
        let (tid, off, end) = key(item);
        end == End::StillOff || !open.contains(&(tid, off))
    });
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::{Collector, Lookup, MAX_CGROUPS};
    use crate::{
        recording::{Phase, Sighting, SightingReason, ThreadKind, decode::Record},
        units::{CgroupId, Tgid, Tid, Timestamp},
    };

    fn in_cgroup(cgroup: u64) -> Record {
        Record::Sighting(Sighting {
            at: Timestamp(1),
            reason: SightingReason::Seen,
            tid: Tid(7),
            tgid: Tgid(7),
            parent: Tgid(1),
            kind: ThreadKind::User,
            in_target: true,
            phase: Phase::OnCpu,
            seq: 1,
            created: Timestamp(0),
            cgroup: CgroupId(cgroup),
            comm: "x".to_owned(),
        })
    }

    #[test]
    fn processes_and_cgroups_are_asked_for_once_and_memory_stays_flat() {
        let (lookups, wanted) = mpsc::channel();
        let mut collector = Collector::new(lookups, usize::MAX);
        for cgroup in [1, 2, 1, 2] {
            collector.keep(in_cgroup(cgroup));
        }
        let mut asked = Vec::new();
        for lookup in wanted.try_iter() {
            match lookup {
                Lookup::Process { tgid } => asked.push((u64::from(tgid.0), None)),
                Lookup::Cgroup { id, tgid } => asked.push((id.0, Some(tgid.0))),
                _ => panic!("something else was asked for"),
            }
        }
        assert_eq!(asked, [(7, None), (1, Some(7)), (2, Some(7))]);
        for cgroup in 0..2 * MAX_CGROUPS as u64 {
            collector.keep(in_cgroup(cgroup));
            assert!(collector.cgroups.len() <= MAX_CGROUPS);
        }
        assert_eq!(wanted.try_iter().count(), 2 * MAX_CGROUPS - 2);
    }
}
