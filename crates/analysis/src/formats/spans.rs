//! Requests as spans, in a JSON of our own.

use std::io::{self, Write};

use crate::{analysis::Analysis, spans};

use super::OutputFormat;

/// [`crate::spans::json`]
pub(super) struct SpansJson;

impl OutputFormat for SpansJson {
    fn name(&self) -> &'static str {
        "spans"
    }

    fn extension(&self) -> &'static str {
        "spans.json"
    }

    fn write(&self, analysis: &Analysis<'_>, out: &mut (dyn Write + Send)) -> io::Result<()> {
        spans::json::write(analysis.input().recording(), analysis.spans(), out)
    }
}
