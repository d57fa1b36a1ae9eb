//! Decodes what comes out of the rings, gathers it in batches, and requests what must be looked up
//! while it is there.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{SyncSender, TrySendError},
    },
};

use foldhash::fast::RandomState;
use offwake_analysis::blame;
use offwake_recording::{
    End, FileId, FileLockEvent, LossTotals, Marker, Preemption, ProfilerCost, Sample, SummedWaits,
    TagChange, ThreadEvent, ThreadEventReason, ThreadExit, ThreadKind, Throttle, Wait, WakeContext,
    units::{CgroupId, Nanos, Tgid, Tid, Timestamp},
};

use super::{
    marker_texts::MarkerTexts,
    messages::{LongWait, Lookup, OpenRecords, RecordBatch},
    trigger::TriggerMatcher,
};
use crate::{
    decode::{self, Record, SumEnd},
    fuse_servers, polled_files,
};

/// How often a file is requested: it may be gone for one thread and there for another.
const FILE_LOOKUPS: u8 = 3;
/// Files that were requested are all forgotten when there are so many: another request is cheap.
const MAX_FILES: usize = 1 << 20;
/// Cgroups that were requested are all forgotten when there are so many: another request is cheap.
const MAX_CGROUPS: usize = 65_536;

/// The kernel half's counters, as they were read last.
#[derive(Clone, Debug, Default)]
pub(super) struct KernelTotals {
    pub loss: LossTotals,
    pub profiler_cost: ProfilerCost,
    pub undecodable_copies: u64,
}

/// Counts of what was lost after it had left the rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LostHere {
    undecodable: u64,
    over_memory: u64,
    lookups: u64,
    markers: u64,
    tags_refused: u64,
}

/// Gathers the records of a run.
pub(super) struct Collector {
    batch: RecordBatch,
    lookups: SyncSender<Lookup>,
    files: HashMap<FileId, u8, RandomState>,
    processes: HashSet<Tgid, RandomState>,
    cgroups: HashSet<CgroupId, RandomState>,
    quotas: HashSet<CgroupId, RandomState>,
    interrupts: HashSet<u16, RandomState>,
    memory_limit: Option<usize>,
    memory: usize,
    /// Bytes of what was looked up, which are kept as long as the records.
    looked_up_bytes: Arc<AtomicUsize>,
    lost: LostHere,
    open: OpenRecords,
    triggers: TriggerMatcher,
    texts: MarkerTexts,
    /// The window's first moment, once it is open.
    window_start: Option<Timestamp>,
    long_waits: Vec<LongWait>,
}

impl Collector {
    /// `memory_limit` is what the records and all that was looked up may take once they are read again, if
    /// they must be.
    pub fn new(
        lookups: SyncSender<Lookup>,
        memory_limit: Option<usize>,
        looked_up_bytes: Arc<AtomicUsize>,
        triggers: TriggerMatcher,
    ) -> Self {
        Self {
            batch: RecordBatch::default(),
            lookups,
            files: HashMap::default(),
            processes: HashSet::default(),
            cgroups: HashSet::default(),
            quotas: HashSet::default(),
            interrupts: HashSet::default(),
            memory_limit,
            memory: 0,
            looked_up_bytes,
            lost: LostHere::default(),
            open: OpenRecords::default(),
            triggers,
            texts: MarkerTexts::default(),
            window_start: None,
            long_waits: Vec::new(),
        }
    }

    /// Opens the window: waits can be too long for a trigger from now on.
    pub fn open_window(&mut self, start: Timestamp) {
        if self.window_start.is_none() {
            self.window_start = Some(start);
            // Records from before the window are not in the recording.
            self.memory = 0;
            self.request(Lookup::WindowOpened);
        }
    }

    /// The waits that were too long for a trigger since the last call.
    pub fn take_long_waits(&mut self) -> Vec<LongWait> {
        std::mem::take(&mut self.long_waits)
    }

