//! `offwake profile`: a recording in memory, reported at once.

use anyhow::Context as _;
use offwake::{capture::Memory, recording::stream};

use crate::{Outcome, cli::Profile, output::Unfinished, reporting::Reporting, session::Session};

/// Records, and reports.
pub fn run(arguments: &Profile) -> anyhow::Result<Outcome> {
    let reporting = Reporting::prepare(&arguments.report)?;
    let session = Session::prepare(&arguments.recording, Some(arguments.max_memory))?;
    let unfinished = Unfinished::default();
    let (reporting, analysis, bytes) =
        session.run(Memory::default(), &unfinished, move |written| {
            if let Some(error) = written.failed {
                return Err(error).context("the recording can't be encoded");
            }
            let bytes = written.sink.bytes;
            // What may be in memory was limited while it came.
            let recording = stream::read(&bytes[..], usize::MAX)
                .context("the recording that was just made can't be read")?;
            let analysis = reporting.analyse(recording);
            Ok((reporting, analysis, bytes))
        })?;
    reporting.write(&analysis, &|out| out.write_all(&bytes), &unfinished)
}
