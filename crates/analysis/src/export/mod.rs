//! A recording as tables for those who query: flat columns, names instead of codes, times of the
//! wall's clock (`docs/format.md`).
//!
//! ```text
//! Recording + Timeline + Blame → Export → parts (one for each hour) → record batches → Parquet
//! ```
//!
//! Same recording, same bytes.

mod clock;
mod dictionary;
mod lookups;
pub mod parquet;
mod partition;
mod requests;
mod stack_text;
mod tables;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::OnceLock};

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use offwake_recording::{
    FileId, Recording, stream,
    units::{CgroupId, Nanos, StackId},
};
use thiserror::Error;

use crate::{
    blame::{Blame, ChainLimits, Ledger},
    filter::Filter,
    formats::Readers,
    tags::ThreadTags,
    timeline::{ThreadIndex, Timeline, WaitIndex},
};

use clock::WallClock;
pub use clock::{Hour, HourOrNone};
use lookups::RowLookups;
pub use partition::host_directory;
pub use requests::{request_batches, write_requests};

/// Hours over which one table may spread. A recording takes a week at most; without this, one that
/// somebody made up could ask for a file for each of its rows.
pub const MAX_HOURS: usize = 1_000;

/// A table of the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "docs/format.md describes them")]
pub enum Table {
    Waits,
    Preemptions,
    Samples,
    Threads,
    Processes,
    Stacks,
    Frames,
    Cgroups,
    Files,
    Loss,
    Meta,
    Markers,
}

impl Table {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Waits,
        Self::Preemptions,
        Self::Samples,
        Self::Threads,
        Self::Processes,
        Self::Stacks,
        Self::Frames,
        Self::Cgroups,
        Self::Files,
        Self::Loss,
        Self::Meta,
        Self::Markers,
    ];

    /// Its name, and that of its directory.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Waits => "waits",
            Self::Preemptions => "preemptions",
            Self::Samples => "samples",
            Self::Threads => "threads",
            Self::Processes => "processes",
            Self::Stacks => "stacks",
            Self::Frames => "frames",
            Self::Cgroups => "cgroups",
            Self::Files => "files",
            Self::Loss => "loss",
            Self::Meta => "meta",
            Self::Markers => "markers",
        }
    }

    /// Who may read its files.
    #[must_use]
    pub fn readers(self) -> Readers {
        match self {
            Self::Processes => Readers::Owner,
            _ => Readers::Anybody,
        }
    }

    /// Its columns.
    ///
    /// # Errors
    ///
    /// None that is known: a table of nothing can always be made.
    pub fn schema(self) -> Result<SchemaRef, ArrowError> {
        let (recording, timeline) = (Recording::default(), Timeline::default());
        let blame = Blame::new(&recording, &timeline, ChainLimits::default());
        Export::new(&blame).batch(self, &[]).map(|batch| batch.schema())
    }

    /// Items of which the rows of one batch are made. A row each, but for frames: those of a stack.
    fn items_of_a_batch(self) -> usize {
        match self {
            Self::Frames => 128,
            _ => 8_192,
        }
    }
}

/// The rows of a table that go into one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The hour that they are of.
    pub hour: HourOrNone,
    items: Vec<u32>,
}

/// Times that no recording has.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the rows of {} are spread over more than {MAX_HOURS} hours: that is no recording", .table.name())]
pub struct TooManyHours {
    table: Table,
}

/// A recording, and what its rows are joined with.
pub struct Export<'a> {
    recording: &'a Recording,
    timeline: &'a Timeline,
    blame: &'a Blame<'a>,
    ledgers: OnceLock<Vec<Ledger>>,
    clock: WallClock,
    lookups: RowLookups<'a>,
    id: String,
    stacks: Vec<StackId>,
    cgroups: Vec<CgroupId>,
    files: Vec<FileId>,
    loss: Vec<stream::LossRow>,
    tags: ThreadTags<'a>,
}

