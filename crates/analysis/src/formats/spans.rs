//! Requests as spans, in a JSON of our own.

use std::io::{self, Write};

use crate::{analysis::Analysis, spans};

use super::{OutputFormat, Written};

/// [`crate::spans::json`]
pub(super) struct SpansJson;

impl OutputFormat for SpansJson {
    fn name(&self) -> &'static str {
        "spans"
    }

    fn extension(&self) -> &'static str {
        "spans.json"
    }

    fn write(&self, analysis: &Analysis<'_>, out: &mut (dyn Write + Send)) -> io::Result<Written> {
        spans::json::write(analysis.input().recording(), analysis.spans(), out)?;
        Ok(Written::Everything)
    }
}
