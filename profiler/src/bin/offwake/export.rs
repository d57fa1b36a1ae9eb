//! `offwake export`: a recording as a tree of Parquet files, one table for the recordings of all
//! hosts.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use offwake_analysis::{
    analysis::{Analysis, AnalysisInput, AnalysisOptions},
    export::{self, Export, Partition, Table},
    formats::{OutputFormat as _, Parquet},
};
use offwake_recording::Recording;

use crate::{
    cli::ExportCommand,
    console::{Progress, Terminal},
    input::{OpenInput, drop_rights},
    outcome::Outcome,
    output::new_file_beside,
    terminal_thread::print_error,
};

/// A file that is whole under a temporary name, and is renamed when all of them are.
struct WrittenFile {
    temporary: tempfile::TempPath,
    path: PathBuf,
}

/// Exports a recording.
pub fn run(arguments: &ExportCommand) -> anyhow::Result<Outcome> {
    let ExportCommand { recording, directory, max_memory } = arguments;
    if directory.exists() && !directory.is_dir() {
        bail!("cannot export to {}: it is there, and no directory", directory.display());
    }
    let input = OpenInput::open(recording)?;
    drop_rights();
    let input = AnalysisInput::new(input.fetch(*max_memory)?.read(*max_memory)?);
    let analysis = Analysis::new(&input, AnalysisOptions::default());
    let export = Export::new(analysis.blame());
    let host = export::host_directory(&input.recording().meta.host);
    let name = format!("{}.{}", export.recording_id(), Parquet.extension());

    let mut written = Vec::new();
    let progress = Progress::start("exporting");
    for table in Table::ALL {
        progress.set_message(&format!("exporting {}", table.name()));
        let host_directory = directory.join(table.name()).join(&host);
        for part in export.partitions(table)? {
            let path = host_directory.join(part.hour.to_string()).join(&name);
            let temporary = write(&export, table, &part, &path)
                .with_context(|| format!("cannot write {}", path.display()))?;
            written.push(WrittenFile { temporary, path });
        }
    }
    let paths: Vec<PathBuf> = written.iter().map(|file| file.path.clone()).collect();
    // All are whole: what can go wrong from here on is next to nothing.
    for WrittenFile { temporary, path } in written {
        temporary
            .persist(&path)
            .map_err(|error| error.error)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut changed = paths.clone();
    for table in Table::ALL {
        changed.extend(remove_others(&directory.join(table.name()).join(&host), &name, &paths)?);
    }
    sync_directories(directory, &changed)?;
    print_result(input.recording(), directory, paths.len())
}

fn write(
    export: &Export<'_>,
    table: Table,
    part: &Partition,
    path: &Path,
) -> io::Result<tempfile::TempPath> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let file = new_file_beside(path, table.readers())?;
    let mut out = BufWriter::new(file.as_file());
    export::parquet::write(export, table, part, &mut out)?;
    out.flush()?;
    drop(out);
    file.as_file().sync_all()?;
    Ok(file.into_temp_path())
}

/// Removes the files of an earlier export of the same recording that this one has not replaced, and returns them: a
/// recording that was exported while it was damaged otherwise, say.
fn remove_others(host: &Path, name: &str, replaced: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for date in directories(host)? {
        for hour in directories(&date)? {
            let path = hour.join(name);
            if !replaced.contains(&path) && path.is_file() {
                fs::remove_file(&path)
                    .with_context(|| format!("cannot remove {}", path.display()))?;
                removed.push(path);
            }
        }
    }
    Ok(removed)
}

/// Writes the names of these files to their disk, and those of the directories that they are in: what was said to be
/// exported is there after a power failure.
fn sync_directories(tree: &Path, changed: &[PathBuf]) -> anyhow::Result<()> {
    let mut directories = BTreeSet::new();
    for path in changed {
        let above = path.ancestors().skip(1).take_while(|above| above.starts_with(tree));
        directories.extend(above);
    }
    let here = Path::new(".");
    directories.insert(tree.parent().filter(|above| *above != Path::new("")).unwrap_or(here));
    for directory in directories {
        match File::open(directory).and_then(|directory| directory.sync_all()) {
            // Not every file system can: then there is no name that could be lost.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            // The tree may be all that the caller can write to and read.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            synced => synced
                .with_context(|| format!("cannot sync {} to its disk", directory.display()))?,
        }
    }
    Ok(())
}

fn directories(parent: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let cannot = || format!("cannot read {}", parent.display());
    let entries = match fs::read_dir(parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(cannot)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.with_context(cannot)?;
        if entry.file_type().with_context(cannot)?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

fn print_result(recording: &Recording, directory: &Path, files: usize) -> anyhow::Result<Outcome> {
    let damage = &recording.damage;
    if damage.cut_off {
        print_error("the recording is cut off: what came before is exported");
    }
    let damaged = damage.slices_damaged + damage.slices_missing + damage.tables_damaged;
    if damaged > 0 || damage.rows_unreadable > 0 || damage.bytes_skipped > 0 {
        print_error(
            "the recording is damaged: what is whole is exported, and the table meta says what is \
             missing",
        );
    }
    Terminal::messages().line(&format!(
        "exported {} waits in {files} files below {}",
        recording.waits.len(),
        directory.display()
    ))?;
    Ok(Outcome::Done)
}