impl<'a> Export<'a> {
    /// Prepares the export of a recording.
    #[must_use]
    pub fn new(blame: &'a Blame<'a>) -> Self {
        let recording = blame.recording();
        Self {
            recording,
            timeline: blame.timeline(),
            blame,
            ledgers: OnceLock::new(),
            clock: WallClock::new(&recording.clocks),
            lookups: RowLookups::new(recording),
            id: partition::recording_id(&recording.meta),
            stacks: recording.stacks.stacks.keys().copied().collect(),
            cgroups: recording.cgroups.keys().copied().collect(),
            files: recording.files.files.keys().copied().collect(),
            loss: stream::loss_rows(&recording.loss),
            tags: ThreadTags::new(recording),
        }
    }

    /// What tells this recording from every other: its files bear it as a name, its rows in the
    /// column `recording`. 16 hexadecimal digits.
    #[must_use]
    pub fn recording_id(&self) -> &str {
        &self.id
    }

    /// A table's rows by the hour. A table without rows has one part without any: its columns.
    ///
    /// # Errors
    ///
    /// If there are more than [`MAX_HOURS`].
    pub fn partitions(&self, table: Table) -> Result<Vec<Partition>, TooManyHours> {
        let mut hours: BTreeMap<HourOrNone, Vec<u32>> = BTreeMap::new();
        for item in 0..u32::try_from(self.item_count(table)).unwrap_or(u32::MAX) {
            let hour = self.clock.hour(tables::time_of(self, table, item));
            hours.entry(hour).or_default().push(item);
            if hours.len() > MAX_HOURS {
                return Err(TooManyHours { table });
            }
        }
        if hours.is_empty() {
            hours.insert(self.clock.hour(self.recording.meta.window.start), Vec::new());
        }
        Ok(hours.into_iter().map(|(hour, items)| Partition { hour, items }).collect())
    }

    /// All waits that a filter keeps, whatever their hour.
    #[must_use]
    pub fn filtered_waits(&self, filter: &Filter) -> Partition {
        let filter = filter.for_recording(self.recording);
        let waits = &self.recording.waits;
        let kept = waits.rows().iter().zip(0..).filter(|&(row, item)| {
            let index = WaitIndex(item);
            let place = self.timeline.blocked_interval(index);
            let blocked = place.map_or(Nanos(0), |place| place.to.since(place.from));
            let idle_state = self.blame.own_idle_state(index);
            filter.keeps(index, row, blocked, idle_state)
        });
        let items: Vec<u32> = kept.map(|(_, item)| item).collect();
        Partition { hour: self.clock.hour(self.recording.meta.window.start), items }
    }

    /// A thread's ledger.
    fn ledger(&self, thread: ThreadIndex) -> Ledger {
        let ledgers = self.ledgers.get_or_init(|| self.blame.ledgers());
        ledgers.get(thread.0 as usize).copied().unwrap_or_default()
    }

    /// The rows of a part, some thousand at a time.
    pub fn batches(
        &self,
        table: Table,
        part: &Partition,
    ) -> impl Iterator<Item = Result<RecordBatch, ArrowError>> {
        part.items.chunks(table.items_of_a_batch()).map(move |items| self.batch(table, items))
    }

    fn batch(&self, table: Table, items: &[u32]) -> Result<RecordBatch, ArrowError> {
        tables::batch(self, table, items)
    }

    fn item_count(&self, table: Table) -> usize {
        let recording = self.recording;
        match table {
            Table::Waits => recording.waits.len(),
            Table::Preemptions => recording.preemptions.len(),
            Table::Samples => recording.samples.len(),
            Table::Threads => self.timeline.threads.len(),
            Table::Processes => recording.processes.len(),
            Table::Stacks | Table::Frames => self.stacks.len(),
            Table::Cgroups => self.cgroups.len(),
            Table::Files => self.files.len(),
            Table::Loss => self.loss.len(),
            Table::Meta => 1,
            Table::Markers => recording.markers.len(),
        }
    }
}
