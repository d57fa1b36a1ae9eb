//! The report as JSON: see `docs/report-json.md`.
//!
//! ```text
//! Report ──▶ limited ──▶ CompactReport ──▶ offwake.report/2   stacks and hops once, an entry per line
//!        └───────────────────────────────▶ offwake.report/1   with `--full`: everything in its place
//! ```

mod compact;
mod layout;

use std::io;

use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde::Serialize as _;
use serde_json::Serializer;

use crate::{
    analysis::{Analysis, Extent},
    report::{Report, SmallPaths},
};

use self::{compact::CompactReport, layout::EntryPerLine};
use super::{OutputFormat, Written};

/// The report as JSON.
pub(super) struct Json;

impl OutputFormat for Json {
    fn name(&self) -> &'static str {
        "json"
    }

    fn write(
        &self,
        analysis: &Analysis<'_>,
        out: &mut (dyn io::Write + Send),
    ) -> io::Result<Written> {
        if analysis.options().extent == Extent::Full {
            write_full(analysis.report(), out)?;
            return Ok(Written::Everything);
        }
        let report = analysis.build_limited_report();
        write(&report, out)?;
        Ok(Written::from_limits(&report.filter, SmallPaths::default()))
    }
}

/// Writes the report, each stack and each hop once, an entry a line: `offwake.report/2`.
///
/// # Errors
///
/// Those of `out`.
pub fn write(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    let mut serializer = Serializer::with_formatter(&mut *out, EntryPerLine::default());
    CompactReport::new(report).serialize(&mut serializer)?;
    out.write_all(b"\n")
}

/// Writes the report with all stacks in their places, indented: `offwake.report/1`.
///
/// # Errors
///
/// Those of `out`.
pub fn write_full(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    out.write_all(b"\n")
}

/// The JSON schema of what [`write()`] writes; `docs/report.schema.json` is a copy. It allows for
/// more keys than there are: additions are free.
#[must_use]
pub fn schema() -> Schema {
    schema_of::<CompactReport<'static>>(compact::SCHEMA)
}

/// The JSON schema of what [`write_full()`] writes; `docs/report-full.schema.json` is a copy.
#[must_use]
pub fn full_schema() -> Schema {
    schema_of::<Report>("offwake.report/1")
}

/// The JSON schema of a type, under this name.
pub(crate) fn schema_of<T: JsonSchema>(id: &str) -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.insert("$id".to_owned(), id.into());
    schema
}
