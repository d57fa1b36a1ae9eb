//! The findings as Markdown, to be pasted into an incident's channel.

use std::io::{self, Write};

use crate::{analysis::Analysis, report::markdown};

use super::{OutputFormat, Written};

/// [`crate::report::markdown`]
pub(super) struct Markdown;

impl OutputFormat for Markdown {
    fn name(&self) -> &'static str {
        "md"
    }

    fn write(&self, analysis: &Analysis<'_>, out: &mut (dyn Write + Send)) -> io::Result<Written> {
        markdown::write(analysis.overview().report(), out)?;
        Ok(Written::Everything)
    }
}
