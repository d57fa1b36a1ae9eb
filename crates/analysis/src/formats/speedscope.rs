//! A file for speedscope.

use std::io::{self, Write};

use crate::{analysis::Analysis, report::speedscope};

use super::OutputFormat;

/// [`crate::report::speedscope`]
pub(super) struct Speedscope;

impl OutputFormat for Speedscope {
    fn name(&self) -> &'static str {
        "speedscope"
    }

    fn extension(&self) -> &'static str {
        "speedscope.json"
    }

    fn write(&self, analysis: &Analysis<'_>, out: &mut (dyn Write + Send)) -> io::Result<()> {
        speedscope::write(analysis.report(), &analysis.options().view, out)
    }
}
