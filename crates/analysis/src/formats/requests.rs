//! Requests and what they took: what they come to as JSON, each of them as a row of a table.

use std::io::{self, Write};

use crate::{analysis::Analysis, export};

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
        serde_json::to_writer_pretty(&mut *out, analysis.requests().summary())?;
        out.write_all(b"\n")?;
        Ok(Written::Everything)
    }
}

/// [`export::write_requests`]
pub(super) struct RequestsParquet;

impl OutputFormat for RequestsParquet {
    fn name(&self) -> &'static str {
        "requests-parquet"
    }

    fn extension(&self) -> &'static str {
        "requests.parquet"
    }

    fn write(&self, analysis: &Analysis<'_>, out: &mut (dyn Write + Send)) -> io::Result<Written> {
        export::write_requests(analysis.requests(), analysis.blame(), out)?;
        Ok(Written::Everything)
    }
}
