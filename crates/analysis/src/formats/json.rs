//! The report as JSON.

use std::io::{self, Write};

use crate::{analysis::Analysis, report::json};

use super::OutputFormat;

/// [`crate::report::json`]
pub(super) struct Json;

impl OutputFormat for Json {
    fn name(&self) -> &'static str {
        "json"
    }

    fn write(&self, analysis: &Analysis<'_>, out: &mut (dyn Write + Send)) -> io::Result<()> {
        json::write(analysis.report(), out)
    }
}
