//! The slices that are retained, and when they go.

use std::{collections::VecDeque, sync::Arc};

use offwake_recording::{
    Clocks, LossTotals, Meta, ProcessInfo, ProfilerCost, TagChange, Window,
    stream::Slice,
    units::{Nanos, StackId, Timestamp},
};

use super::{context::Context, snapshot::RetainedSnapshot, threads::ThreadActivity};
use crate::capture::{
    messages::{SnapshotEnd, WaitCounts},
    sink::{EncodedSlice, SliceSummary},
};

/// How much is retained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// The slices of at least this time, and up to a slice's length more.
    Time(Nanos),
    /// As many slices as fit into so many bytes, as they are stored.
    Bytes(usize),
}

/// What a slice leaves behind when it goes.
#[derive(Debug)]
struct SliceDigest {
    activity: ThreadActivity,
    processes: Vec<ProcessInfo>,
    /// Bytes of the processes.
    process_bytes: usize,
    tag_changes: Vec<TagChange>,
    /// The latest time in any of its records.
    newest: Timestamp,
    totals: RunningTotals,
}

/// What was counted by the end of a slice, from the recording's beginning on.
#[derive(Clone, Debug, Default)]
struct RunningTotals {
    loss: LossTotals,
    profiler_cost: ProfilerCost,
    own_cpu: Nanos,
    clocks: Clocks,
}

#[derive(Debug)]
struct RetainedSlice {
    number: u64,
    bytes: Arc<Vec<u8>>,
    summary: SliceSummary,
    counts: WaitCounts,
    digest: SliceDigest,
}

/// The last slices of a recording, and what they refer to.
#[derive(Debug)]
pub struct RetainedSlices {
    retention: Retention,
    max_memory: usize,
    slices: VecDeque<RetainedSlice>,
    /// Bytes of the slices.
    encoded: usize,
    /// Bytes of their digests.
    digests: usize,
    context: Context,
    /// Where the retained time begins; none while no slice has gone.
    start: Option<(Timestamp, RunningTotals)>,
    /// How many slices went before their time, for want of memory.
    shortened: u64,
}

impl RetainedSlices {
    /// Retains nothing yet, and later about `max_memory` bytes at most.
    #[must_use]
    pub fn new(retention: Retention, max_memory: usize) -> Self {
        Self {
            retention,
            max_memory,
            slices: VecDeque::new(),
            encoded: 0,
            digests: 0,
            context: Context::new(),
            start: None,
            shortened: 0,
        }
    }

    /// Adds a slice with its rows. The oldest slices go if there is too much.
    pub fn append(&mut self, encoded: EncodedSlice, content: &Slice) {
        let digest = SliceDigest::new(content);
        self.context.add_slice(content, &digest.activity);
        let target_waits = content.waits.iter().filter(|wait| wait.in_target).count() as u64;
        let counts = WaitCounts { waits: content.waits.len() as u64, target_waits };
        self.encoded += encoded.bytes.len();
        self.digests += digest.memory();
        let (number, bytes) = (content.number, Arc::new(encoded.bytes));
        let summary = encoded.summary;
        self.slices.push_back(RetainedSlice { number, bytes, summary, counts, digest });
        while self.slices.len() > 1 {
            let is_old = self.front_is_old();
            if !is_old && self.memory() <= self.max_memory {
                break;
            }
            self.shortened += u64::from(!is_old);
            self.retire_oldest();
        }
    }

    fn front_is_old(&self) -> bool {
        let (Some(front), Some(back)) = (self.slices.front(), self.slices.back()) else {
            return false;
        };
        match self.retention {
            Retention::Time(time) => front.summary.until + time <= back.summary.until,
            Retention::Bytes(bytes) => self.encoded > bytes,
        }
    }

    fn retire_oldest(&mut self) {
        let Some(slice) = self.slices.pop_front() else { return };
        self.encoded -= slice.bytes.len();
        self.digests -= slice.digest.memory();
        let SliceDigest { activity, processes, tag_changes, newest, totals, .. } = slice.digest;
        let before = self.start.as_ref().map_or(Timestamp(0), |(at, _)| *at);
        // No record before this is missing from the slices that are left but those of the context.
        let start = before.max(newest).max(slice.summary.until);
        self.context.retire_slice(activity, processes, tag_changes, start);
        self.start = Some((start, totals));
    }

    /// Stacks that were dropped since the last call, and that the kernel half must send again when
    /// they come up again.
    pub fn take_dropped_stacks(&mut self) -> Vec<StackId> {
        self.context.stacks.take_dropped()
    }

