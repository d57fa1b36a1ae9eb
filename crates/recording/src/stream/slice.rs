//! One slice of a recording: what came in a stretch of time, every table's share of it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use arrow_array::{
    Array as _, ArrayRef, Int64Array, ListArray, RecordBatch, StructArray, UInt64Array,
};
use arrow_schema::{Field, Schema, SchemaRef};

use super::{
    FORMAT_KEY, FORMAT_VERSION, checksum,
    column::{Text, U64, as_list, columns, table},
    tables::{
        CostRow, LossRow, Named, Rows, Table, cost_from_rows, cost_rows, loss_rows, loss_totals,
    },
};
use crate::{
    AddressSpace, AwaitedChild, AwaitedFileLock, CgroupInfo, Clocks, CpuQuota, DetailStretch,
    DiskUse, FileId, FileLockEvent, Filesystem, Frame, FrameId, FuseServer, InterruptInfo, IoLimit,
    LockOwner, LossTotals, Marker, Meta, Module, ModuleId, OpenFile, PipeHolder, Preemption,
    ProcessInfo, ProfilerCost, Sample, Stack, StoppedThread, SummedWaits, TagChange, TagName,
    TagSet, ThreadEvent, ThreadExit, Throttle, Wait,
    units::{Nanos, StackId, Timestamp},
};

/// A row of the stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slice {
    /// Counts the slices of a recording, from any number on.
    pub number: u64,
    /// Everything that was recorded before this moment is in this slice or in one before it.
    pub until: Timestamp,
    /// The clocks as it was put together.
    pub clocks: Clocks,
    /// CPU time of the profiler's own threads since the window opened.
    pub own_cpu: Nanos,
    /// What was lost since the window opened.
    pub loss: LossTotals,
    /// What the kernel half did since it was loaded.
    pub profiler_cost: ProfilerCost,
    /// What the recording is of: in the first slice and in the last.
    pub meta: Option<Meta>,
    /// Waits.
    pub waits: Vec<Wait>,
    /// Preemptions.
    pub preemptions: Vec<Preemption>,
    /// Throttles of threads.
    pub throttles: Vec<Throttle>,
    /// On-CPU samples.
    pub samples: Vec<Sample>,
    /// Thread events of threads.
    pub thread_events: Vec<ThreadEvent>,
    /// Ends of threads.
    pub exits: Vec<ThreadExit>,
    /// Stacks. The same one may come again.
    pub stacks: Vec<(StackId, Stack)>,
    /// Those of them that nothing refers to but records of about now: not stored, but good to know for
    /// who keeps only the newest.
    pub passing: Vec<(AddressSpace, StackId)>,
    /// Frames, without names.
    pub frames: Vec<(FrameId, Frame)>,
    /// Modules.
    pub modules: Vec<(ModuleId, Module)>,
    /// Names of frames: at the end.
    pub names: Vec<Named>,
    /// Processes as they were looked at.
    pub processes: Vec<ProcessInfo>,
    /// Cgroups.
    pub cgroups: Vec<CgroupInfo>,
    /// Files; a later row about one replaces an earlier row.
    pub files: Vec<(FileId, OpenFile)>,
    /// Devices' interrupts.
    pub interrupts: Vec<InterruptInfo>,
    /// Locks on files that somebody still waited for: at the end.
    pub file_locks: Vec<AwaitedFileLock>,
    /// Who serves FUSE filesystems: at the end.
    pub fuse_servers: Vec<FuseServer>,
    /// CPU quotas; a later row about one replaces an earlier row.
    pub quotas: Vec<CpuQuota>,
    /// Who held the locks in memory that somebody still waited for: at the end.
    pub lock_owners: Vec<LockOwner>,
    /// Filesystems on block devices and of file servers: at the end.
    pub filesystems: Vec<Filesystem>,
    /// Who had pipes open at which somebody still waited: at the end.
    pub pipe_holders: Vec<PipeHolder>,
    /// What kept threads stopped: at the end.
    pub stopped_threads: Vec<StoppedThread>,
    /// What processes read from block devices and wrote to them: at the end.
    pub disk_uses: Vec<DiskUse>,
    /// The I/O limits that processes were under: at the end.
    pub io_limits: Vec<IoLimit>,
    /// Children that somebody waited for by a descriptor: at the end.
    pub awaited_children: Vec<AwaitedChild>,
    /// How much detail was recorded.
    pub detail: Vec<DetailStretch>,
    /// Stretches of threads' lives of which only sums are known.
    pub summed: Vec<SummedWaits>,
    /// What programs marked in their own code.
    pub markers: Vec<Marker>,
    /// What threads said that they were doing. The same set may come again.
    pub tag_sets: Vec<TagSet>,
    /// When threads changed from one set to another.
    pub tag_changes: Vec<TagChange>,
    /// What processes call their labels; a later row about one replaces an earlier row.
    pub tag_names: Vec<TagName>,
    /// What happened to locks on files that threads were refused.
    pub file_lock_events: Vec<FileLockEvent>,
}

