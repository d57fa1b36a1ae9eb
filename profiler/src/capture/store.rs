//! The thread that turns what was recorded into slices and hands them to the sink.

use std::{
    io,
    sync::{atomic::Ordering, mpsc::Receiver},
};

use super::{
    Control, Written, clocks,
    collector::{OpenRecords, Records},
    flight::{NewNames, Stretch, Why},
    sink::{About, NewSlice, Sink},
    snapshot::Snapshot,
};
use crate::{
    processes::NewProcesses,
    recording::{
        ClosedBy, Effort, End, FileId, FrameId, Function, InterruptInfo, LossTotals, Meta,
        NewStacks, OpenFile, Window,
        loss::Shortfalls,
        stream::{self, Encoder, Slice},
    },
    units::{Nanos, StackId, Timestamp},
};

/// Names that go into one slice: some 5 MiB.
const NAMES_IN_A_SLICE: usize = 50_000;

/// Makes the kernel half send stacks again.
pub(super) type Forget = Box<dyn FnMut(&[StackId]) + Send>;

/// Something to store.
pub(super) enum Part {
    /// The window has opened.
    Opening(Box<Opening>),
    /// What came out of the rings: it ends a slice.
    Records(Box<Records>),
    /// What was looked up: it goes with the next records.
    Found(Box<Found>),
    /// A stretch is wanted, up to now.
    Snapshot(Box<Snapshot>, NewNames),
}

/// What is counted from where.
pub(super) struct Opening {
    pub meta: Meta,
    pub losses: LossTotals,
    pub effort: Effort,
    pub own_cpu: Nanos,
}

/// What was looked up since the last time.
#[derive(Default)]
pub(super) struct Found {
    pub stacks: NewStacks,
    pub processes: NewProcesses,
    pub files: Vec<(FileId, OpenFile)>,
    pub interrupts: Vec<InterruptInfo>,
    /// What could not be done so far, from the beginning on.
    pub shortfalls: Shortfalls,
}

/// What comes last.
pub(super) struct Ending {
    pub records: Records,
    pub open: OpenRecords,
    pub found: Found,
    pub names: Vec<(FrameId, Vec<Function>)>,
    pub closed_at: Timestamp,
    pub own_cpu: Nanos,
    pub closed_by: ClosedBy,
}

/// Puts slices together.
pub(super) struct Store<S> {
    encoder: Encoder,
    sink: S,
    opening: Option<Opening>,
    next: Slice,
    /// How many slices the sink has.
    stored: u64,
    /// What they cover.
    until: Timestamp,
    failed: Option<io::Error>,
    /// Records that the sink did not take.
    unwritten: u64,
    counts: Counts,
    shortfalls: Shortfalls,
    /// Tells the kernel half to forget that it sent these.
    forget: Forget,
}

/// What a recording has of waits, those included that were not written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All waits.
    pub waits: u64,
    /// Those of the target.
    pub target_waits: u64,
}

impl<S: Sink> Store<S> {
    pub fn new(sink: S, forget: Forget) -> io::Result<Self> {
        Ok(Self {
            encoder: Encoder::new().map_err(io::Error::other)?,
            sink,
            opening: None,
            next: Slice::default(),
            stored: 0,
            until: Timestamp(0),
            failed: None,
            unwritten: 0,
            counts: Counts::default(),
            shortfalls: Shortfalls::new(),
            forget,
        })
    }

    /// Stores what comes until nothing can come any more.
    pub fn run(mut self, parts: &Receiver<Part>, control: &Control) -> Self {
        for part in parts {
            match part {
                Part::Opening(opening) => self.open(*opening),
                Part::Records(records) => self.take(*records),
                Part::Found(found) => self.add_found(*found),
                Part::Snapshot(snapshot, names) => self.write_out(*snapshot, names),
            }
            if self.failed.is_some() {
                control.sink_failed.store(true, Ordering::Relaxed);
            }
        }
        self
    }

