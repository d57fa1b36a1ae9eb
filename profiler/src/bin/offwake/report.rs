//! `offwake report`: every output from a recording, without root.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::Path,
};

use anyhow::{Context as _, bail};
use offwake::{
    recording::{Recording, stream},
    symbols::{self, DebugPlaces, RecordedIn, Resymbolized},
};

use crate::{Outcome, cli::ReportCommand, output::Unfinished, reporting::Reporting};

/// Reports.
pub fn run(arguments: &ReportCommand) -> anyhow::Result<Outcome> {
    let reporting = Reporting::prepare(&arguments.report)?;
    let input = Input::open(&arguments.recording, arguments.max_memory)?;
    let mut recording = input.read(arguments.max_memory)?;
    if arguments.resymbolize {
        resymbolize(&mut recording, &arguments.debug_dir);
    }
    let report = reporting.report(&recording);
    let bytes = |out: &mut dyn io::Write| {
        if arguments.resymbolize {
            return stream::write(&recording, out);
        }
        input.copy(out)
    };
    reporting.write(&report, &bytes, &Unfinished::default())
}

/// Where the recording is.
enum Input<'a> {
    File {
        path: &'a Path,
        file: File,
    },
    /// Standard input, which can't be read twice.
    Piped(Vec<u8>),
}

impl<'a> Input<'a> {
    fn open(path: &'a Path, max_memory: usize) -> anyhow::Result<Self> {
        if path == Path::new("-") {
            return Self::from_standard_input(max_memory);
        }
        let cannot = || format!("cannot read {}", path.display());
        // Before it is opened: a FIFO's opening waits for a writer.
        let metadata = std::fs::metadata(path).with_context(cannot)?;
        if metadata.is_dir() {
            bail!("cannot read {}: it is a directory, not a recording", path.display());
        }
        if !metadata.is_file() {
            bail!("cannot read {}: it is no plain file; `-` reads standard input", path.display());
        }
        Ok(Self::File { path, file: File::open(path).with_context(cannot)? })
    }

    fn from_standard_input(max_memory: usize) -> anyhow::Result<Self> {
        let mut bytes = Vec::new();
        let limit = u64::try_from(max_memory).unwrap_or(u64::MAX);
        (io::stdin().lock().take(limit.saturating_add(1)).read_to_end(&mut bytes))
            .context("cannot read standard input")?;
        if bytes.len() > max_memory {
            bail!(
                "cannot read standard input: it takes more than {limit} bytes: raise --max-memory"
            );
        }
        Ok(Self::Piped(bytes))
    }

    fn read(&self, max_memory: usize) -> anyhow::Result<Recording> {
        match self {
            Self::File { path, file } => stream::read(file, max_memory)
                .with_context(|| format!("cannot read {}", path.display())),
            Self::Piped(bytes) => {
                stream::read(&bytes[..], max_memory).context("cannot read standard input")
            }
        }
    }

    /// The recording as it is.
    fn copy(&self, out: &mut dyn io::Write) -> io::Result<()> {
        match self {
            Self::File { file, .. } => {
                let mut file = file;
                file.seek(SeekFrom::Start(0))?;
                io::copy(&mut file, out).map(drop)
            }
            Self::Piped(bytes) => out.write_all(bytes),
        }
    }
}

/// Says on standard error what came of it: what is missing there is missing in the report.
fn resymbolize(recording: &mut Recording, directories: &[std::path::PathBuf]) {
    let this_boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let recorded_in = match this_boot {
        Ok(boot_id) if boot_id.trim() == recording.meta.boot_id => RecordedIn::ThisBoot,
        _ => RecordedIn::AnotherBoot,
    };
    let places = DebugPlaces::new(directories.iter().cloned());
    let table = &mut recording.stacks;
    let done = symbols::resymbolize(table, &places, recorded_in, &mut |_done, _all| {});
    recording.stacks.trim_tracing_frames();
    let Resymbolized {
        modules_found,
        modules_without_build_id,
        modules_without_file,
        modules_of_another_build,
        modules_without_code,
        kernel_was_booted_since,
        frames_named,
        shortfalls,
    } = done;
    recording.loss.add_shortfalls(&shortfalls);
    eprintln!("offwake: named {frames_named} frames of {modules_found} modules again");
    let left = [
        (modules_without_file, "no file was found"),
        (modules_of_another_build, "there are only files of another build"),
        (
            modules_without_code,
            "there is a debug file that needs the file it was made from beside it",
        ),
        (modules_without_build_id, "no build id was recorded"),
    ];
    for (count, why) in left.into_iter().filter(|(count, _)| *count > 0) {
        eprintln!("offwake: {count} modules keep their names: {why}");
    }
    if kernel_was_booted_since {
        eprintln!("offwake: the kernel's names stay: it was booted since, and lies elsewhere now");
    }
}