/// What was wrong with a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SliceDamage {
    /// Tables whose content is not what was written.
    pub tables_damaged: u64,
    /// Tables that are not in the file at all.
    pub tables_missing: BTreeSet<&'static str>,
    /// Rows that hold what can't be.
    pub rows_unreadable: u64,
}

const CHECKSUMS: &str = "checksums";

impl Slice {
    /// As one row of [`schema`].
    pub(super) fn to_batch(&self) -> Result<RecordBatch, arrow_schema::ArrowError> {
        let time = |ns: i64| -> ArrayRef { Arc::new(Int64Array::from(vec![ns])) };
        let mut columns: Vec<(&'static str, ArrayRef)> = vec![
            ("slice", Arc::new(UInt64Array::from(vec![self.number]))),
            ("until_ns", time(self.until.0.cast_signed())),
            ("monotonic_ns", time(self.clocks.monotonic.0.cast_signed())),
            ("realtime_ns", time(self.clocks.realtime_ns)),
            ("boottime_ns", time(self.clocks.boottime_ns.cast_signed())),
            ("own_cpu_ns", time(self.own_cpu.0.cast_signed())),
            cell(self.meta.as_slice()),
            cell(&loss_rows(&self.loss)),
            cell(&cost_rows(self.profiler_cost)),
            cell(&self.waits),
            cell(&self.preemptions),
            cell(&self.samples),
            cell(&self.thread_events),
            cell(&self.exits),
            cell(&self.stacks),
            cell(&self.frames),
            cell(&self.modules),
            cell(&self.names),
            cell(&self.processes),
            cell(&self.cgroups),
            cell(&self.files),
            cell(&self.interrupts),
            cell(&self.file_locks),
            cell(&self.throttles),
            cell(&self.quotas),
            cell(&self.fuse_servers),
            cell(&self.lock_owners),
            cell(&self.filesystems),
            cell(&self.pipe_holders),
            cell(&self.stopped_threads),
            cell(&self.loss.unanswered),
            cell(&self.detail),
            cell(&self.summed),
            cell(&self.disk_uses),
            cell(&self.awaited_children),
            cell(&self.markers),
            cell(&self.tag_sets),
            cell(&self.tag_changes),
            cell(&self.tag_names),
            cell(&self.io_limits),
            cell(&self.file_lock_events),
        ];
        let sums: Vec<(&'static str, u64)> = (columns.iter())
            .map(|(name, column)| (*name, checksum::checksum_column(name, column)))
            .collect();
        columns.push((CHECKSUMS, as_list(table(ChecksumColumns::from_rows(&sums)))));
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = (columns.into_iter())
            .map(|(name, array)| (Field::new(name, array.data_type().clone(), false), array))
            .unzip();
        let about = HashMap::from([(FORMAT_KEY.to_owned(), FORMAT_VERSION.to_string())]);
        RecordBatch::try_new(Arc::new(Schema::new_with_metadata(fields, about)), arrays)
    }

    /// What can be read of a row that [`Self::to_batch`] made. None if it can't even be told which
    /// slice it is.
    pub(super) fn from_batch(batch: &RecordBatch) -> Option<(Self, SliceDamage)> {
        if batch.num_rows() != 1 {
            return None;
        }
        let mut cells =
            Cells { batch, sums: read_checksums(batch)?, damage: SliceDamage::default() };
        let slice = Self {
            passing: Vec::new(),
            number: cells.number("slice")?,
            until: Timestamp(cells.time("until_ns")?.cast_unsigned()),
            clocks: Clocks {
                monotonic: Timestamp(cells.time("monotonic_ns")?.cast_unsigned()),
                realtime_ns: cells.time("realtime_ns")?,
                boottime_ns: cells.time("boottime_ns")?.cast_unsigned(),
            },
            own_cpu: Nanos(cells.time("own_cpu_ns")?.cast_unsigned()),
            meta: cells.rows::<Meta>().pop(),
            loss: LossTotals {
                unanswered: cells.rows_if_any(),
                ..loss_totals(cells.rows::<LossRow>())
            },
            profiler_cost: cost_from_rows(&cells.rows_if_any::<CostRow>()),
            waits: cells.rows(),
            preemptions: cells.rows(),
            samples: cells.rows(),
            thread_events: cells.rows(),
            exits: cells.rows(),
            stacks: cells.rows(),
            frames: cells.rows(),
            modules: cells.rows(),
            names: cells.rows(),
            processes: cells.rows(),
            cgroups: cells.rows(),
            files: cells.rows(),
            interrupts: cells.rows_if_any(),
            file_locks: cells.rows_if_any(),
            throttles: cells.rows_if_any(),
            quotas: cells.rows_if_any(),
            fuse_servers: cells.rows_if_any(),
            lock_owners: cells.rows_if_any(),
            filesystems: cells.rows_if_any(),
            pipe_holders: cells.rows_if_any(),
            stopped_threads: cells.rows_if_any(),
            detail: cells.rows_if_any(),
            summed: cells.rows_if_any(),
            disk_uses: cells.rows_if_any(),
            awaited_children: cells.rows_if_any(),
            markers: cells.rows_if_any(),
            tag_sets: cells.rows_if_any(),
            tag_changes: cells.rows_if_any(),
            tag_names: cells.rows_if_any(),
            io_limits: cells.rows_if_any(),
            file_lock_events: cells.rows_if_any(),
        };
        Some((slice, cells.damage))
    }
}

/// The schema of every recording that this version writes.
///
/// # Errors
///
/// None that is known: a slice of nothing is always a row.
pub fn schema() -> Result<SchemaRef, arrow_schema::ArrowError> {
    Slice::default().to_batch().map(|batch| batch.schema())
}

fn cell<T: Table>(rows: &[T]) -> (&'static str, ArrayRef) {
    (T::NAME, T::cell(rows))
}

columns! {
    ChecksumColumns of row: (&'static str, u64) {
        column: Text = row.0,
        xxh3: U64 = row.1,
    }
}

fn read_checksums(batch: &RecordBatch) -> Option<Vec<(String, u64)>> {
    let sums = only_table(batch.column_by_name(CHECKSUMS)?)?;
    let columns = ChecksumColumns::find(&sums).ok()?;
    let row = |row| (columns.column.at(row), columns.xxh3.at(row));
    Some((0..sums.len()).map(row).collect())
}

/// The table in a column's only row.
fn only_table(column: &ArrayRef) -> Option<StructArray> {
    let lists: &ListArray = column.as_any().downcast_ref()?;
    if lists.len() != 1 || lists.is_null(0) {
        return None;
    }
    lists.value(0).as_any().downcast_ref().cloned()
}

/// Whether a table's columns are all that are known here, and more if they will, or fewer and no
/// others, as in a recording from before they came. The checksums say nothing of their names, and a
/// broken one would pass for a column that is not there.
fn has_its_names<T: Table>(table: &StructArray) -> bool {
    let known = T::columns(&[]);
    let there = known.iter().filter(|(name, ..)| table.column_by_name(name).is_some()).count();
    there == known.len() || there == table.num_columns()
}

/// The columns of a slice's row, each checked before it is used.
struct Cells<'a> {
    batch: &'a RecordBatch,
    sums: Vec<(String, u64)>,
    damage: SliceDamage,
}

