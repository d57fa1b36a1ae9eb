//! The report as JSON, schema `offwake.report/1`: see `docs/report-json.md`.

use std::io;

use schemars::{Schema, generate::SchemaSettings};

use crate::{analysis::Analysis, report::Report};

use super::OutputFormat;

/// The report as JSON.
pub(super) struct Json;

impl OutputFormat for Json {
    fn name(&self) -> &'static str {
        "json"
    }

    fn write(&self, analysis: &Analysis<'_>, out: &mut (dyn io::Write + Send)) -> io::Result<()> {
        write(analysis.report(), out)
    }
}

/// Writes the report, indented, with a newline at its end.
///
/// # Errors
///
/// Those of `out`.
pub fn write(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    out.write_all(b"\n")
}

/// The JSON schema of what [`write()`] writes; `docs/report.schema.json` is a copy. It allows for
/// more keys than there are: additions are free.
#[must_use]
pub fn schema() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<Report>();
    schema.insert("$id".to_owned(), "offwake.report/1".into());
    schema
}
