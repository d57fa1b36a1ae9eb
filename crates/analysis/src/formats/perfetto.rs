//! A trace for Perfetto.

use std::io::{self, Write};

use crate::{
    analysis::{Analysis, Extent},
    perfetto::{self, TraceInput},
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
        let most_waits = match analysis.options().extent {
            Extent::Full => usize::MAX,
            Extent::Bounded => perfetto::MAX_WAITS,
        };
        let filter = &analysis.options().filter;
        match perfetto::write(TraceInput { blame, filter, spans, most_waits }, out)? {
            0 => Ok(Written::Everything),
            left_out => Ok(Written::Limited(format!(
                "has {left_out} shorter waits without their stacks and wakers' slices"
            ))),
        }
    }
}
