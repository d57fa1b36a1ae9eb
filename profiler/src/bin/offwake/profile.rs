//! `offwake profile`: a recording in memory, reported at once.

use std::sync::OnceLock;

use offwake::capture::AssemblingSink;
use offwake_analysis::analysis::AnalysisInput;

use crate::{
    cli::Profile,
    name_arguments::print_fetched,
    outcome::Outcome,
    reporting::Reporting,
    session::{EndedSession, Session},
};

/// Records into memory, and writes every output.
pub fn run(arguments: &Profile) -> anyhow::Result<Outcome> {
    let reporting = Reporting::prepare(&arguments.report)?;
    let names = arguments.names.sources()?;
    let session = Session::prepare(&arguments.recording, Some(arguments.max_memory))?
        .with_names(names.clone());
    let sink = if reporting.needs_encoded_recording() {
        AssemblingSink::with_bytes()
    } else {
        AssemblingSink::default()
    };
    // The input outlives the session, whose last thread fills and analyses it.
    let input = OnceLock::new();
    let EndedSession { result, command } = session.run(sink, |written| {
        let failure = written.broken.map(anyhow::Error::from).or_else(|| {
            Some(
                anyhow::Error::from(written.failed?).context("the recording can't be put together"),
            )
        });
        let (recording, bytes) = written.sink.finish();
        let input = input.get_or_init(|| match bytes {
            Some(bytes) => AnalysisInput::with_encoded(recording, Box::new(bytes)),
            None => AnalysisInput::new(recording),
        });
        Ok((reporting.analyse(input), failure))
    })?;
    let (analysis, failure) = result;
    print_fetched(&names);
    let outcome = reporting.write(analysis)?;
    match failure {
        Some(error) => Err(error.context("the run ended early, and what came before is reported")),
        None => Ok(outcome.pass_on(command.as_ref())),
    }
}
