//! `offwake profile`: a recording in memory, reported at once.

use std::sync::OnceLock;

use anyhow::Context as _;
use offwake::capture::AssemblingSink;
use offwake_analysis::analysis::AnalysisInput;

use crate::{
    cli::Profile,
    name_arguments::print_fetched,
    outcome::Outcome,
    output::PartialFile,
    reporting::Reporting,
    session::{EndedSession, Session},
};

/// Records into memory, and writes every output.
pub fn run(arguments: &Profile) -> anyhow::Result<Outcome> {
    let reporting = Reporting::prepare(&arguments.report)?;
    let names = arguments.names.sources()?;
    let session = Session::prepare(&arguments.recording, Some(arguments.max_memory))?
        .with_names(names.clone());
    let partial_file = PartialFile::default();
    let sink = if reporting.needs_encoded_recording() {
        AssemblingSink::with_bytes()
    } else {
        AssemblingSink::default()
    };
    // The input outlives the session, whose last thread fills and analyses it.
    let input = OnceLock::new();
    let EndedSession { result, command } = session.run(sink, &partial_file, |written| {
        if let Some(error) = written.failed {
            return Err(error).context("the recording can't be encoded");
        }
        let (recording, bytes) = written.sink.finish();
        Ok(reporting.analyse(input.get_or_init(|| match bytes {
            Some(bytes) => AnalysisInput::with_encoded(recording, Box::new(bytes)),
            None => AnalysisInput::new(recording),
        })))
    })?;
    print_fetched(&names);
    Ok(reporting.write(result, &partial_file)?.pass_on(command.as_ref()))
}