    /// The waits of the last survey that are too long for a trigger already, each once, and none before
    /// `quiet_until`. The survey's records are dropped.
    pub fn take_long_open_waits(&mut self, quiet_until: Timestamp) -> Vec<LongWait> {
        let open = std::mem::take(&mut self.open);
        let Some(start) = self.window_start else { return Vec::new() };
        self.triggers.match_open_waits(&open.waits, start, quiet_until)
    }

    /// Takes the records that the last survey has sent. Who serves the filesystems that may be waited
    /// for is requested, and so are the files that are polled and not known.
    pub fn take_open_records(&mut self) -> OpenRecords {
        let open = std::mem::take(&mut self.open);
        if open.waits.iter().any(fuse_servers::may_be_for_filesystem) {
            self.request(Lookup::FuseServers);
        }
        let polls = polled_files::select_open_polls(&open.waits);
        if !polls.is_empty() {
            self.request(Lookup::PolledFiles(polls));
        }
        open
    }

    /// Requests something that must not be left out, and returns it if there is no room for it now.
    pub fn try_request(&self, lookup: Lookup) -> Option<Lookup> {
        match self.lookups.try_send(lookup) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => None,
            Err(TrySendError::Full(lookup)) => Some(lookup),
        }
    }

    pub fn is_full(&self) -> bool {
        let memory = self.memory + self.looked_up_bytes.load(Ordering::Relaxed);
        let is_over = |limit| memory >= limit;
        self.window_start.is_some() && self.memory_limit.is_some_and(is_over)
    }

    /// How many records there are since the last [`Self::take_batch`].
    pub fn len(&self) -> u64 {
        self.batch.len()
    }

    /// Returns what has come since the last time, and what was lost here in all.
    pub fn take_batch(
        &mut self,
        until: Timestamp,
        own_cpu: Nanos,
        totals: KernelTotals,
    ) -> RecordBatch {
        let KernelTotals { mut loss, profiler_cost, undecodable_copies } = totals;
        loss.undecodable = self.lost.undecodable + undecodable_copies;
        loss.over_memory = self.lost.over_memory;
        if self.lost.lookups > 0 {
            loss.counters.insert("lookups_over_limit".to_owned(), self.lost.lookups);
        }
        if self.lost.markers > 0 {
            loss.counters.insert("markers_refused".to_owned(), self.lost.markers);
        }
        if self.lost.tags_refused > 0 {
            *loss.counters.entry("tags_refused".to_owned()).or_default() += self.lost.tags_refused;
        }
        let batch = std::mem::take(&mut self.batch);
        // The next one is about as large as this one.
        self.batch.waits.reserve(batch.waits.len());
        RecordBatch { until, own_cpu, loss, profiler_cost, ..batch }
    }

    /// Adds one record as it came out of a ring.
    pub fn add_record(&mut self, bytes: &[u8]) {
        let Some(record) = self.decode(bytes) else { return };
        // Records of who a thread is and when it ended are added in any case, so that the rest can
        // be told apart; the number of threads bounds them.
        let is_bulk = !matches!(record, Record::ThreadEvent(_) | Record::Exit(_));
        if is_bulk && self.is_full() {
            self.lost.over_memory += 1;
        } else {
            self.add_decoded(record);
        }
    }

    /// Adds one record from before the opening survey: only what others refer to is kept, and in which ranges
    /// threads are.
    pub fn add_early_record(&mut self, bytes: &[u8]) {
        match self.decode(bytes) {
            None
            | Some(
                Record::Wait(_)
                | Record::Preemption(_)
                | Record::Summed(..)
                | Record::Throttle(_)
                | Record::Sample(_),
            ) => {}
            Some(record) => self.add_decoded(record),
        }
    }

    fn decode(&mut self, bytes: &[u8]) -> Option<Record> {
        let record = decode::decode(bytes);
        self.lost.undecodable += u64::from(record.is_err());
        record.ok()
    }

    fn add_decoded(&mut self, record: Record) {
        match record {
            Record::Wait(wait) => {
                self.memory += size_of::<Wait>();
                let waited = wait.on.since(wait.off);
                let named = blame::descriptor(wait.syscall.as_ref(), wait.polled_fd, wait.file);
                self.request_file(named, Some(waited), wait.tgid);
                if let Some(wake) = &wait.wake {
                    let named = blame::descriptor(wake.syscall.as_ref(), None, wake.file);
                    self.request_file(named, None, wake.current.tgid);
                    let ready = wake.ready.map(|ready| (ready.descriptor, ready.file));
                    self.request_file(ready, None, wait.tgid);
                    self.request_interrupt(wake.context);
                }
                self.request_cgroup(wait.cgroup, wait.tgid);
                if wait.end == End::StillOff {
                    return self.open.waits.push(wait);
                }
                if let Some(start) = self.window_start
                    && let Some(long) = self.triggers.match_wait(&wait, start)
                {
                    self.long_waits.push(long);
                }
                self.batch.waits.push(wait);
            }
            Record::Preemption(preemption) => {
                self.memory += size_of::<Preemption>();
                if preemption.end == End::StillOff {
                    self.open.preemptions.push(preemption);
                } else {
                    self.batch.preemptions.push(preemption);
                }
            }
            Record::Summed(summed, end) => {
                self.memory += size_of::<SummedWaits>();
                match end {
                    SumEnd::Open => self.open.summed.push(summed),
                    SumEnd::Closed => self.batch.summed.push(summed),
                }
            }
            Record::Throttle(throttle) => {
                self.memory += size_of::<Throttle>();
                self.request_quota(throttle.cgroup, throttle.tid);
                self.batch.throttles.push(throttle);
            }
            Record::Stack(stack) => {
                self.memory += size_of::<u64>() * stack.addresses.len();
                self.request(Lookup::Stack(stack));
            }
            Record::ThreadEvent(thread_event) => {
                self.memory += size_of::<ThreadEvent>();
                self.request_process(&thread_event);
                self.request_cgroup(thread_event.cgroup, thread_event.tgid);
                self.triggers.record_name(&thread_event);
                if thread_event.reason == ThreadEventReason::Closing {
                    self.open.thread_events.push(thread_event);
                } else {
                    self.batch.thread_events.push(thread_event);
                }
            }
            Record::Exit(exit) => {
                self.memory += size_of::<ThreadExit>();
                if exit.tid.0 == exit.tgid.0 {
                    self.processes.remove(&exit.tgid);
                    self.request(Lookup::Exit { tgid: exit.tgid, at: exit.at });
                }
                self.triggers.forget_thread(&exit);
                self.batch.exits.push(exit);
            }
            Record::Marker(marker) => {
                self.memory += size_of::<Marker>();
                let marker = self.texts.share_texts(marker);
                self.batch.markers.push(marker);
            }
            Record::FileLock(event) => {
                self.memory += size_of::<FileLockEvent>();
                self.batch.file_lock_events.push(event);
            }
            Record::RefusedMarker => self.lost.markers += 1,
            Record::Sample(sample) => {
                self.memory += size_of::<Sample>();
                self.batch.samples.push(sample);
            }
            Record::TagSet(None) => self.lost.tags_refused += 1,
            Record::TagSet(Some(set)) => {
                self.memory += set.memory();
                self.batch.tag_sets.push(set);
            }
            Record::TagChange(change) => {
                self.memory += size_of::<TagChange>();
                self.batch.tag_changes.push(change);
            }
        }
    }

    fn request(&mut self, lookup: Lookup) {
        match self.lookups.try_send(lookup) {
            // The other end is gone only if its thread has died; that is noticed when it is joined.
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) => self.lost.lookups += 1,
        }
    }

    /// Requests a file, by its descriptor, while the process that called with it still has it open.
    fn request_file(&mut self, file: Option<(u32, FileId)>, waited: Option<Nanos>, tgid: Tgid) {
        let Some((descriptor, file)) = file else { return };
        if self.files.len() >= MAX_FILES && !self.files.contains_key(&file) {
            self.files.clear();
        }
        let requests = self.files.entry(file).or_default();
        if *requests < FILE_LOOKUPS {
            *requests += 1;
            self.request(Lookup::File { file, tgid, descriptor, waited });
        }
    }

    /// Requests each cgroup once. Waits are looked at as well: no thread event says that a thread
    /// moved.
    fn request_cgroup(&mut self, id: CgroupId, tgid: Tgid) {
        if self.cgroups.contains(&id) {
            return;
        }
        if self.cgroups.len() >= MAX_CGROUPS {
            self.cgroups.clear();
        }
        self.cgroups.insert(id);
        self.request(Lookup::Cgroup { id, tgid });
    }

    /// Requests each cgroup's quota once; where there is no room now, with its next throttle.
    fn request_quota(&mut self, cgroup: CgroupId, tid: Tid) {
        if cgroup.0 == 0 || self.quotas.contains(&cgroup) {
            return;
        }
        if self.quotas.len() >= MAX_CGROUPS {
            self.quotas.clear();
        }
        if self.try_request(Lookup::Quota { cgroup, tid }).is_none() {
            self.quotas.insert(cgroup);
        }
    }

    /// Requests each interrupt once; where there is no room now, with its next wake.
    fn request_interrupt(&mut self, context: WakeContext) {
        let WakeContext::Hardirq(number) = context else { return };
        if !self.interrupts.contains(&number)
            && self.try_request(Lookup::Interrupt { number }).is_none()
        {
            self.interrupts.insert(number);
        }
    }

    fn request_process(&mut self, thread_event: &ThreadEvent) {
        let &ThreadEvent { tid, tgid, parent, at, reason, kind, .. } = thread_event;
        if kind == ThreadKind::Kernel {
            return;
        }
        match reason {
            ThreadEventReason::Exec => {
                self.processes.insert(tgid);
                self.request(Lookup::Exec { tgid, at });
            }
            ThreadEventReason::Fork if tid.0 == tgid.0 => {
                self.processes.insert(tgid);
                self.request(Lookup::Fork { parent, child: tgid, at });
            }
            _ => {
                if self.processes.insert(tgid) {
                    self.request(Lookup::Process { tgid });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    };

    use super::{Collector, Lookup, MAX_CGROUPS, TriggerMatcher};
    use crate::decode::Record;
    use offwake_recording::{
        Phase, ThreadEvent, ThreadEventReason, ThreadKind,
        units::{CgroupId, Tgid, Tid, Timestamp},
    };

    fn in_cgroup(cgroup: u64) -> Record {
        Record::ThreadEvent(ThreadEvent {
            at: Timestamp(1),
            reason: ThreadEventReason::Seen,
            tid: Tid(7),
            old_tid: None,
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

    /// Who begins thousands of programs with long arguments fills the memory of a profile as its records do.
    #[test]
    fn what_was_looked_up_counts_for_the_limit_of_memory() {
        let (lookups, _wanted) = mpsc::sync_channel(4);
        let looked_up = Arc::new(AtomicUsize::new(0));
        let mut collector =
            Collector::new(lookups, Some(1_000), Arc::clone(&looked_up), TriggerMatcher::default());
        collector.open_window(Timestamp(1));
        assert!(!collector.is_full());
        looked_up.store(1_000, Ordering::Relaxed);
        assert!(collector.is_full());
    }

    #[test]
    fn processes_and_cgroups_are_asked_for_once_and_memory_stays_flat() {
        let (lookups, wanted) = mpsc::sync_channel(4 * MAX_CGROUPS);
        let mut collector =
            Collector::new(lookups, None, Arc::default(), TriggerMatcher::default());
        for cgroup in [1, 2, 1, 2] {
            collector.add_decoded(in_cgroup(cgroup));
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
            collector.add_decoded(in_cgroup(cgroup));
            assert!(collector.cgroups.len() <= MAX_CGROUPS);
        }
        assert_eq!(wanted.try_iter().count(), 2 * MAX_CGROUPS - 2);
    }
}