    /// About what is held, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.encoded + self.digests + self.context.memory()
    }

    /// What is retained now, with what is known of its end: a recording of its own.
    #[must_use]
    pub fn snapshot(&self, end: SnapshotEnd) -> RetainedSnapshot {
        let SnapshotEnd { meta, open, loss, profiler_cost, own_cpu, clocks, next_number } = end;
        let window = meta.window;
        let opened = (window.start, RunningTotals::default());
        let (start, totals) = self.start.as_ref().unwrap_or(&opened);
        let start = (*start).clamp(window.start, window.end);
        let meta = Meta {
            window: Window { start, end: window.end },
            own_cpu: own_cpu - totals.own_cpu,
            ..meta
        };
        let mut loss = loss.since(&totals.loss);
        if let Some((first, last)) = loss.ring_full {
            loss.ring_full = (last >= start).then(|| (first.max(start), last));
        }
        let is_short = match self.retention {
            Retention::Time(time) => meta.window.length() < time,
            Retention::Bytes(bytes) => self.encoded < bytes,
        };
        if self.shortened > 0 && is_short {
            loss.counters.insert("kept_shortened".to_owned(), self.shortened);
        }
        let over_limit = self.context.stacks.over_limit();
        if over_limit > 0 {
            loss.counters.insert("stacks_forgotten".to_owned(), over_limit);
        }
        for (name, forgotten) in self.context.count_forgotten() {
            if forgotten > 0 {
                loss.counters.insert(name.to_owned(), forgotten);
            }
        }
        let first_number = self.slices.front().map_or(next_number, |slice| slice.number);
        let first = first_number.checked_sub(1).map(|number| Slice {
            number,
            until: start,
            clocks: totals.clocks,
            meta: Some(meta.clone()),
            ..self.context.to_slice()
        });
        let mut counts = WaitCounts {
            waits: open.waits.len() as u64,
            target_waits: open.waits.iter().filter(|wait| wait.in_target).count() as u64,
        };
        for slice in &self.slices {
            counts.waits += slice.counts.waits;
            counts.target_waits += slice.counts.target_waits;
        }
        RetainedSnapshot {
            first,
            slices: self.slices.iter().map(|slice| Arc::clone(&slice.bytes)).collect(),
            stacks: self.context.stacks.to_map().into_iter().collect(),
            next_number,
            counts,
            last: Slice {
                until: meta.window.end,
                clocks,
                own_cpu: meta.own_cpu,
                loss,
                profiler_cost: profiler_cost.since(totals.profiler_cost),
                waits: open.waits,
                preemptions: open.preemptions,
                summed: open.summed,
                thread_events: open.thread_events,
                file_locks: open.file_locks,
                fuse_servers: open.fuse_servers,
                lock_owners: open.lock_owners,
                pipe_holders: open.pipe_holders,
                stopped_threads: open.stopped_threads,
                disk_uses: open.disk_uses,
                io_limits: open.io_limits,
                awaited_children: open.awaited_children,
                filesystems: open.filesystems,
                meta: Some(meta),
                ..Slice::default()
            },
        }
    }
}

impl SliceDigest {
    fn new(slice: &Slice) -> Self {
        let mut activity = ThreadActivity {
            thread_events: slice.thread_events.clone(),
            exits: slice.exits.clone(),
            ..ThreadActivity::default()
        };
        activity.thread_events.sort_by_key(|thread_event| thread_event.at);
        activity.exits.sort_by_key(|exit| exit.at);
        activity.add(&slice.waits, &slice.preemptions);
        let newest = (slice.waits.iter().map(|wait| wait.on))
            .chain(slice.preemptions.iter().map(|preemption| preemption.on))
            .chain(slice.samples.iter().map(|sample| sample.at))
            .chain(slice.markers.iter().map(|marker| marker.at))
            .chain(slice.file_lock_events.iter().map(|event| event.at))
            .chain(activity.thread_events.last().map(|thread_event| thread_event.at))
            .chain(activity.exits.last().map(|exit| exit.at))
            .max();
        Self {
            activity,
            process_bytes: slice.processes.iter().map(ProcessInfo::memory).sum(),
            processes: slice.processes.clone(),
            tag_changes: slice.tag_changes.clone(),
            newest: newest.unwrap_or_default(),
            totals: RunningTotals {
                loss: slice.loss.clone(),
                profiler_cost: slice.profiler_cost,
                own_cpu: slice.own_cpu,
                clocks: slice.clocks,
            },
        }
    }

    fn memory(&self) -> usize {
        size_of::<RetainedSlice>()
            + self.activity.memory()
            + self.process_bytes
            + size_of::<TagChange>() * self.tag_changes.len()
    }
}

#[cfg(test)]
mod tests {
    use offwake_recording::units::Tgid;

    use super::*;

    const KIB: usize = 1 << 10;

    /// A process with so many bytes of arguments.
    fn process(number: u32, bytes: usize) -> ProcessInfo {
        ProcessInfo {
            tgid: Tgid(number),
            at: Timestamp(1),
            parent: None,
            executable: None,
            arguments: vec!["x".repeat(bytes)],
            cgroup: None,
            pid_in_container: None,
            uid: None,
        }
    }

    /// Each of a hundred slices has a hundred processes, whose texts are longer than all their other bytes.
    #[test]
    fn processes_with_long_texts_take_no_more_memory_than_allowed() {
        const MOST: usize = 16 << 20;
        let mut kept = RetainedSlices::new(Retention::Time(Nanos(1 << 60)), MOST);
        for number in 0..100_u32 {
            let until = Timestamp(1_000 + u64::from(number));
            let first = 100 * number;
            let processes = (first..first + 100).map(|number| process(number, 12 * KIB)).collect();
            let slice = Slice { number: number.into(), until, processes, ..Slice::default() };
            let summary = SliceSummary { until, records: 0 };
            kept.append(EncodedSlice { bytes: Vec::new(), summary }, &slice);
            let digests = kept.slices.iter().map(|slice| &slice.digest);
            let texts: usize = digests.map(|digest| 12 * KIB * digest.processes.len()).sum();
            assert!(texts <= kept.memory() && kept.memory() <= MOST, "{texts}, {}", kept.memory());
        }
        assert!(kept.shortened > 80, "{}", kept.shortened);
    }
}
