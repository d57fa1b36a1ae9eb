//! Putting together what comes out of the rings, and asking for what must be looked up soon.

use std::{
    collections::{HashMap, HashSet},
    sync::mpsc::{SyncSender, TrySendError},
};

use foldhash::fast::RandomState;

use super::{
    lookup::Lookup,
    trigger::{Trip, Watch},
};
use crate::{
    decode::{self, Record},
    recording::{
        Effort, End, FileId, LossTotals, Preemption, Sample, Sighting, SightingReason, Syscall,
        ThreadExit, ThreadKind, Wait, WakeContext,
    },
    units::{CgroupId, Nanos, Tgid, Timestamp},
};

/// How often a file is asked for: it may be gone for one thread and there for another.
const FILE_LOOKUPS: u8 = 3;
/// Files that have been asked for are all forgotten when there are so many: asking again is cheap.
const MAX_FILES: usize = 1 << 20;
/// Cgroups that have been asked for are all forgotten when there are so many: asking again is cheap.
const MAX_CGROUPS: usize = 65_536;

/// What came out of the rings in a stretch of time.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// Everything before this moment has come.
    pub until: Timestamp,
    /// What was lost since the programs were loaded.
    pub loss: LossTotals,
    /// What the kernel half did since it was loaded.
    pub effort: Effort,
    /// CPU time that this process has used.
    pub own_cpu: Nanos,
    pub waits: Vec<Wait>,
    pub preemptions: Vec<Preemption>,
    pub samples: Vec<Sample>,
    pub sightings: Vec<Sighting>,
    pub exits: Vec<ThreadExit>,
}

impl Records {
    /// How many there are.
    pub fn count(&self) -> u64 {
        let Self { waits, preemptions, samples, sightings, exits, .. } = self;
        (waits.len() + preemptions.len() + samples.len() + sightings.len() + exits.len()) as u64
    }
}

/// What the kernel half counts, as it was read last.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    pub loss: LossTotals,
    pub effort: Effort,
    pub undecodable_copies: u64,
}

/// How everybody stood when they were looked at: by a closing survey.
#[derive(Clone, Debug, Default)]
pub struct OpenRecords {
    /// Waits that have not ended.
    pub waits: Vec<Wait>,
    /// Preemptions that have not.
    pub preemptions: Vec<Preemption>,
    /// Everybody.
    pub sightings: Vec<Sighting>,
}

/// What was lost on this side of the rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LostHere {
    undecodable: u64,
    over_memory: u64,
    lookups: u64,
}

/// Takes the records of a run.
pub(super) struct Collector {
    records: Records,
    lookups: SyncSender<Lookup>,
    files: HashMap<FileId, u8, RandomState>,
    processes: HashSet<Tgid, RandomState>,
    cgroups: HashSet<CgroupId, RandomState>,
    interrupts: HashSet<u16, RandomState>,
    memory_limit: Option<usize>,
    memory: usize,
    lost: LostHere,
    open: OpenRecords,
    watch: Watch,
    /// The window's first moment, once it is open.
    window_start: Option<Timestamp>,
    trips: Vec<Trip>,
}

impl Collector {
    /// `memory_limit` is what the records may take once they are read again, if they must be.
    pub fn new(lookups: SyncSender<Lookup>, memory_limit: Option<usize>, watch: Watch) -> Self {
        Self {
            records: Records::default(),
            lookups,
            files: HashMap::default(),
            processes: HashSet::default(),
            cgroups: HashSet::default(),
            interrupts: HashSet::default(),
            memory_limit,
            memory: 0,
            lost: LostHere::default(),
            open: OpenRecords::default(),
            watch,
            window_start: None,
            trips: Vec::new(),
        }
    }

    /// Waits that begin from now on can trip a trigger.
    pub fn open_at(&mut self, start: Timestamp) {
        if self.window_start.is_none() {
            self.window_start = Some(start);
            // What came before is not reported.
            self.memory = 0;
        }
    }

    /// The triggers that were tripped since the last time.
    pub fn take_trips(&mut self) -> Vec<Trip> {
        std::mem::take(&mut self.trips)
    }

    /// What a closing survey has sent.
    pub fn take_open(&mut self) -> OpenRecords {
        std::mem::take(&mut self.open)
    }

