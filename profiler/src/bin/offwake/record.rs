//! `offwake record`: a recording in a file.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
};

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
    output::Destination,
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
    if path == Path::new("-") {
        let sink = take_standard_output()
            .and_then(PipeSink::adopt)
            .context("cannot write standard output")?;
        let session = session(arguments, names)?;
        let EndedSession { result: written, command } = session.run(sink, Ok)?;
        let outcome = Outcome::from_written(&written, "standard output")?;
        return Ok(outcome.pass_on(command.as_ref()));
    }
    let name = path.display().to_string();
    match Destination::from_path(path)? {
        Destination::Special { file, .. } => {
            let sink =
                PipeSink::adopt(file.into()).with_context(|| format!("cannot write {name}"))?;
            let session = session(arguments, names)?;
            let EndedSession { result: written, command } = session.run(sink, Ok)?;
            Ok(Outcome::from_written(&written, &name)?.pass_on(command.as_ref()))
        }
        Destination::File(_) | Destination::StandardOutput => {
            let sink = FileSink::create(path).with_context(|| format!("cannot write {name}"))?;
            let session = session(arguments, names)?;
            let EndedSession { result: written, command } = session.run(sink, Ok)?;
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

/// Takes standard output away from this process: the file that it is may never answer, not even as it is closed.
/// What a command prints goes to standard error then, and not into the recording.
fn take_standard_output() -> io::Result<OwnedFd> {
    let taken = io::stdout().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok(taken)
}

fn session(arguments: &Record, names: &NameSources) -> anyhow::Result<Session> {
    Ok(Session::prepare(&arguments.recording, None)?.with_names(names.clone()))
}
