//! Folded stacks.

use std::io::{self, Write};

use crate::{
    analysis::{Analysis, Extent},
    report::{MAX_PATH_BYTES, diff::Diff, flame::View, folded},
};

use super::{DiffFormat, OutputFormat, Written};

/// [`crate::report::folded`]
pub(super) struct Folded;

impl OutputFormat for Folded {
    fn name(&self) -> &'static str {
        "folded"
    }

    fn write(&self, analysis: &Analysis<'_>, out: &mut (dyn Write + Send)) -> io::Result<Written> {
        let (report, view) = (analysis.report(), &analysis.options().view);
        let room = match analysis.options().extent {
            Extent::Full => usize::MAX,
            Extent::Bounded => MAX_PATH_BYTES,
        };
        let small = folded::write_limited(report, view, room, out)?;
        Ok(Written::from_limits(&report.filter, small))
    }

    fn as_diff_format(&self) -> Option<&dyn DiffFormat> {
        Some(self)
    }
}

impl DiffFormat for Folded {
    fn write_diff(
        &self,
        diff: &Diff<'_>,
        view: &View,
        out: &mut (dyn Write + Send),
    ) -> io::Result<()> {
        diff.write_folded(view, out)
    }
}
