//! Where snapshots go: into files, or as bytes to a live view. Only the output's thread waits for
//! the disk or for whoever looks.

use std::{
    collections::VecDeque,
    io::{self, Write as _},
    path::PathBuf,
};

use offwake_analysis::formats::Readers;
use offwake_recording::units::Nanos;

use super::{
    retained::Retention,
    snapshot::{FrameTables, RetainedSnapshot},
};
use crate::{
    capture::messages::{SnapshotReason, WaitCounts},
    parser::{Parser, ParserRole},
    privileges::{self, Task},
    writer_process::{WriterProcess, numbered},
};

/// How many processes that write may not answer, or die, before no snapshot is tried any more: what such
/// a file system holds on to stays until it answers.
const MAX_WRITERS: u32 = 16;

/// Bytes that are worth a message to the process that writes.
const BUFFER: usize = 256 << 10;

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

/// Writes snapshots into numbered files, and removes the oldest ones. A [process](crate::writer_process)
/// does it, for the programs are attached meanwhile.
pub(super) struct FileOutput {
    path: PathBuf,
    max_snapshots: usize,
    report: Box<dyn FnMut(SnapshotEvent) + Send>,
    /// None before the first snapshot, and once it was lost.
    writer: Option<WriterProcess>,
    start_writer: fn() -> Parser,
    writers_started: u32,
    /// The number of the next snapshot, if no file has it.
    next_number: u64,
    written: VecDeque<PathBuf>,
}

/// What a file is called.
enum Name {
    AsAsked,
    Numbered,
}

impl FileOutput {
    pub fn new(plan: FlightRecorderPlan) -> Self {
        Self::with_writers(plan, || Parser::new(ParserRole::Writer))
    }

    fn with_writers(plan: FlightRecorderPlan, start_writer: fn() -> Parser) -> Self {
        let FlightRecorderPlan { path, max_snapshots, report, .. } = plan;
        Self {
            path,
            max_snapshots,
            report,
            writer: None,
            start_writer,
            writers_started: 0,
            next_number: 1,
            written: VecDeque::new(),
        }
    }

    /// The process that writes, which is another one if the last one was lost.
    fn writer(&mut self) -> io::Result<&mut WriterProcess> {
        if self.writer.as_ref().is_some_and(WriterProcess::is_lost) {
            self.writer = None;
        }
        if self.writer.is_none() && self.writers_started == MAX_WRITERS {
            let words = "too many processes that write have not answered, or have died";
            return Err(io::Error::other(words));
        }
        let (start, started) = (self.start_writer, &mut self.writers_started);
        Ok(self.writer.get_or_insert_with(|| {
            *started += 1;
            WriterProcess::start(start())
        }))
    }

    /// Writes a file. Returns its name.
    fn write_file(
        &mut self,
        snapshot: RetainedSnapshot,
        tables: &FrameTables,
        reason: SnapshotReason,
        name: Name,
    ) -> io::Result<PathBuf> {
        let (length, counts) = (snapshot.length(), snapshot.counts());
        let (path, next_number) = (self.path.clone(), self.next_number);
        let writer = self.writer()?;
        writer.create(&path, Readers::Owner)?;
        let mut out = CountedWriter { writer, bytes: 0 };
        let mut buffered = io::BufWriter::with_capacity(BUFFER, &mut out);
        let written = snapshot.write(tables, &mut buffered).and_then(|()| buffered.flush());
        drop(buffered);
        let CountedWriter { writer, bytes } = out;
        if let Err(error) = written {
            let _gone_with_the_process = writer.discard();
            return Err(error);
        }
        let path = match name {
            Name::AsAsked => {
                writer.finish()?;
                path
            }
            Name::Numbered => {
                let (_absolute, next) = writer.finish_numbered(next_number)?;
                self.next_number = next;
                numbered(&path, next - 1)
            }
        };
        (self.report)(SnapshotEvent::Wrote { path: path.clone(), length, counts, bytes, reason });
        Ok(path)
    }
}

struct CountedWriter<'w> {
    writer: &'w mut WriterProcess,
    bytes: u64,
}

impl io::Write for CountedWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SnapshotOutput for FileOutput {
    fn drop_rights(&self) {
        privileges::restrict_unless_root(Task::Naming);
    }

    fn write(&mut self, snapshot: RetainedSnapshot, tables: &FrameTables, reason: SnapshotReason) {
        match self.write_file(snapshot, tables, reason, Name::Numbered) {
            Ok(path) => self.written.push_back(path),
            Err(error) => {
                let path = numbered(&self.path, self.next_number);
                return (self.report)(SnapshotEvent::Failed { path, error });
            }
        }
        while self.written.len() > self.max_snapshots {
            let Some(path) = self.written.pop_front() else { break };
            let removed = self.writer().and_then(|writer| writer.remove(&path));
            (self.report)(match removed {
                Ok(()) => SnapshotEvent::Removed { path },
                // Somebody has taken it away already.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => SnapshotEvent::Failed { path, error },
            });
        }
    }

    fn write_last(&mut self, snapshot: RetainedSnapshot, tables: &FrameTables) -> io::Result<()> {
        self.write_file(snapshot, tables, SnapshotReason::End, Name::AsAsked).map(drop)
    }

    fn report_skipped(&mut self) {
        (self.report)(SnapshotEvent::Skipped);
    }
}
