//! Where snapshots go: into files, or as bytes to a live view. Only the output's thread waits for
//! the disk or for whoever looks.

use std::{
    collections::VecDeque,
    ffi::OsString,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use offwake_recording::units::Nanos;
use tempfile::NamedTempFile;

use super::{
    retained::Retention,
    snapshot::{FrameTables, RetainedSnapshot},
};
use crate::{
    capture::messages::{SnapshotReason, WaitCounts},
    privileges::{self, Task},
    writer_process::{self, sync_directory_of},
};

/// A half-written file, to be removed by whoever ends the program.
pub type PartialFile = Arc<Mutex<Option<PathBuf>>>;

/// What became of a snapshot.
#[derive(Debug)]
pub enum SnapshotEvent {
    /// The snapshot is in a file.
    Wrote {
        /// The file.
        path: PathBuf,
        /// The time that the snapshot covers.
        length: Nanos,
        /// How many waits the snapshot has.
        counts: WaitCounts,
        /// How many bytes the file has.
        bytes: u64,
        /// Why the snapshot was written.
        reason: SnapshotReason,
    },
    /// An older file of the same run had to make room.
    Removed {
        /// The file.
        path: PathBuf,
    },
    /// A file could not be written or removed.
    Failed {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        error: io::Error,
    },
    /// The snapshot was not written: the ones before it still had to be.
    Skipped,
}

/// What a flight recorder that writes files is to do.
pub struct FlightRecorderPlan {
    /// Where the last snapshot goes; those before it get a number before the extension, the first
    /// that no file has.
    pub path: PathBuf,
    /// How much is retained.
    pub retention: Retention,
    /// Bytes of memory that may be used for it.
    pub max_memory: usize,
    /// How many snapshots of this run stay.
    pub max_snapshots: usize,
    /// Is called with what becomes of each snapshot, by the thread that writes them.
    pub report: Box<dyn FnMut(SnapshotEvent) + Send>,
    /// The file that is half written, if one is.
    pub partial_file: PartialFile,
}

/// Receives a snapshot: the bytes of a recording, or why it can't be encoded.
pub type Viewer = Box<dyn FnMut(io::Result<Vec<u8>>) + Send>;

/// Takes snapshots, in a thread of its own.
pub(super) trait SnapshotOutput: Send + 'static {
    /// Gives up the rights that the output's thread does not need.
    fn drop_rights(&self);

    /// Writes a snapshot of a run that goes on, and reports what became of it.
    fn write(&mut self, snapshot: RetainedSnapshot, tables: &FrameTables, reason: SnapshotReason);

    /// Writes what is retained when the run is over.
    ///
    /// # Errors
    ///
    /// If it can't be written.
    fn write_last(&mut self, snapshot: RetainedSnapshot, tables: &FrameTables) -> io::Result<()>;

    /// Reports that a snapshot was asked for while too many were waiting.
    fn report_skipped(&mut self);
}

/// Hands snapshots to a live view. It never skips one: whoever asks waits for the answer.
pub(super) struct ViewOutput(pub Viewer);

impl SnapshotOutput for ViewOutput {
    fn drop_rights(&self) {
        privileges::restrict_to(Task::Other);
    }

    fn write(&mut self, snapshot: RetainedSnapshot, tables: &FrameTables, _reason: SnapshotReason) {
        let mut bytes = Vec::new();
        let written = snapshot.write(tables, &mut bytes);
        (self.0)(written.map(|()| bytes));
    }

    fn write_last(&mut self, snapshot: RetainedSnapshot, tables: &FrameTables) -> io::Result<()> {
        self.write(snapshot, tables, SnapshotReason::End);
        Ok(())
    }

    fn report_skipped(&mut self) {}
}

/// Writes snapshots into numbered files, and removes the oldest ones.
pub(super) struct FileOutput {
    path: PathBuf,
    max_snapshots: usize,
    report: Box<dyn FnMut(SnapshotEvent) + Send>,
    partial_file: PartialFile,
    /// The number of the next snapshot, if no file has it.
    next_number: u64,
    written: VecDeque<PathBuf>,
}

impl FileOutput {
    pub fn new(plan: FlightRecorderPlan) -> Self {
        let FlightRecorderPlan { path, max_snapshots, report, partial_file, .. } = plan;
        Self { path, max_snapshots, report, partial_file, next_number: 1, written: VecDeque::new() }
    }