impl Cells<'_> {
    fn verified(&self, name: &str) -> Option<&ArrayRef> {
        let column = self.batch.column_by_name(name)?;
        let (_, sum) = self.sums.iter().find(|(column, _)| column == name)?;
        (checksum::checksum_column(name, column) == *sum).then_some(column)
    }

    fn number(&self, name: &str) -> Option<u64> {
        let column: &UInt64Array = self.verified(name)?.as_any().downcast_ref()?;
        Some(column.value(0))
    }

    fn time(&self, name: &str) -> Option<i64> {
        let column: &Int64Array = self.verified(name)?.as_any().downcast_ref()?;
        Some(column.value(0))
    }

    /// The rows of a table that recordings had not at first.
    fn rows_if_any<T: Table>(&mut self) -> Vec<T> {
        if self.batch.column_by_name(T::NAME).is_none() { Vec::new() } else { self.rows() }
    }

    fn rows<T: Table>(&mut self) -> Vec<T> {
        if self.batch.column_by_name(T::NAME).is_none() {
            self.damage.tables_missing.insert(T::NAME);
            return Vec::new();
        }
        let table = self.verified(T::NAME).and_then(only_table);
        match table.filter(has_its_names::<T>).map(|table| T::read(&table)) {
            Some(Ok(Rows { rows, unreadable })) => {
                self.damage.rows_unreadable += unreadable;
                rows
            }
            Some(Err(_)) | None => {
                self.damage.tables_damaged += 1;
                Vec::new()
            }
        }
    }
}
