//! The thread that writes stretches into files: nobody else waits for the disk, or for names.

use std::{
    collections::VecDeque,
    ffi::OsString,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::Receiver,
    },
};

use super::{Frozen, Why, frozen::Tables};
use crate::{
    capture::{file_sink, store::Counts},
    parser::Parser,
    privileges,
    recording::{Frame, FrameId, Function, Module, ModuleId},
    symbols::Naming,
    units::Nanos,
};

/// A half-written file, to be removed by whoever ends the program.
pub type Unfinished = Arc<Mutex<Option<PathBuf>>>;

/// What became of a stretch.
#[derive(Debug)]
pub enum Event {
    /// It is in a file.
    Wrote {
        /// Which.
        path: PathBuf,
        /// The time that it covers.
        length: Nanos,
        /// Waits in it.
        counts: Counts,
        /// Bytes of it.
        bytes: u64,
        /// Why.
        why: Why,
    },
    /// An older one of the same run had to make room.
    Removed {
        /// Which.
        path: PathBuf,
    },
    /// It could not be written.
    Failed {
        /// Where to.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// Nothing was written: the one before was still being written.
    Skipped,
}

/// Names to be looked up, or found already.
pub enum NewNames {
    /// To be looked up.
    ToLookUp(Naming),
    /// Found.
    Found(Vec<(FrameId, Vec<Function>)>),
}

/// Something for the writer.
pub(super) enum Message {
    /// Frames and modules that stacks refer to.
    Found(Vec<(FrameId, Frame)>, Vec<(ModuleId, Module)>),
    /// Names.
    Names(NewNames),
    /// A stretch to be written.
    Write(Box<Frozen>, Why),
}

/// Writes stretches.
pub(super) struct Writer {
    pub path: PathBuf,
    pub max_snapshots: usize,
    pub say: Box<dyn FnMut(Event) + Send>,
    pub unfinished: Unfinished,
    /// Stretches that are on their way here.
    pub waiting: Arc<AtomicUsize>,
    /// Stretches for which there was no room on the way.
    pub skipped: Arc<AtomicUsize>,
    pub tables: Tables,
    pub parser: Parser,
    pub snapshots: u64,
    pub written: VecDeque<PathBuf>,
}

impl Writer {
    /// Runs until nobody can send any more. An error if the last stretch of all could not be written.
    pub fn run(mut self, messages: &Receiver<Message>) -> io::Result<()> {
        privileges::keep_for_writing(privileges::Task::Naming);
        let mut last = Ok(());
        for message in messages {
            match message {
                Message::Found(frames, modules) => self.tables.add(frames, modules),
                Message::Names(NewNames::Found(names)) => self.tables.book.add(names),
                Message::Names(NewNames::ToLookUp(naming)) => {
                    self.tables.book.look_up(naming, &mut self.parser, &mut |_done, _all| {});
                }
                Message::Write(frozen, why) if why == Why::End => {
                    let path = self.path.clone();
                    last = self.write(*frozen, path, why);
                }
                Message::Write(frozen, why) => {
                    self.snapshot(*frozen, why);
                    self.waiting.fetch_sub(1, Ordering::Relaxed);
                    for _ in 0..self.skipped.swap(0, Ordering::Relaxed) {
                        (self.say)(Event::Skipped);
                    }
                }
            }
        }
        last
    }

    fn snapshot(&mut self, frozen: Frozen, why: Why) {
        self.snapshots += 1;
        let path = numbered(&self.path, self.snapshots);
        if let Err(error) = self.write(frozen, path.clone(), why) {
            return (self.say)(Event::Failed { path, error });
        }
        self.written.push_back(path);
        while self.written.len() > self.max_snapshots {
            let Some(path) = self.written.pop_front() else { break };
            (self.say)(match std::fs::remove_file(&path) {
                Ok(()) => Event::Removed { path },
                // Somebody has taken it away already.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => Event::Failed { path, error },
            });
        }
    }

    fn write(&mut self, frozen: Frozen, path: PathBuf, why: Why) -> io::Result<()> {
        let (length, counts) = (frozen.length(), frozen.counts());
        let file = file_sink::new_file_beside(&path)?;
        note(&self.unfinished, Some(file.path().to_path_buf()));
        let mut out = io::BufWriter::new(file);
        let written = frozen.write(&self.tables, &mut out).and_then(|()| out.flush());
        let written = written.and_then(|()| {
            let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.as_file().sync_all()?;
            let bytes = file.as_file().metadata()?.len();
            file.persist(&path).map_err(|error| error.error)?;
            Ok(bytes)
        });
        note(&self.unfinished, None);
        let bytes = written?;
        (self.say)(Event::Wrote { path, length, counts, bytes, why });
        Ok(())
    }
}

fn note(unfinished: &Unfinished, path: Option<PathBuf>) {
    *unfinished.lock().unwrap_or_else(PoisonError::into_inner) = path;
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
    use std::path::{Path, PathBuf};

    use super::numbered;

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
}
