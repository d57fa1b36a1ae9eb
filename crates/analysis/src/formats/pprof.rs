//! A profile for pprof.

use std::io::{self, Write};

use crate::{analysis::Analysis, report::pprof};

use super::OutputFormat;

/// [`crate::report::pprof`]
pub(super) struct Pprof;

impl OutputFormat for Pprof {
    fn name(&self) -> &'static str {
        "pprof"
    }

    fn extension(&self) -> &'static str {
        "pb.gz"
    }

    fn write(&self, analysis: &Analysis<'_>, out: &mut (dyn Write + Send)) -> io::Result<()> {
        pprof::write(analysis.report(), &analysis.options().view, out)
    }
}
