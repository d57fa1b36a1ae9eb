//! A trace for Perfetto.

use std::io::{self, Write};

use crate::{
    analysis::{Analysis, Extent},
    perfetto::{self, TraceInput, TraceLimits},
};

use super::{OutputFormat, Readers, Written};

/// [`crate::perfetto`]
pub(super) struct Perfetto;

impl OutputFormat for Perfetto {
    fn name(&self) -> &'static str {
        "pftrace"
    }

    fn readers(&self) -> Readers {
        Readers::Owner
    }

    fn write(&self, analysis: &Analysis<'_>, out: &mut (dyn Write + Send)) -> io::Result<Written> {
        let (blame, spans) = (analysis.blame(), analysis.spans());
        let limits = match analysis.options().extent {
            Extent::Full => TraceLimits::NONE,
            Extent::Bounded => TraceLimits::USABLE,
        };
        let filter = &analysis.options().filter;
        let left_out = perfetto::write(TraceInput { blame, filter, spans, limits }, out)?;
        Ok(left_out.describe().map_or(Written::Everything, Written::Limited))
    }
}
