//! A trace for Perfetto.

use std::io::{self, Write};

use crate::{
    analysis::Analysis,
    perfetto::{self, TraceInput},
};

use super::OutputFormat;

/// [`crate::perfetto`]
pub(super) struct Perfetto;

impl OutputFormat for Perfetto {
    fn name(&self) -> &'static str {
        "pftrace"
    }

    fn write(&self, analysis: &Analysis<'_>, out: &mut (dyn Write + Send)) -> io::Result<()> {
        let (blame, spans) = (analysis.blame(), analysis.spans());
        perfetto::write(TraceInput { blame, filter: &analysis.options().filter, spans }, out)
    }
}
