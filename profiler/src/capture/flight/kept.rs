//! The kept slices, and when they retire.

use std::{collections::VecDeque, sync::Arc};

use super::{
    context::Context,
    frozen::{Frozen, Stretch},
    threads::Doings,
};
use crate::{
    capture::{
        sink::{About, Encoded},
        store::Counts,
    },
    recording::{Clocks, Effort, LossTotals, Meta, ProcessInfo, Window, stream::Slice},
    units::{Nanos, StackId, Timestamp},
};

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// So long a time, and up to a slice's length more.
    Time(Nanos),
    /// So many bytes, as they are stored.
    Bytes(usize),
}

/// What a slice leaves behind when it goes.
#[derive(Debug)]
struct Digest {
    doings: Doings,
    processes: Vec<ProcessInfo>,
    /// The newest moment that any of its records speaks of.
    newest: Timestamp,
    mark: Mark,
}

/// What was counted by the end of a slice, from the recording's beginning on.
#[derive(Clone, Debug, Default)]
struct Mark {
    loss: LossTotals,
    effort: Effort,
    own_cpu: Nanos,
    clocks: Clocks,
}

#[derive(Debug)]
struct KeptSlice {
    number: u64,
    bytes: Arc<Vec<u8>>,
    about: About,
    counts: Counts,
    digest: Digest,
}

/// The last stretch of a recording.
#[derive(Debug)]
pub struct Kept {
    keep: Keep,
    max_memory: usize,
    slices: VecDeque<KeptSlice>,
    /// Bytes of the slices and of their digests.
    encoded: usize,
    digests: usize,
    context: Context,
    /// Where the kept stretch begins; none while nothing has gone.
    start: Option<(Timestamp, Mark)>,
    shortened: u64,
}

impl Kept {
    /// Keeps nothing yet; in at most about `max_memory` bytes.
    #[must_use]
    pub fn new(keep: Keep, max_memory: usize) -> Self {
        Self {
            keep,
            max_memory,
            slices: VecDeque::new(),
            encoded: 0,
            digests: 0,
            context: Context::new(),
            start: None,
            shortened: 0,
        }
    }

    /// A new slice, and what is in it. The oldest go if there is too much.
    pub fn append(&mut self, encoded: Encoded, content: &Slice) {
        let digest = Digest::of(content);
        self.context.note(content, &digest.doings);
        let target_waits = content.waits.iter().filter(|wait| wait.in_target).count() as u64;
        let counts = Counts { waits: content.waits.len() as u64, target_waits };
        self.encoded += encoded.bytes.len();
        self.digests += digest.memory();
        let (bytes, about) = (Arc::new(encoded.bytes), encoded.about);
        self.slices.push_back(KeptSlice { number: content.number, bytes, about, counts, digest });
        while self.slices.len() > 1 {
            let is_old = self.front_is_old();
            if !is_old && self.memory() <= self.max_memory {
                break;
            }
            self.shortened += u64::from(!is_old);
            self.retire();
        }
    }

    fn front_is_old(&self) -> bool {
        let (Some(front), Some(back)) = (self.slices.front(), self.slices.back()) else {
            return false;
        };
        match self.keep {
            Keep::Time(time) => front.about.until + time <= back.about.until,
            Keep::Bytes(bytes) => self.encoded > bytes,
        }
    }

    fn retire(&mut self) {
        let Some(slice) = self.slices.pop_front() else { return };
        self.encoded -= slice.bytes.len();
        self.digests -= slice.digest.memory();
        let Digest { doings, processes, newest, mark } = slice.digest;
        let before = self.start.as_ref().map_or(Timestamp(0), |(at, _)| *at);
        // No record before this is missing from the slices that are left but those of the context.
        let start = before.max(newest).max(slice.about.until);
        self.context.fold(doings, processes, start);
        self.start = Some((start, mark));
    }

    /// Stacks that the kernel half must forget that it sent them.
    pub fn take_forgotten(&mut self) -> Vec<StackId> {
        self.context.stacks.take_forgotten()
    }

    /// About what is held, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.encoded + self.digests + self.context.memory()
    }

    /// What is kept now, with what is known of its end: a recording of its own.
    #[must_use]
    pub fn freeze(&self, stretch: Stretch) -> Frozen {
        let Stretch { meta, open, loss, effort, own_cpu, clocks, next_number } = stretch;
        let window = meta.window;
        let opened = (window.start, Mark::default());
        let (start, mark) = self.start.as_ref().unwrap_or(&opened);
        let start = (*start).clamp(window.start, window.end);
        let meta = Meta {
            window: Window { start, end: window.end },
            own_cpu: own_cpu - mark.own_cpu,
            ..meta
        };
        let mut loss = loss.since(&mark.loss);
        if let Some((first, last)) = loss.ring_full {
            loss.ring_full = (last >= start).then(|| (first.max(start), last));
        }
        let is_short = match self.keep {
            Keep::Time(time) => meta.window.length() < time,
            Keep::Bytes(bytes) => self.encoded < bytes,
        };
        if self.shortened > 0 && is_short {
            loss.counters.insert("kept_shortened".to_owned(), self.shortened);
        }
        let over_limit = self.context.stacks.over_limit();
        if over_limit > 0 {
            loss.counters.insert("stacks_forgotten".to_owned(), over_limit);
        }
        let first_number = self.slices.front().map_or(next_number, |slice| slice.number);
        let first = first_number.checked_sub(1).map(|number| Slice {
            number,
            until: start,
            clocks: mark.clocks,
            meta: Some(meta.clone()),
            ..self.context.to_slice()
        });
        let mut counts = Counts {
            waits: open.waits.len() as u64,
            target_waits: open.waits.iter().filter(|wait| wait.in_target).count() as u64,
        };
        for slice in &self.slices {
            counts.waits += slice.counts.waits;
            counts.target_waits += slice.counts.target_waits;
        }
        Frozen {
            first,
            kept: self.slices.iter().map(|slice| Arc::clone(&slice.bytes)).collect(),
            stacks: self.context.stacks.all().into_iter().collect(),
            next_number,
            counts,
            last: Slice {
                until: meta.window.end,
                clocks,
                own_cpu: meta.own_cpu,
                loss,
                effort: effort.since(mark.effort),
                waits: open.waits,
                preemptions: open.preemptions,
                sightings: open.sightings,
                meta: Some(meta),
                ..Slice::default()
            },
        }
    }
}

impl Digest {
    fn of(slice: &Slice) -> Self {
        let mut doings = Doings {
            sightings: slice.sightings.clone(),
            exits: slice.exits.clone(),
            ..Doings::default()
        };
        doings.sightings.sort_by_key(|sighting| sighting.at);
        doings.exits.sort_by_key(|exit| exit.at);
        doings.add(&slice.waits, &slice.preemptions);
        let newest = (slice.waits.iter().map(|wait| wait.on))
            .chain(slice.preemptions.iter().map(|preemption| preemption.on))
            .chain(slice.samples.iter().map(|sample| sample.at))
            .chain(doings.sightings.last().map(|sighting| sighting.at))
            .chain(doings.exits.last().map(|exit| exit.at))
            .max();
        Self {
            doings,
            processes: slice.processes.clone(),
            newest: newest.unwrap_or_default(),
            mark: Mark {
                loss: slice.loss.clone(),
                effort: slice.effort,
                own_cpu: slice.own_cpu,
                clocks: slice.clocks,
            },
        }
    }

    fn memory(&self) -> usize {
        size_of::<KeptSlice>() + self.doings.memory() + 512 * self.processes.len()
    }
}
