//! `offwake record`: a recording in a file.

use std::path::Path;

use anyhow::Context as _;
use offwake::capture::{Pipe, RecordingFile, Sink, Written};

use crate::{
    Outcome,
    cli::Record,
    output::{Destination, Terminal, Unfinished},
    session::Session,
};

/// Records.
pub fn run(arguments: &Record) -> anyhow::Result<Outcome> {
    let path = &arguments.output;
    let unfinished = Unfinished::default();
    if path == Path::new("-") {
        let session = Session::prepare(&arguments.recording, None)?;
        let written = session.run(Pipe(std::io::stdout()), &unfinished, whole)?;
        return end(&written, "standard output");
    }
    let name = path.display().to_string();
    match Destination::of(path)? {
        Destination::Special(_) => {
            let file = std::fs::OpenOptions::new().write(true).open(path);
            let sink = Pipe(file.with_context(|| format!("cannot write {name}"))?);
            let session = Session::prepare(&arguments.recording, None)?;
            end(&session.run(sink, &unfinished, whole)?, &name)
        }
        Destination::File(_) | Destination::StandardOutput => {
            let sink =
                RecordingFile::create(path).with_context(|| format!("cannot write {name}"))?;
            let session = Session::prepare(&arguments.recording, None)?;
            let written = session.run(sink, &unfinished, whole)?;
            let outcome = end(&written, &name)?;
            Terminal::standard_output()
                .line(&format!("wrote {name}, {} bytes", written.sink.length()))?;
            Ok(outcome)
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "sessions may do more with what was written")]
fn whole<S>(written: Written<S>) -> anyhow::Result<Written<S>> {
    Ok(written)
}

fn end<S: Sink>(written: &Written<S>, name: &str) -> anyhow::Result<Outcome> {
    if let Some(error) = &written.failed {
        eprintln!("offwake: {name}: {error}: the recording ends where that happened");
        return Ok(Outcome::Failed);
    }
    Ok(Outcome::Done)
}
