//! `offwake profile`: a recording in memory, reported at once.

use anyhow::Context as _;
use offwake::capture::Assembled;

use crate::{
    Outcome, cli::Profile, name_arguments::say_fetched, output::Unfinished, reporting::Reporting,
    session::Session,
};

/// Records, and reports.
pub fn run(arguments: &Profile) -> anyhow::Result<Outcome> {
    let reporting = Reporting::prepare(&arguments.report)?;
    let names = arguments.names.sources()?;
    let session =
        Session::prepare(&arguments.recording, Some(arguments.max_memory))?.named_by(names.clone());
    let unfinished = Unfinished::default();
    let sink =
        if reporting.wants_recording() { Assembled::with_bytes() } else { Assembled::default() };
    let (reporting, analysis, bytes) = session.run(sink, &unfinished, move |written| {
        if let Some(error) = written.failed {
            return Err(error).context("the recording can't be encoded");
        }
        let (recording, bytes) = written.sink.finish();
        let analysis = reporting.analyse(recording);
        Ok((reporting, analysis, bytes.unwrap_or_default()))
    })?;
    say_fetched(&names);
    reporting.write(analysis, &|_recording, out| out.write_all(&bytes), &unfinished)
}
