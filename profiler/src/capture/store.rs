//! The store thread: turns what was recorded into slices and hands them to the sink.

#[cfg(test)]
mod tests;

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{atomic::Ordering, mpsc::Receiver},
};

use offwake_recording::{
    ClosedBy, End, Meta, Unanswered, Window,
    loss::Diagnostics,
    stream::{self, Encoder, Slice},
    units::{Nanos, StackId, Timestamp},
};

use super::{
    CaptureError, clocks,
    control::Control,
    messages::{
        FrameNames, LookupResults, OpenRecords, RecordBatch, RecordingEnd, RecordingStart,
        SnapshotEnd, SnapshotReason, StoreMessage, SurveyedSnapshot, WaitCounts,
    },
    sink::{NewSlice, Sink, SliceSummary},
};
use crate::own_threads::{self, OwnThread};

/// Has the kernel half send stacks again that the sink has dropped.
pub(super) type ResendStacks = Box<dyn FnMut(&[StackId]) + Send>;

/// Puts slices together.
pub(super) struct Store<S> {
    encoder: Encoder,
    sink: S,
    start: Option<RecordingStart>,
    next: Slice,
    /// How many slices the sink has.
    stored: u64,
    /// The end of the time that they cover.
    until: Timestamp,
    failed: Option<io::Error>,
    /// What closed the window, if something has failed.
    closed_by_failure: ClosedBy,
    /// Records that the sink did not take.
    unwritten: u64,
    counts: WaitCounts,
    target_thread_events: u64,
    diagnostics: Diagnostics,
    unanswered: Vec<Unanswered>,
    resend: ResendStacks,
}

/// What a recording ends with: names of functions, and how everybody stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It is there, or nothing had begun.
    Written,
    /// It could not be written.
    Lost,
}

/// A recording that was written.
#[derive(Debug)]
pub struct Written<S> {
    /// Where the recording went.
    pub sink: S,
    /// How many waits the recording has.
    pub counts: WaitCounts,
    /// How often a thread of the target was looked at: 0 if none was there.
    pub target_thread_events: u64,
    /// How long the recording's window is.
    pub length: Nanos,
    /// What kept the recording from being whole.
    pub failed: Option<io::Error>,
    /// Whether it has its end.
    pub ending: Ending,
    /// What failed in the profiler itself, and ended the run. What was recorded before is whole.
    pub broken: Option<CaptureError>,
}

impl<S: Sink> Store<S> {
    pub fn new(sink: S, resend: ResendStacks) -> io::Result<Self> {
        Ok(Self {
            encoder: Encoder::new().map_err(io::Error::other)?,
            sink,
            start: None,
            next: Slice::default(),
            stored: 0,
            until: Timestamp(0),
            failed: None,
            closed_by_failure: ClosedBy::DiskFull,
            unwritten: 0,
            counts: WaitCounts::default(),
            target_thread_events: 0,
            diagnostics: Diagnostics::new(),
            unanswered: Vec::new(),
            resend,
        })
    }

    /// Stores what comes until nothing can come any more.
    pub fn run(mut self, messages: &Receiver<StoreMessage>, control: &Control) -> Self {
        for message in messages {
            if matches!(message, StoreMessage::End) {
                break;
            }
            // A mistake in here costs what it was made with, and not what is stored already.
            let stored = catch_unwind(AssertUnwindSafe(|| {
                own_threads::pass();
                if let StoreMessage::LookupResults(results) = &message {
                    control.looked_up_bytes.fetch_add(results.memory(), Ordering::Relaxed);
                }
                self.store(message);
            }));
            if stored.is_err() {
                self.closed_by_failure = ClosedBy::Failed;
                let error = || io::Error::other(CaptureError::Thread(OwnThread::Store));
                self.failed.get_or_insert_with(error);
            }
            if self.failed.is_some() {
                control.sink_failed.store(true, Ordering::Relaxed);
            }
        }
        self
    }

    fn store(&mut self, message: StoreMessage) {
        match message {
            StoreMessage::Start(start) => self.begin(*start),
            StoreMessage::Records(records) => self.add_batch(*records),
            StoreMessage::LookupResults(results) => self.add_results(*results),
            StoreMessage::Snapshot(snapshot, names) => self.take_snapshot(*snapshot, names),
            StoreMessage::End => {}
        }
    }

    fn begin(&mut self, start: RecordingStart) {
        self.next.meta = Some(start.meta.clone());
        self.until = start.meta.window.start;
        self.next.until = self.until;
        self.start = Some(start);
        if let Err(error) = self.sink.begin(self.encoder.header()) {
            self.failed = Some(error);
        }
        self.flush();
    }

    fn add_batch(&mut self, records: RecordBatch) {
        self.next.until = records.until;
        if let Some(start) = &self.start {
            self.next.profiler_cost = records.profiler_cost.since(start.profiler_cost);
            self.next.loss = records.loss.clone().since(&start.losses);
            self.next.loss.add_diagnostics(&self.diagnostics);
            self.next.loss.unanswered.clone_from(&self.unanswered);
            self.next.own_cpu = records.own_cpu - start.own_cpu;
        }
        self.add_records(records);
        // Records that come before the window opens are kept back: the recording has no file
        // before.
        if self.start.is_some() {
            self.flush();
        }
    }

