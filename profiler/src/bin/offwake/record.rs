//! `offwake record`: a recording in a file.

use std::path::Path;

use anyhow::Context as _;
use offwake::{
    capture::{FileSink, PipeSink, WaitCounts},
    symbols::NameSources,
};

use crate::{
    cli::Record,
    console::Terminal,
    flight_recorder,
    name_arguments::print_fetched,
    outcome::Outcome,
    output::{Destination, PartialFile},
    session::{EndedSession, Session},
};

/// Records into a file, a device or a pipe.
pub fn run(arguments: &Record) -> anyhow::Result<Outcome> {
    if let Some(keep) = arguments.keep {
        return flight_recorder::run(arguments, keep);
    }
    let names = arguments.names.sources()?;
    let outcome = record(arguments, &names);
    print_fetched(&names);
    outcome
}

fn record(arguments: &Record, names: &NameSources) -> anyhow::Result<Outcome> {
    let path = &arguments.output;
    let partial_file = PartialFile::default();
    if path == Path::new("-") {
        let session = session(arguments, names)?;
        let EndedSession { result: written, command } =
            session.run(PipeSink(std::io::stdout()), &partial_file, Ok)?;
        let outcome = Outcome::from_written(&written, "standard output")?;
        return Ok(outcome.pass_on(command.as_ref()));
    }
    let name = path.display().to_string();
    match Destination::from_path(path)? {
        Destination::Special { file, .. } => {
            let sink = PipeSink(file);
            let session = session(arguments, names)?;
            let EndedSession { result: written, command } = session.run(sink, &partial_file, Ok)?;
            Ok(Outcome::from_written(&written, &name)?.pass_on(command.as_ref()))
        }
        Destination::File(_) | Destination::StandardOutput => {
            let sink = FileSink::create(path).with_context(|| format!("cannot write {name}"))?;
            let session = session(arguments, names)?;
            let EndedSession { result: written, command } = session.run(sink, &partial_file, Ok)?;
            let WaitCounts { waits, target_waits } = written.counts;
            let (length, bytes) = (written.length, written.sink.length());
            if written.sink.has_begun() {
                Terminal::messages().line(&format!(
                    "wrote {name}: {length}, {target_waits} waits of the target and {} others, {bytes} bytes",
                    waits - target_waits,
                ))?;
            }
            Ok(Outcome::from_written(&written, &name)?.pass_on(command.as_ref()))
        }
    }
}

fn session(arguments: &Record, names: &NameSources) -> anyhow::Result<Session> {
    Ok(Session::prepare(&arguments.recording, None)?.with_names(names.clone()))
}
