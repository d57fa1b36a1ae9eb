//! `offwake record`: a recording in a file.

use std::path::Path;

use anyhow::{Context as _, bail};
use offwake::{
    capture::{Counts, Pipe, RecordingFile, Sink, Written},
    symbols::NameSources,
};

use crate::{
    Outcome,
    cli::Record,
    console::Terminal,
    flight,
    name_arguments::say_fetched,
    output::{Destination, Unfinished, open_special},
    session::Session,
};

/// Records.
pub fn run(arguments: &Record) -> anyhow::Result<Outcome> {
    if let Some(keep) = arguments.keep {
        return flight::run(arguments, keep);
    }
    let names = arguments.names.sources()?;
    let outcome = record(arguments, &names);
    say_fetched(&names);
    outcome
}

fn record(arguments: &Record, names: &NameSources) -> anyhow::Result<Outcome> {
    let path = &arguments.output;
    let unfinished = Unfinished::default();
    if path == Path::new("-") {
        let session = session(arguments, names)?;
        let written = session.run(Pipe(std::io::stdout()), &unfinished, whole)?;
        return end(&written, "standard output");
    }
    let name = path.display().to_string();
    match Destination::of(path)? {
        Destination::Special(_) => {
            let sink = Pipe(open_special(path).with_context(|| format!("cannot write {name}"))?);
            let session = session(arguments, names)?;
            end(&session.run(sink, &unfinished, whole)?, &name)
        }
        Destination::File(_) | Destination::StandardOutput => {
            let sink =
                RecordingFile::create(path).with_context(|| format!("cannot write {name}"))?;
            let session = session(arguments, names)?;
            let written = session.run(sink, &unfinished, whole)?;
            let Counts { waits, target_waits } = written.counts;
            let (length, bytes) = (written.length, written.sink.length());
            Terminal::remarks().line(&format!(
                "wrote {name}: {length}, {target_waits} waits of the target and {} others, {bytes} bytes",
                waits - target_waits,
            ))?;
            end(&written, &name)
        }
    }
}

fn session(arguments: &Record, names: &NameSources) -> anyhow::Result<Session> {
    Ok(Session::prepare(&arguments.recording, None)?.named_by(names.clone()))
}

#[expect(clippy::unnecessary_wraps, reason = "a session may do more with what was written")]
fn whole<S>(written: Written<S>) -> anyhow::Result<Written<S>> {
    Ok(written)
}

/// What came of it, when it is over.
pub fn end<S: Sink>(written: &Written<S>, name: &str) -> anyhow::Result<Outcome> {
    if let Some(error) = &written.failed {
        bail!("cannot write {name}: {error}: the recording ends after {}", written.length);
    }
    if written.counts.target_waits == 0 {
        eprintln!("offwake: nothing was recorded: no thread of the target waited");
        return Ok(Outcome::NothingRecorded);
    }
    Ok(Outcome::Done)
}