    fn add_records(&mut self, records: RecordBatch) {
        for wait in &records.waits {
            self.counts.waits += 1;
            self.counts.target_waits += u64::from(wait.in_target);
        }
        let seen = records.thread_events.iter().filter(|thread_event| thread_event.in_target);
        self.target_thread_events += seen.count() as u64;
        append(&mut self.next.waits, records.waits);
        append(&mut self.next.preemptions, records.preemptions);
        append(&mut self.next.summed, records.summed);
        append(&mut self.next.throttles, records.throttles);
        append(&mut self.next.detail, records.detail);
        append(&mut self.next.samples, records.samples);
        append(&mut self.next.thread_events, records.thread_events);
        append(&mut self.next.exits, records.exits);
        append(&mut self.next.markers, records.markers);
        append(&mut self.next.file_lock_events, records.file_lock_events);
        append(&mut self.next.tag_sets, records.tag_sets);
        append(&mut self.next.tag_changes, records.tag_changes);
    }

    fn add_results(&mut self, results: LookupResults) {
        self.next.stacks.extend(results.stacks.stacks);
        self.next.passing.extend(results.stacks.passing);
        self.next.names.extend(results.stacks.names);
        self.next.frames.extend(results.stacks.frames);
        self.next.modules.extend(results.stacks.modules);
        self.next.processes.extend(results.processes.processes);
        self.next.cgroups.extend(results.processes.cgroups);
        self.next.files.extend(results.files);
        self.next.interrupts.extend(results.interrupts);
        self.next.quotas.extend(results.quotas);
        self.next.tag_names.extend(results.tag_names);
        self.diagnostics = results.diagnostics;
        self.unanswered = results.unanswered;
    }

    /// Has the sink write out what it retains, with all that has come so far.
    fn take_snapshot(&mut self, snapshot: SurveyedSnapshot, names: FrameNames) {
        let Some(start) = &self.start else { return };
        let SurveyedSnapshot { request, open, .. } = snapshot;
        let meta = Meta {
            window: Window { end: request.at, ..start.meta.window },
            closed_by: ClosedBy::Snapshot,
            ..start.meta.clone()
        };
        let own_cpu = request.own_cpu - start.own_cpu;
        self.flush();
        self.write_snapshot(meta, open, own_cpu, names, request.reason);
    }

    fn write_snapshot(
        &mut self,
        meta: Meta,
        open: OpenRecords,
        own_cpu: Nanos,
        names: FrameNames,
        reason: SnapshotReason,
    ) {
        let (loss, profiler_cost, clocks) =
            (self.next.loss.clone(), self.next.profiler_cost, clocks::read());
        let next_number = self.stored;
        let end = SnapshotEnd { meta, open, loss, profiler_cost, own_cpu, clocks, next_number };
        self.sink.write_snapshot(end, names, reason);
    }

    /// Writes the next slice, if nothing has failed before: there must be no hole before the end.
    fn flush(&mut self) {
        let mut slice = std::mem::take(&mut self.next);
        // The rest goes with the next slice: nobody needs names before the recording ends.
        let names = slice.names.split_off(stream::count_fitting_names(&slice.names));
        self.next.until = slice.until;
        self.next.loss = slice.loss.clone();
        self.next.profiler_cost = slice.profiler_cost;
        self.next.own_cpu = slice.own_cpu;
        let written = match self.failed {
            Some(_) => false,
            None => self.write(&mut slice).map_err(|error| self.failed = Some(error)).is_ok(),
        };
        if !written {
            self.unwritten += SliceSummary::new(&slice).records;
            // Stacks, processes and files may fit where the records that refer to them did not.
            self.next = Slice {
                waits: Vec::new(),
                preemptions: Vec::new(),
                summed: Vec::new(),
                throttles: Vec::new(),
                samples: Vec::new(),
                thread_events: Vec::new(),
                exits: Vec::new(),
                markers: Vec::new(),
                file_lock_events: Vec::new(),
                tag_sets: Vec::new(),
                tag_changes: Vec::new(),
                ..slice
            };
        }
        self.next.names.extend(names);
    }

    fn write(&mut self, slice: &mut Slice) -> io::Result<()> {
        let until = slice.until;
        slice.number = self.stored;
        slice.clocks = clocks::read();
        self.sink.append(NewSlice::new(slice, &mut self.encoder))?;
        (self.resend)(&self.sink.take_dropped_stacks());
        self.stored += 1;
        self.until = until;
        Ok(())
    }

