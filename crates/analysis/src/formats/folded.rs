//! Folded stacks.

use std::io::{self, Write};

use crate::{
    analysis::Analysis,
    report::{diff::Diff, flame::View, folded},
};

use super::{DiffFormat, OutputFormat};

/// [`crate::report::folded`]
pub(super) struct Folded;

impl OutputFormat for Folded {
    fn name(&self) -> &'static str {
        "folded"
    }

    fn write(&self, analysis: &Analysis<'_>, out: &mut (dyn Write + Send)) -> io::Result<()> {
        folded::write(analysis.report(), &analysis.options().view, out)
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
