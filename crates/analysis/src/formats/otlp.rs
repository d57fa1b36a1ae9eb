//! Requests as spans, as OpenTelemetry's collectors read them from files.

use std::io::{self, Write};

use crate::analysis::Analysis;

use super::{OutputFormat, Written};

/// [`crate::spans::otlp`]
pub(super) struct Otlp;

impl OutputFormat for Otlp {
    fn name(&self) -> &'static str {
        "otlp"
    }

    fn extension(&self) -> &'static str {
        "otlp.json"
    }

    fn write(&self, analysis: &Analysis<'_>, out: &mut (dyn Write + Send)) -> io::Result<Written> {
        analysis.otlp_exporter().write(out)?;
        Ok(Written::Everything)
    }
}
