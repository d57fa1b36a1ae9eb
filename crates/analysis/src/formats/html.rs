//! A page with everything in it.

use std::io::{self, Write};

use crate::{
    analysis::Analysis,
    report::{SmallPaths, html},
};

use super::{OutputFormat, Written};

/// [`crate::report::html`]
pub(super) struct Html;

impl OutputFormat for Html {
    fn name(&self) -> &'static str {
        "html"
    }

    fn write(&self, analysis: &Analysis<'_>, out: &mut (dyn Write + Send)) -> io::Result<Written> {
        // In this order, both are made of one walk.
        let lanes = analysis.lanes();
        html::write(analysis.report(), lanes, analysis.requests().summary(), out)?;
        Ok(Written::from_limits(&analysis.report().filter, SmallPaths::default()))
    }
}
