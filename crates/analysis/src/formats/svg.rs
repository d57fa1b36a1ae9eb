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
        svg::write(analysis.report(), &analysis.options().view, out)?;
        Ok(Written::from_limits(&analysis.report().filter, SmallPaths::default()))
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
