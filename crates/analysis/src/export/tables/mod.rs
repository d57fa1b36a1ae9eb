//! One file a table, or a few small ones that belong together: its columns from its items.

mod machine;
mod markers;
mod meta;
mod records;
mod runnable;
mod stacks;
mod threads;
mod waits;

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, TimestampMicrosecondArray};
use arrow_schema::{ArrowError, Field, Schema};
use offwake_recording::{
    stream::column::{Column, Nulls},
    units::{CgroupId, Tgid, Tid, Timestamp},
};

use super::{
    Export, Table,
    dictionary::{Dictionary, all_names},
};
use crate::timeline::{Thread, ThreadIndex};

/// The moment that says which hour an item belongs to.
pub(super) fn time_of(export: &Export<'_>, table: Table, item: u32) -> Timestamp {
    let recording = export.recording;
    let n = item as usize;
    let of_item = match table {
        Table::Waits => recording.waits.rows().get(n).map(|wait| wait.off),
        Table::Preemptions => recording.preemptions.get(n).map(|preemption| preemption.off),
        Table::Samples => recording.samples.get(n).map(|sample| sample.at),
        Table::Markers => recording.markers.get(n).map(|marker| marker.at),
        Table::Threads => export.timeline.threads.get(n).map(|thread| thread.from),
        Table::Processes => recording.processes.get(n).map(|process| process.at),
        Table::Stacks
        | Table::Frames
        | Table::Cgroups
        | Table::Files
        | Table::Loss
        | Table::Meta => None,
    };
    of_item.unwrap_or(recording.meta.window.start)
}

/// The rows of some items.
pub(super) fn batch(
    export: &Export<'_>,
    table: Table,
    items: &[u32],
) -> Result<RecordBatch, ArrowError> {
    let mut columns = match table {
        Table::Waits => waits::columns(export, items),
        Table::Preemptions => records::preemptions(export, items),
        Table::Samples => records::samples(export, items),
        Table::Threads => threads::columns(export, items),
        Table::Processes => machine::processes(export, items),
        Table::Stacks => stacks::stacks(export, items),
        Table::Frames => stacks::frames(export, items),
        Table::Cgroups => machine::cgroups(export, items),
        Table::Files => machine::files(export, items),
        Table::Loss => meta::loss(export, items),
        Table::Meta => meta::meta(export, items),
        Table::Markers => markers::columns(export, items),
    };
    let rows = columns.first().map_or(0, |(_, _, array)| array.len());
    columns.insert(0, all_names("recording", (0..rows).map(|_| export.id.as_str())));
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = (columns.into_iter())
        .map(|(name, nulls, array)| {
            (Field::new(name, array.data_type().clone(), nulls == Nulls::Allowed), array)
        })
        .unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
}

/// Those of a list that are asked for.
fn pick<'a, T>(list: &'a [T], items: &[u32]) -> Vec<&'a T> {
    items.iter().filter_map(|&item| list.get(item as usize)).collect()
}

/// The wall's time of moments.
fn wall_times(export: &Export<'_>, moments: impl Iterator<Item = Timestamp>) -> Column {
    let times = moments.map(|at| export.clock.time_us(at)).collect::<TimestampMicrosecondArray>();
    ("time", Nulls::Allowed, Arc::new(times.with_timezone("UTC")))
}

/// Who lived under a tid, and which of its names it bore.
fn comms<'a>(
    name: &'static str,
    threads: impl Iterator<Item = Option<(ThreadIndex, &'a Thread, Timestamp)>>,
) -> Column {
    let mut column = Dictionary::new();
    for borne in threads {
        let key = borne.and_then(|(index, thread, at)| Some((index, thread.name_at(at)?)));
        column.push(key, || {
            let (_, thread, at) = borne?;
            thread.comm_at(at).map(str::to_owned)
        });
    }
    column.column(name, Nulls::Allowed)
}

/// The programs that processes ran.
fn executables(
    export: &Export<'_>,
    name: &'static str,
    processes: impl Iterator<Item = (Tgid, Timestamp)>,
) -> Column {
    super::dictionary::names(name, processes.map(|(tgid, at)| export.lookups.executable(tgid, at)))
}

/// `cgroup_id`, `cgroup` and `container`.
fn cgroups(export: &Export<'_>, cgroups: &[Option<CgroupId>]) -> [Column; 3] {
    let ids = cgroups.iter().map(|cgroup| cgroup.map(|CgroupId(id)| id));
    let texts = |name, text: fn(&super::RowLookups<'_>, CgroupId) -> Option<String>| {
        let mut column = Dictionary::new();
        for &cgroup in cgroups {
            column.push(cgroup, || text(&export.lookups, cgroup?));
        }
        column.column(name, Nulls::Allowed)
    };
    [
        offwake_recording::stream::column::optional::<arrow_array::types::UInt64Type>(
            "cgroup_id",
            ids,
        ),
        texts("cgroup", |known, cgroup| known.cgroup_path(cgroup).map(str::to_owned)),
        texts("container", |known, cgroup| known.cgroup_container(cgroup).map(str::to_owned)),
    ]
}

/// The thread that had a tid at a moment.
fn bearer<'a>(
    export: &Export<'a>,
    tid: Tid,
    at: Timestamp,
) -> Option<(ThreadIndex, &'a Thread, Timestamp)> {
    let index = export.timeline.find_thread(tid, at)?;
    Some((index, export.timeline.thread(index)?, at))
}
