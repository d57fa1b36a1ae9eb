//! Requests as a table: one row each.

use std::{io, sync::Arc};

use arrow_array::{
    ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
    UInt32Array,
};
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use offwake_recording::units::Nanos;

use crate::{
    blame::Blame,
    requests::{RequestAnalysis, RequestRow},
};

use super::{clock::WallClock, parquet};

/// How many rows are put together at a time.
const ROWS_OF_A_BATCH: usize = 64 * 1024;

/// Writes all requests of the classes that are listed as a Parquet file.
///
/// # Errors
///
/// Those of `out`.
pub fn write_requests(
    analysis: &RequestAnalysis,
    blame: &Blame<'_>,
    out: &mut (dyn io::Write + Send),
) -> io::Result<()> {
    let batches = request_batches(analysis, blame);
    parquet::write_batches(schema()?, batches.into_iter(), out)?;
    Ok(())
}

/// Returns the rows of all requests of the classes that are listed.
#[must_use]
pub fn request_batches(
    analysis: &RequestAnalysis,
    blame: &Blame<'_>,
) -> Vec<Result<RecordBatch, ArrowError>> {
    let clock = WallClock::new(&blame.recording().clocks);
    let mut batches = Vec::new();
    let mut columns = RequestColumns::default();
    analysis.visit_rows(blame, &mut |row| {
        columns.push(&clock, row);
        if columns.start_ns.len() >= ROWS_OF_A_BATCH {
            batches.push(std::mem::take(&mut columns).into_batch());
        }
    });
    batches.push(columns.into_batch());
    batches
}

/// The columns of some rows.
#[derive(Default)]
struct RequestColumns {
    time: Vec<Option<i64>>,
    server: Vec<String>,
    serving_end: Vec<String>,
    label: Vec<Option<String>>,
    container: Vec<Option<String>>,
    band: Vec<String>,
    start_ns: Vec<i64>,
    is_start_seen: Vec<bool>,
    latency_ns: Vec<i64>,
    service_ns: Vec<i64>,
    queued_ns: Vec<i64>,
    pid: Vec<Option<u32>>,
    tid: Vec<Option<u32>>,
    server_pid: Vec<Option<u32>>,
    server_tid: Vec<Option<u32>>,
    culprit: Vec<Option<String>>,
    culprit_kind: Vec<Option<&'static str>>,
    culprit_ns: Vec<Option<i64>>,
}

impl RequestColumns {
    fn push(&mut self, clock: &WallClock, row: &RequestRow<'_>) {
        self.time.push(clock.time_us(row.start));
        self.server.push(row.class.server.clone());
        self.serving_end.push(row.class.serving_end.clone());
        self.label.push(row.class.label.clone());
        self.container.push(row.class.container.clone());
        self.band.push(row.band.to_owned());
        self.start_ns.push(row.start.0.cast_signed());
        self.is_start_seen.push(row.is_start_seen);
        self.latency_ns.push(row.latency.0.cast_signed());
        self.service_ns.push(row.service.0.cast_signed());
        self.queued_ns.push(row.queued.0.cast_signed());
        self.pid.push(row.asker.map(|(pid, _)| pid.0));
        self.tid.push(row.asker.map(|(_, tid)| tid.0));
        self.server_pid.push(row.server.map(|(pid, _)| pid.0));
        self.server_tid.push(row.server.map(|(_, tid)| tid.0));
        let culprit = row.culprit.as_ref();
        self.culprit.push(culprit.map(|(culprit, _)| culprit.text.clone()));
        self.culprit_kind.push(culprit.map(|(culprit, _)| culprit.kind.name()));
        self.culprit_ns.push(culprit.map(|&(_, Nanos(ns))| ns.cast_signed()));
    }

    fn into_batch(self) -> Result<RecordBatch, ArrowError> {
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = self.into_columns().into_iter().unzip();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
    }

    fn into_columns(self) -> [(Field, ArrayRef); 18] {
        let time = TimestampMicrosecondArray::from(self.time).with_timezone("UTC");
        [
            nullable("time", Arc::new(time)),
            required("server", Arc::new(StringArray::from(self.server))),
            required("serving_end", Arc::new(StringArray::from(self.serving_end))),
            nullable("label", Arc::new(StringArray::from(self.label))),
            nullable("container", Arc::new(StringArray::from(self.container))),
            required("band", Arc::new(StringArray::from(self.band))),
            required("start_ns", Arc::new(Int64Array::from(self.start_ns))),
            required("is_start_seen", Arc::new(BooleanArray::from(self.is_start_seen))),
            required("latency_ns", Arc::new(Int64Array::from(self.latency_ns))),
            required("service_ns", Arc::new(Int64Array::from(self.service_ns))),
            required("queued_ns", Arc::new(Int64Array::from(self.queued_ns))),
            nullable("pid", Arc::new(UInt32Array::from(self.pid))),
            nullable("tid", Arc::new(UInt32Array::from(self.tid))),
            nullable("server_pid", Arc::new(UInt32Array::from(self.server_pid))),
            nullable("server_tid", Arc::new(UInt32Array::from(self.server_tid))),
            nullable("culprit", Arc::new(StringArray::from(self.culprit))),
            nullable("culprit_kind", Arc::new(StringArray::from(self.culprit_kind))),
            nullable("culprit_ns", Arc::new(Int64Array::from(self.culprit_ns))),
        ]
    }
}

fn required(name: &str, array: ArrayRef) -> (Field, ArrayRef) {
    (Field::new(name, array.data_type().clone(), false), array)
}

fn nullable(name: &str, array: ArrayRef) -> (Field, ArrayRef) {
    (Field::new(name, array.data_type().clone(), true), array)
}

fn schema() -> io::Result<SchemaRef> {
    let empty = RequestColumns::default().into_batch().map_err(io::Error::other)?;
    Ok(empty.schema())
}
