//! `offwake report`: every output from a recording, without root.

use std::{fs::File, io, path::Path};

use anyhow::{Context as _, bail};
use offwake::recording::{Recording, stream};

use crate::{Outcome, cli::ReportCommand, output::Unfinished, reporting::Reporting};

/// Reports.
pub fn run(arguments: &ReportCommand) -> anyhow::Result<Outcome> {
    let reporting = Reporting::prepare(&arguments.report)?;
    let path = &arguments.recording;
    let file = open(path)?;
    let recording = read(&file, path, arguments.max_memory)?;
    let report = reporting.report(&recording);
    let bytes = |out: &mut dyn io::Write| {
        let mut file = File::open(path)?;
        io::copy(&mut file, out).map(drop)
    };
    reporting.write(&report, &bytes, &Unfinished::default())
}

fn open(path: &Path) -> anyhow::Result<File> {
    let cannot = || format!("cannot read {}", path.display());
    // Before it is opened: a FIFO's opening waits for a writer.
    let metadata = std::fs::metadata(path).with_context(cannot)?;
    if metadata.is_dir() {
        bail!("cannot read {}: it is a directory, not a recording", path.display());
    }
    if !metadata.is_file() {
        bail!("cannot read {}: it is no plain file: copy it into one first", path.display());
    }
    File::open(path).with_context(cannot)
}

fn read(file: &File, path: &Path, max_memory: usize) -> anyhow::Result<Recording> {
    stream::read(file, max_memory).with_context(|| format!("cannot read {}", path.display()))
}
