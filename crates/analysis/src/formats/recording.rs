//! The recording that everything else is made from.

use std::io::{self, Write};

use crate::analysis::Analysis;

use super::{OutputFormat, Readers, Written};

/// [`offwake_recording::stream`]
pub struct RecordingFile;

impl OutputFormat for RecordingFile {
    fn name(&self) -> &'static str {
        "offwake"
    }

    /// A recording also has addresses of the kernel and of every program in it.
    fn readers(&self) -> Readers {
        Readers::Owner
    }

    fn needs_encoded_recording(&self) -> bool {
        true
    }

    fn write(&self, analysis: &Analysis<'_>, out: &mut (dyn Write + Send)) -> io::Result<Written> {
        analysis.input().write_recording(out)?;
        Ok(Written::Everything)
    }
}
