//! Reads the descriptions of held files, on a thread of their own.
//!
//! Opening a file asks the server of a network filesystem, or whatever program stands behind one in
//! user space. Either can leave us waiting for ever, and may be what everybody waits for: that must
//! not hold up the recording. The thread has a [process](crate::reader_process) read, and gives that
//! up.

use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant},
};

use offwake_recording::{
    Module, ModuleId,
    loss::{Diagnostics, count},
};

use super::{description::ModuleDescription, held_file::FileIdentity};
use crate::{
    own_threads::{self, OwnThread},
    privileges::{self, Task},
    reader_process,
};

/// How long is waited for answers that are just coming: a file whose pages are in memory takes some
/// 50 µs.
const SOON: Duration = Duration::from_millis(20);
/// A module goes without its description after this.
const TOO_LATE: Duration = Duration::from_secs(4);
/// How long is waited at the end: for longer than for a process that does not answer.
const AT_END: Duration = Duration::from_secs(3);

/// A held file to be described.
pub(crate) struct FileToDescribe {
    pub file: Arc<OwnedFd>,
    pub identity: FileIdentity,
}

/// The result of reading one file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The file was read: this describes it.
    Done(ModuleDescription),
    /// What was mapped can't be read, or not any more.
    Failed,
}

struct Requested {
    path: String,
    since: Instant,
}

/// Modules whose descriptions are on their way.
pub(crate) struct DescriptionReader {
    requested: BTreeMap<ModuleId, Requested>,
    /// None if there is no thread yet.
    jobs: Option<Sender<(ModuleId, FileToDescribe)>>,
    sender: Sender<(ModuleId, Outcome)>,
    outcomes: Receiver<(ModuleId, Outcome)>,
    read: fn(&FileToDescribe) -> Outcome,
    diagnostics: Diagnostics,
}

impl DescriptionReader {
    pub(crate) fn new() -> Self {
        Self::with(read)
    }

    fn with(read: fn(&FileToDescribe) -> Outcome) -> Self {
        let (sender, outcomes) = channel();
        Self {
            requested: BTreeMap::new(),
            jobs: None,
            sender,
            outcomes,
            read,
            diagnostics: Diagnostics::new(),
        }
    }

    /// Requests the description of a module.
    pub(crate) fn request(&mut self, id: ModuleId, path: String, job: FileToDescribe) {
        self.requested.insert(id, Requested { path, since: Instant::now() });
        let jobs = match &self.jobs {
            Some(jobs) => jobs,
            None => self.jobs.insert(start_thread(self.read, self.sender.clone())),
        };
        if jobs.send((id, job)).is_err() {
            let _received_here = self.sender.send((id, Outcome::Failed));
        }
    }

    /// The modules whose descriptions came, and those that have waited too long for theirs.
    pub(crate) fn drain_ready(&mut self) -> Vec<(ModuleId, Module)> {
        self.drain_within(SOON, TOO_LATE)
    }

    /// All modules that are left.
    pub(crate) fn drain_all(&mut self) -> Vec<(ModuleId, Module)> {
        self.drain_within(AT_END, Duration::ZERO)
    }

    fn drain_within(&mut self, patience: Duration, too_late: Duration) -> Vec<(ModuleId, Module)> {
        let mut taken = Vec::new();
        let until = Instant::now() + patience;
        loop {
            let wait = match self.requested.is_empty() {
                true => Duration::ZERO,
                false => until.saturating_duration_since(Instant::now()),
            };
            let Ok((id, reading)) = self.outcomes.recv_timeout(wait) else { break };
            // A module that had waited too long was drained without its description.
            let Some(Requested { path, .. }) = self.requested.remove(&id) else { continue };
            let description = match reading {
                Outcome::Done(description) => description,
                Outcome::Failed => {
                    count(&mut self.diagnostics, "symbols_build_ids_unread");
                    ModuleDescription::default()
                }
            };
            taken.push((id, description.into_module(path, &mut self.diagnostics)));
        }
        for (id, requested) in std::mem::take(&mut self.requested) {
            if requested.since.elapsed() < too_late {
                self.requested.insert(id, requested);
                continue;
            }
            count(&mut self.diagnostics, "symbols_build_ids_too_slow");
            let nothing = ModuleDescription::default();
            taken.push((id, nothing.into_module(requested.path, &mut self.diagnostics)));
        }
        taken
    }

    pub(crate) fn diagnostics(&self) -> &Diagnostics {
        &self.diagnostics
    }
}

/// Starts the thread that reads. Where there can be none, nobody receives what is sent to it.
fn start_thread(
    read: fn(&FileToDescribe) -> Outcome,
    outcomes: Sender<(ModuleId, Outcome)>,
) -> Sender<(ModuleId, FileToDescribe)> {
    let (sender, jobs) = channel();
    let body = move || {
        privileges::restrict_to(Task::Naming);
        for (id, job) in jobs {
            // Nobody receives any more when the run is over.
            if outcomes.send((id, read(&job))).is_err() {
                return;
            }
        }
    };
    if let Err(error) = own_threads::spawn(OwnThread::BuildIds, body) {
        log::warn!("cannot start the thread that reads build ids: {error}");
    }
    sender
}

fn read(job: &FileToDescribe) -> Outcome {
    reader_process::describe(&job.file, job.identity).map_or(Outcome::Failed, Outcome::Done)
}

#[cfg(test)]
mod tests {
    use std::{fs::File, thread};

    use rustix::fs::FileType;

    use super::*;
    use offwake_recording::{BuildId, Segment};

    fn job(path: &str) -> FileToDescribe {
        let file = File::open(path).unwrap();
        let identity = FileIdentity::from_file(&file).unwrap();
        FileToDescribe { file: Arc::new(OwnedFd::from(file)), identity }
    }

    fn read_description() -> ModuleDescription {
        let segments = vec![Segment { offset: 1, address: 2, size: 3 }];
        ModuleDescription { build_id: BuildId::new(b"read"), segments, left_out: 5 }
    }

    /// Never answers for a directory.
    fn stuck_in_directories(job: &FileToDescribe) -> Outcome {
        let stat = rustix::fs::fstat(&job.file).unwrap();
        while FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            thread::park();
        }
        Outcome::Done(read_description())
    }

    #[test]
    fn a_thread_that_never_answers_holds_up_nobody() {
        let mut reader = DescriptionReader::with(stuck_in_directories);
        reader.request(ModuleId(1), "quick".to_owned(), job("/proc/self/exe"));
        reader.request(ModuleId(2), "stuck".to_owned(), job("/"));
        let mut taken = Vec::new();
        while taken.len() < 2 {
            let begin = Instant::now();
            taken.extend(reader.drain_ready());
            assert!(begin.elapsed() < TOO_LATE);
        }
        let ModuleDescription { build_id, segments, .. } = read_description();
        assert_eq!(
            taken[0],
            (ModuleId(1), Module { path: "quick".to_owned(), build_id, segments })
        );
        let (path, segments) = ("stuck".to_owned(), Vec::new());
        assert_eq!(taken[1], (ModuleId(2), Module { path, build_id: None, segments }));
        let expected = [("symbols_build_ids_too_slow", 1), ("symbols_segments_over_limit", 5)];
        assert_eq!(reader.diagnostics(), &expected.into());
        assert!(reader.drain_ready().is_empty());
    }

    #[test]
    fn a_file_that_changed_has_no_build_id() {
        let mut job = job("/proc/self/exe");
        assert!(matches!(read(&job), Outcome::Done(_)));
        job.identity = self::job("/proc/self/stat").identity;
        assert_eq!(read(&job), Outcome::Failed);
    }
}