    fn open(&mut self, opening: Opening) {
        self.next.meta = Some(opening.meta.clone());
        self.until = opening.meta.window.start;
        self.next.until = self.until;
        self.opening = Some(opening);
        if let Err(error) = self.sink.begin(self.encoder.header()) {
            self.failed = Some(error);
        }
        self.flush();
    }

    fn take(&mut self, records: Records) {
        self.next.until = records.until;
        if let Some(opening) = &self.opening {
            self.next.effort = records.effort.since(opening.effort);
            self.next.loss = records.loss.clone().since(&opening.losses);
            self.next.loss.add_shortfalls(&self.shortfalls);
            self.next.own_cpu = records.own_cpu - opening.own_cpu;
        }
        self.add_records(records);
        // What comes before the window opens waits for it: the recording has no name before.
        if self.opening.is_some() {
            self.flush();
        }
    }

    fn add_records(&mut self, records: Records) {
        for wait in &records.waits {
            self.counts.waits += 1;
            self.counts.target_waits += u64::from(wait.in_target);
        }
        append(&mut self.next.waits, records.waits);
        append(&mut self.next.preemptions, records.preemptions);
        append(&mut self.next.samples, records.samples);
        append(&mut self.next.sightings, records.sightings);
        append(&mut self.next.exits, records.exits);
    }

    fn add_found(&mut self, found: Found) {
        self.next.stacks.extend(found.stacks.stacks);
        self.next.passing.extend(found.stacks.passing);
        self.next.names.extend(found.stacks.names);
        self.next.frames.extend(found.stacks.frames);
        self.next.modules.extend(found.stacks.modules);
        self.next.processes.extend(found.processes.processes);
        self.next.cgroups.extend(found.processes.cgroups);
        self.next.files.extend(found.files);
        self.next.interrupts.extend(found.interrupts);
        self.shortfalls = found.shortfalls;
    }

    /// Has the sink write out what it keeps, with all that has come so far.
    fn write_out(&mut self, snapshot: Snapshot, names: NewNames) {
        let Some(opening) = &self.opening else { return };
        let Snapshot { request, open } = snapshot;
        let meta = Meta {
            window: Window { end: request.at, ..opening.meta.window },
            closed_by: ClosedBy::Snapshot,
            ..opening.meta.clone()
        };
        let own_cpu = request.own_cpu - opening.own_cpu;
        self.flush();
        self.hand_over(meta, open, own_cpu, names, request.why);
    }

    fn hand_over(
        &mut self,
        meta: Meta,
        open: OpenRecords,
        own_cpu: Nanos,
        names: NewNames,
        why: Why,
    ) {
        let (loss, effort, clocks) = (self.next.loss.clone(), self.next.effort, clocks::read());
        let next_number = self.stored;
        let stretch = Stretch { meta, open, loss, effort, own_cpu, clocks, next_number };
        self.sink.write_out(stretch, names, why);
    }

    /// Writes the next slice, if nothing has failed before: there must be no hole before the end.
    fn flush(&mut self) {
        let mut slice = std::mem::take(&mut self.next);
        self.next.until = slice.until;
        self.next.loss = slice.loss.clone();
        self.next.effort = slice.effort;
        self.next.own_cpu = slice.own_cpu;
        let written = match self.failed {
            Some(_) => false,
            None => self.write(&mut slice).map_err(|error| self.failed = Some(error)).is_ok(),
        };
        if !written {
            self.unwritten += About::of(&slice).records;
            // What others refer to may fit where the records did not.
            self.next = Slice {
                waits: Vec::new(),
                preemptions: Vec::new(),
                samples: Vec::new(),
                sightings: Vec::new(),
                exits: Vec::new(),
                ..slice
            };
        }
    }

    fn write(&mut self, slice: &mut Slice) -> io::Result<()> {
        let until = slice.until;
        slice.number = self.stored;
        slice.clocks = clocks::read();
        self.sink.append(NewSlice::new(slice, &mut self.encoder))?;
        (self.forget)(&self.sink.take_forgotten());
        self.stored += 1;
        self.until = until;
        Ok(())
    }

