//! The waits as a table.

use std::io::{self, Write};

use crate::{
    analysis::Analysis,
    export::{Export, Table, parquet},
};

use super::{OutputFormat, Written};

/// [`crate::export::parquet`]
pub struct Parquet;

impl OutputFormat for Parquet {
    fn name(&self) -> &'static str {
        "parquet"
    }

    fn write(&self, analysis: &Analysis<'_>, out: &mut (dyn Write + Send)) -> io::Result<Written> {
        let export = Export::new(analysis.blame());
        let waits = export.filtered_waits(&analysis.options().filter);
        parquet::write(&export, Table::Waits, &waits, out)?;
        Ok(Written::Everything)
    }
}