    /// Asks for something that must not be left out, and gives it back if there is no room now.
    pub fn ask(&self, lookup: Lookup) -> Option<Lookup> {
        match self.lookups.try_send(lookup) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => None,
            Err(TrySendError::Full(lookup)) => Some(lookup),
        }
    }

    pub fn is_full(&self) -> bool {
        let is_over = |limit| self.memory >= limit;
        self.window_start.is_some() && self.memory_limit.is_some_and(is_over)
    }

    /// Records since the last [`Self::cut`].
    pub fn count(&self) -> u64 {
        self.records.count()
    }

    /// Gives away what has come since the last time, and what was lost here in all.
    pub fn cut(&mut self, until: Timestamp, own_cpu: Nanos, totals: Totals) -> Records {
        let Totals { mut loss, effort, undecodable_copies } = totals;
        loss.undecodable = self.lost.undecodable + undecodable_copies;
        loss.over_memory = self.lost.over_memory;
        if self.lost.lookups > 0 {
            loss.counters.insert("lookups_over_limit".to_owned(), self.lost.lookups);
        }
        let records = std::mem::take(&mut self.records);
        // The next slice is about as large as this one.
        self.records.waits.reserve(records.waits.len());
        Records { until, own_cpu, loss, effort, ..records }
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
                self.want_file(wait.file, wait.syscall, wait.tgid);
                if let Some(wake) = &wait.wake {
                    self.want_file(wake.file, wake.syscall, wake.current.tgid);
                    self.want_interrupt(wake.context);
                }
                self.want_cgroup(wait.cgroup, wait.tgid);
                if wait.end == End::StillOff {
                    return self.open.waits.push(wait);
                }
                if let Some(start) = self.window_start
                    && let Some(trip) = self.watch.look(&wait, start)
                {
                    self.trips.push(trip);
                }
                self.records.waits.push(wait);
            }
            Record::Preemption(preemption) => {
                self.memory += size_of::<Preemption>();
                if preemption.end == End::StillOff {
                    self.open.preemptions.push(preemption);
                } else {
                    self.records.preemptions.push(preemption);
                }
            }
            Record::Stack(stack) => {
                self.memory += size_of::<u64>() * stack.addresses.len();
                self.want(Lookup::Stack(stack));
            }
            Record::Sighting(sighting) => {
                self.memory += size_of::<Sighting>();
                self.want_process(&sighting);
                self.want_cgroup(sighting.cgroup, sighting.tgid);
                self.watch.see(&sighting);
                if sighting.reason == SightingReason::Closing {
                    self.open.sightings.push(sighting);
                } else {
                    self.records.sightings.push(sighting);
                }
            }
            Record::Exit(exit) => {
                self.memory += size_of::<ThreadExit>();
                if exit.tid.0 == exit.tgid.0 {
                    self.processes.remove(&exit.tgid);
                    self.want(Lookup::Exit { tgid: exit.tgid, at: exit.at });
                }
                self.watch.forget(&exit);
                self.records.exits.push(exit);
            }
            Record::Sample(sample) => {
                self.memory += size_of::<Sample>();
                self.records.samples.push(sample);
            }
        }
    }

    fn want(&mut self, lookup: Lookup) {
        match self.lookups.try_send(lookup) {
            // The other end is gone only if its thread has died; that is noticed when it is joined.
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) => self.lost.lookups += 1,
        }
    }

    /// Asks for a file while the process that called with it still has it open.
    fn want_file(&mut self, file: Option<FileId>, syscall: Option<Syscall>, tgid: Tgid) {
        let (Some(file), Some(syscall)) = (file, syscall) else { return };
        if self.files.len() >= MAX_FILES && !self.files.contains_key(&file) {
            self.files.clear();
        }
        let asked = self.files.entry(file).or_default();
        if *asked < FILE_LOOKUPS {
            *asked += 1;
            let descriptor = (syscall.args[0] & u64::from(u32::MAX)) as u32;
            self.want(Lookup::File { file, tgid, descriptor });
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

    /// Asks for each interrupt once; where there is no room now, with its next wake.
    fn want_interrupt(&mut self, context: WakeContext) {
        let WakeContext::Hardirq(number) = context else { return };
        if !self.interrupts.contains(&number) && self.ask(Lookup::Interrupt { number }).is_none() {
            self.interrupts.insert(number);
        }
    }

    fn want_process(&mut self, sighting: &Sighting) {
        let &Sighting { tid, tgid, parent, at, reason, kind, .. } = sighting;
        if kind == ThreadKind::Kernel {
            return;
        }
        match reason {
            SightingReason::Exec => {
                self.processes.insert(tgid);
                self.want(Lookup::Exec { tgid, at });
            }
            SightingReason::Fork if tid.0 == tgid.0 => {
                self.processes.insert(tgid);
                self.want(Lookup::Fork { parent, child: tgid, at });
            }
            _ => {
                if self.processes.insert(tgid) {
                    self.want(Lookup::Process { tgid });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::{Collector, Lookup, MAX_CGROUPS, Watch};
    use crate::{
        decode::Record,
        recording::{Phase, Sighting, SightingReason, ThreadKind},
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
        let (lookups, wanted) = mpsc::sync_channel(4 * MAX_CGROUPS);
        let mut collector = Collector::new(lookups, None, Watch::default());
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
