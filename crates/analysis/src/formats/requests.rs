//! Requests and what they took, as JSON.

use std::io::{self, Write};

use crate::analysis::Analysis;

use super::{OutputFormat, Written};

/// [`crate::requests::Requests`]
pub(super) struct RequestsJson;

impl OutputFormat for RequestsJson {
    fn name(&self) -> &'static str {
        "requests"
    }

    fn extension(&self) -> &'static str {
        "requests.json"
    }

    fn write(&self, analysis: &Analysis<'_>, out: &mut (dyn Write + Send)) -> io::Result<Written> {
        serde_json::to_writer_pretty(&mut *out, analysis.requests())?;
        out.write_all(b"\n")?;
        Ok(Written::Everything)
    }
}
