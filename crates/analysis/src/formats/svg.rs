//! A flame graph.

use std::io::{self, Write};

use crate::{
    analysis::Analysis,
    report::{SmallPaths, diff::Diff, flame::View, svg},
};

use super::{DiffFormat, OutputFormat, Written};

/// [`crate::report::svg`]
pub(super) struct Svg;

impl OutputFormat for Svg {
    fn name(&self) -> &'static str {
        "svg"
    }

    fn write(&self, analysis: &Analysis<'_>, out: &mut (dyn Write + Send)) -> io::Result<Written> {
        let (overview, view) = (analysis.overview().report(), &analysis.options().view);
        // Hops are drawn of findings, which nothing is left out of.
        let report = if svg::draws_hops(overview, view) { overview } else { analysis.report() };
        svg::write(report, view, out)?;
        Ok(Written::from_limits(&report.filter, SmallPaths::default()))
    }

    fn as_diff_format(&self) -> Option<&dyn DiffFormat> {
        Some(self)
    }
}

impl DiffFormat for Svg {
    fn write_diff(
        &self,
        diff: &Diff<'_>,
        view: &View,
        out: &mut (dyn Write + Send),
    ) -> io::Result<()> {
        svg::write_diff(diff, view, out)
    }
}