    /// Writes what comes last. Gives back the sink, and what kept the recording from being whole.
    pub fn close(mut self, ending: Ending) -> Written<S> {
        let window_end = ending.closed_at;
        let Some(opening) = self.opening.take() else {
            return Written {
                sink: self.sink,
                counts: self.counts,
                length: Nanos(0),
                failed: self.failed,
            };
        };
        let window_start = opening.meta.window.start;
        let (records, open) = (ending.records, ending.open);
        self.add_found(ending.found);
        self.next.loss = records.loss.clone().since(&opening.losses);
        self.next.loss.add_shortfalls(&self.shortfalls);
        self.next.effort = records.effort.since(opening.effort);
        self.add_records(records);
        self.next.own_cpu = ending.own_cpu - opening.own_cpu;
        self.next.until = ending.closed_at;
        let meta = Meta {
            window: Window { end: ending.closed_at, ..opening.meta.window },
            own_cpu: self.next.own_cpu,
            closed_by: ending.closed_by,
            ..opening.meta
        };
        if self.sink.keeps_a_stretch() {
            self.flush();
            self.hand_over(meta, open, self.next.own_cpu, NewNames::Found(ending.names), Why::End);
            let ended = self.sink.end(&stream::END);
            let failed = self.failed.or(ended.err());
            let length = window_end.since(window_start);
            return Written { sink: self.sink, counts: self.counts, length, failed };
        }
        self.add_records(Records {
            waits: open.waits,
            preemptions: open.preemptions,
            sightings: open.sightings,
            ..Records::default()
        });
        self.next.meta = Some(meta);
        let mut names = ending.names;
        while names.len() > NAMES_IN_A_SLICE {
            let rest = names.split_off(NAMES_IN_A_SLICE);
            let (until, own_cpu) = (self.until, self.next.own_cpu);
            let (loss, effort) = (self.next.loss.clone(), self.next.effort);
            self.write_at_last(Slice { until, names, loss, effort, own_cpu, ..Slice::default() });
            names = rest;
        }
        self.next.names = names;
        let last = std::mem::take(&mut self.next);
        self.write_at_last(last);
        let ended = self.sink.end(&stream::END);
        let failed = self.failed.or(ended.err());
        let window_end = if failed.is_some() { self.until } else { window_end };
        let length = window_end.since(window_start);
        Written { sink: self.sink, counts: self.counts, length, failed }
    }

    /// Writes a slice that the recording can't do without: newer ones of records give way to it.
    fn write_at_last(&mut self, mut slice: Slice) {
        loop {
            if self.failed.is_some() {
                self.unwritten += drop_closed(&mut slice);
                slice.until = self.until;
                slice.loss.counters.insert("records_unwritten".to_owned(), self.unwritten);
                if let Some(meta) = &mut slice.meta {
                    meta.closed_by = ClosedBy::DiskFull;
                    meta.window.end = self.until;
                }
            }
            let Err(error) = self.write(&mut slice) else { return };
            self.failed.get_or_insert(error);
            let Ok(Some(taken)) = self.sink.take_back() else { return };
            self.unwritten += taken.slice.records;
            self.stored -= 1;
            self.until = taken.until;
        }
    }
}

/// Most of the time there is nothing to append to: then nothing is copied.
fn append<T>(to: &mut Vec<T>, rows: Vec<T>) {
    if to.is_empty() {
        *to = rows;
    } else {
        to.extend(rows);
    }
}

/// After a hole, what says how a thread stood when the window closed is still true; the rest is not
/// to be told from what the hole swallowed. Gives back how many records went.
fn drop_closed(slice: &mut Slice) -> u64 {
    let before = About::of(slice).records;
    slice.waits.retain(|wait| wait.end == End::StillOff);
    slice.preemptions.retain(|preemption| preemption.end == End::StillOff);
    slice.samples.clear();
    before - About::of(slice).records
}