    /// Writes what comes last. Returns the sink, and what kept the recording from being whole.
    pub fn close(mut self, end: RecordingEnd) -> Written<S> {
        // Without the last records, nobody can tell what happened behind those before.
        let window_end = if end.records.is_some() { end.closed_at } else { self.until };
        let Some(start) = self.start.take() else {
            let failed = self.failed.take();
            return self.into_written(Nanos(0), failed, Ending::Written);
        };
        let window_start = start.meta.window.start;
        let open = end.open;
        if let Some(results) = end.results {
            self.add_results(results);
        }
        if let Some(records) = end.records {
            self.next.loss = records.loss.clone().since(&start.losses);
            self.next.loss.add_diagnostics(&self.diagnostics);
            self.next.loss.unanswered.clone_from(&self.unanswered);
            self.next.profiler_cost = records.profiler_cost.since(start.profiler_cost);
            self.add_records(records);
        }
        self.next.own_cpu = end.own_cpu - start.own_cpu;
        self.next.until = window_end;
        let meta = Meta {
            window: Window { end: window_end, ..start.meta.window },
            own_cpu: self.next.own_cpu,
            closed_by: end.closed_by,
            ..start.meta
        };
        if self.sink.takes_snapshots() {
            self.flush();
            let names = FrameNames::Resolved(end.names);
            self.write_snapshot(meta, open, self.next.own_cpu, names, SnapshotReason::End);
            let ended = self.sink.end(&stream::END);
            let ending = match &ended {
                Err(_) if self.stored > 0 => Ending::Lost,
                _ => Ending::Written,
            };
            let failed = self.failed.take().or(ended.err());
            return self.into_written(window_end.since(window_start), failed, ending);
        }
        self.add_records(RecordBatch {
            waits: open.waits,
            preemptions: open.preemptions,
            summed: open.summed,
            thread_events: open.thread_events,
            ..RecordBatch::default()
        });
        self.next.file_locks = open.file_locks;
        self.next.fuse_servers = open.fuse_servers;
        self.next.lock_owners = open.lock_owners;
        self.next.pipe_holders = open.pipe_holders;
        self.next.stopped_threads = open.stopped_threads;
        self.next.disk_uses = open.disk_uses;
        self.next.io_limits = open.io_limits;
        self.next.awaited_children = open.awaited_children;
        self.next.filesystems = open.filesystems;
        self.next.meta = Some(meta);
        let mut names = std::mem::take(&mut self.next.names);
        names.extend(end.names);
        loop {
            let rest = names.split_off(stream::count_fitting_names(&names));
            if rest.is_empty() {
                break;
            }
            let (until, own_cpu) = (self.until, self.next.own_cpu);
            let (loss, profiler_cost) = (self.next.loss.clone(), self.next.profiler_cost);
            self.write_final_slice(Slice {
                until,
                names,
                loss,
                profiler_cost,
                own_cpu,
                ..Slice::default()
            });
            names = rest;
        }
        self.next.names = names;
        let last = std::mem::take(&mut self.next);
        self.write_final_slice(last);
        let ended = self.sink.end(&stream::END);
        let ending = match &ended {
            Err(_) if self.stored > 0 => Ending::Lost,
            _ => Ending::Written,
        };
        let failed = self.failed.take().or(ended.err());
        let window_end = if failed.is_some() { self.until } else { window_end };
        self.into_written(window_end.since(window_start), failed, ending)
    }

    fn into_written(self, length: Nanos, failed: Option<io::Error>, ending: Ending) -> Written<S> {
        let Self { sink, counts, target_thread_events, .. } = self;
        Written { sink, counts, target_thread_events, length, failed, ending, broken: None }
    }

    /// Writes a slice that the recording can't do without: the newest slices of records give way to
    /// it.
    fn write_final_slice(&mut self, mut slice: Slice) {
        loop {
            if self.failed.is_some() {
                self.unwritten += remove_closed_records(&mut slice);
                slice.until = self.until;
                slice.loss.counters.insert("records_unwritten".to_owned(), self.unwritten);
                if let Some(meta) = &mut slice.meta {
                    meta.closed_by = self.closed_by_failure;
                    meta.window.end = self.until;
                }
            }
            let Err(error) = self.write(&mut slice) else { return };
            self.failed.get_or_insert(error);
            let Ok(Some(removed)) = self.sink.remove_last() else { return };
            self.unwritten += removed.slice.records;
            self.stored -= 1;
            self.until = removed.until;
        }
    }
}

/// Appends rows. Most of the time there is nothing to append to: then nothing is copied.
fn append<T>(to: &mut Vec<T>, rows: Vec<T>) {
    if to.is_empty() {
        *to = rows;
    } else {
        to.extend(rows);
    }
}

/// Removes the records of what had ended when the window closed, and returns how many those are.
/// After a hole, how a thread stood when the window closed is still true; nobody can tell the rest
/// from what the hole swallowed.
fn remove_closed_records(slice: &mut Slice) -> u64 {
    let before = SliceSummary::new(slice).records;
    slice.waits.retain(|wait| wait.end == End::StillOff);
    slice.preemptions.retain(|preemption| preemption.end == End::StillOff);
    slice.summed.clear();
    // Without the records around them, what is said of a thread that is off its CPU still holds.
    slice.samples.clear();
    slice.markers.clear();
    slice.file_lock_events.clear();
    before - SliceSummary::new(slice).records
}