    /// Writes a file, which gets its name from `name_file`. Returns that.
    fn write_file(
        &mut self,
        snapshot: RetainedSnapshot,
        tables: &FrameTables,
        reason: SnapshotReason,
        name_file: impl FnOnce(NamedTempFile) -> io::Result<PathBuf>,
    ) -> io::Result<PathBuf> {
        let (length, counts) = (snapshot.length(), snapshot.counts());
        let file = writer_process::new_file_beside(&self.path)?;
        set_partial_file(&self.partial_file, Some(file.path().to_path_buf()));
        let mut out = io::BufWriter::new(file);
        let written = snapshot.write(tables, &mut out).and_then(|()| out.flush());
        let written = written.and_then(|()| {
            let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.as_file().sync_all()?;
            let bytes = file.as_file().metadata()?.len();
            let path = name_file(file)?;
            sync_directory_of(&path);
            Ok((path, bytes))
        });
        set_partial_file(&self.partial_file, None);
        let (path, bytes) = written?;
        (self.report)(SnapshotEvent::Wrote { path: path.clone(), length, counts, bytes, reason });
        Ok(path)
    }
}

impl SnapshotOutput for FileOutput {
    fn drop_rights(&self) {
        privileges::restrict_unless_root(Task::Naming);
    }

    fn write(&mut self, snapshot: RetainedSnapshot, tables: &FrameTables, reason: SnapshotReason) {
        let (beside, mut number) = (self.path.clone(), self.next_number);
        let name_file = |file| persist_numbered(file, &beside, &mut number);
        let written = self.write_file(snapshot, tables, reason, name_file);
        self.next_number = number;
        match written {
            Ok(path) => self.written.push_back(path),
            Err(error) => {
                let path = numbered(&beside, number);
                return (self.report)(SnapshotEvent::Failed { path, error });
            }
        }
        while self.written.len() > self.max_snapshots {
            let Some(path) = self.written.pop_front() else { break };
            (self.report)(match std::fs::remove_file(&path) {
                Ok(()) => SnapshotEvent::Removed { path },
                // Somebody has taken it away already.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => SnapshotEvent::Failed { path, error },
            });
        }
    }

    fn write_last(&mut self, snapshot: RetainedSnapshot, tables: &FrameTables) -> io::Result<()> {
        let path = self.path.clone();
        let name_file = |file: NamedTempFile| match file.persist(&path) {
            Ok(_file) => Ok(path),
            Err(error) => Err(error.error),
        };
        self.write_file(snapshot, tables, SnapshotReason::End, name_file).map(drop)
    }

    fn report_skipped(&mut self) {
        (self.report)(SnapshotEvent::Skipped);
    }
}

fn set_partial_file(partial_file: &PartialFile, path: Option<PathBuf>) {
    *partial_file.lock().unwrap_or_else(PoisonError::into_inner) = path;
}

/// The largest number that is tried.
const MAX_NUMBER: u64 = 100_000;

/// Gives a file the name `beside` with the first number from `next` on that no other file has, and
/// leaves the number behind that in `next`. Returns the name.
///
/// # Errors
///
/// If there is no such number, or the file can't be renamed.
pub fn persist_numbered(
    mut file: NamedTempFile,
    beside: &Path,
    next: &mut u64,
) -> io::Result<PathBuf> {
    while *next <= MAX_NUMBER {
        let path = numbered(beside, *next);
        match file.persist_noclobber(&path) {
            Ok(_file) => {
                *next += 1;
                return Ok(path);
            }
            Err(failed) if failed.error.kind() == io::ErrorKind::AlreadyExists => {
                file = failed.file;
                *next += 1;
            }
            Err(failed) => return Err(failed.error),
        }
    }
    Err(io::Error::other("all numbers are taken"))
}

/// `wait.offwake` → `wait.3.offwake`.
#[must_use]
pub fn numbered(path: &Path, number: u64) -> PathBuf {
    let mut name = path.file_stem().map_or_else(OsString::new, OsString::from);
    name.push(format!(".{number}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::Write as _,
        path::{Path, PathBuf},
    };

    use super::{numbered, persist_numbered};

    #[test]
    fn snapshots_are_numbered_before_the_extension() {
        for (path, expected) in [
            ("wait.offwake", "wait.3.offwake"),
            ("/a/b.c/wait.x.offwake", "/a/b.c/wait.x.3.offwake"),
            ("wait", "wait.3"),
        ] {
            assert_eq!(numbered(Path::new(path), 3), PathBuf::from(expected));
        }
    }

    #[test]
    fn snapshots_of_an_earlier_run_stay() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("wait.1.offwake"), "of the run before").unwrap();
        fs::write(path("wait.3.offwake"), "of the run before").unwrap();
        let mut next = 1;
        for (content, name) in
            [("one", "wait.2.offwake"), ("two", "wait.4.offwake"), ("three", "wait.5.offwake")]
        {
            let mut file = tempfile::NamedTempFile::new_in(&directory).unwrap();
            file.write_all(content.as_bytes()).unwrap();
            let given = persist_numbered(file, &path("wait.offwake"), &mut next).unwrap();
            assert_eq!(given, path(name));
            assert_eq!(fs::read_to_string(given).unwrap(), content);
        }
        for name in ["wait.1.offwake", "wait.3.offwake"] {
            assert_eq!(fs::read_to_string(path(name)).unwrap(), "of the run before");
        }
        // Nothing half written is left.
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 5);
    }
}
