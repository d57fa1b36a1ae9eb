//! The report as JSON, schema `offwake.report/1`: see `docs/report-json.md`.

use std::io;

use super::Report;

/// Writes the report, indented, with a newline at its end.
///
/// # Errors
///
/// Those of `out`.
pub fn write(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    out.write_all(b"\n")
}
