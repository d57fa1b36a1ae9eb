//! Reads the descriptions of held files, each on a thread of its own.
//!
//! Opening a file asks the server of a network filesystem, or whatever program stands behind one in
//! user space. Either can leave us waiting for ever, and may be what everybody waits for: that must
//! not hold up the recording.

use std::{
    collections::{BTreeMap, VecDeque},
    os::fd::OwnedFd,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use object::ReadCache;
use offwake_recording::{
    Module, ModuleId,
    loss::{Diagnostics, count},
};

use super::{
    description::ModuleDescription,
    held_file::{FileIdentity, is_unchanged, open_for_reading},
};
use crate::privileges::{self, Task};

/// Threads at a time, the stuck ones among them.
const MAX_THREADS: usize = 16;
/// How long is waited for answers that are just coming: a file whose pages are in memory takes some
/// 50 µs.
const SOON: Duration = Duration::from_millis(20);
/// A module goes without its description after this.
const TOO_LATE: Duration = Duration::from_secs(2);
/// How long is waited at the end.
const AT_END: Duration = Duration::from_secs(1);

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
    queue: VecDeque<(ModuleId, FileToDescribe)>,
    running: usize,
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
            queue: VecDeque::new(),
            running: 0,
            sender,
            outcomes,
            read,
            diagnostics: Diagnostics::new(),
        }
    }

    /// Requests the description of a module.
    pub(crate) fn request(&mut self, id: ModuleId, path: String, job: FileToDescribe) {
        self.requested.insert(id, Requested { path, since: Instant::now() });
        self.queue.push_back((id, job));
        self.start();
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
            self.start();
            let wait = match self.requested.is_empty() {
                true => Duration::ZERO,
                false => until.saturating_duration_since(Instant::now()),
            };
            let Ok((id, reading)) = self.outcomes.recv_timeout(wait) else { break };
            self.running -= 1;
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
        self.queue.retain(|(id, _)| self.requested.contains_key(id));
        taken
    }

    fn start(&mut self) {
        while self.running < MAX_THREADS
            && let Some((id, job)) = self.queue.pop_front()
        {
            let (sender, read) = (self.sender.clone(), self.read);
            let body = move || {
                privileges::restrict_to(Task::Naming);
                // Nobody receives any more when the run is over.
                let _over = sender.send((id, read(&job)));
            };
            let thread = thread::Builder::new().name("offwake-build-id".to_owned()).spawn(body);
            if thread.is_err() {
                let _over = self.sender.send((id, Outcome::Failed));
            }
            self.running += 1;
        }
    }

    pub(crate) fn diagnostics(&self) -> &Diagnostics {
        &self.diagnostics
    }
}

fn read(job: &FileToDescribe) -> Outcome {
    let Some(file) = open_for_reading(&job.file) else { return Outcome::Failed };
    let description = ModuleDescription::read(&ReadCache::new(file));
    // This is checked last, so that what was read is what ran.
    match is_unchanged(&job.file, job.identity) {
        true => Outcome::Done(description),
        false => Outcome::Failed,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

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
    fn a_file_that_never_answers_holds_up_nobody() {
        let mut reader = DescriptionReader::with(stuck_in_directories);
        reader.request(ModuleId(1), "stuck".to_owned(), job("/"));
        reader.request(ModuleId(2), "quick".to_owned(), job("/proc/self/exe"));
        let mut taken = Vec::new();
        while taken.len() < 2 {
            let begin = Instant::now();
            taken.extend(reader.drain_ready());
            assert!(begin.elapsed() < TOO_LATE);
        }
        let ModuleDescription { build_id, segments, .. } = read_description();
        assert_eq!(
            taken[0],
            (ModuleId(2), Module { path: "quick".to_owned(), build_id, segments })
        );
        let (path, segments) = ("stuck".to_owned(), Vec::new());
        assert_eq!(taken[1], (ModuleId(1), Module { path, build_id: None, segments }));
        let expected = [("symbols_build_ids_too_slow", 1), ("symbols_segments_over_limit", 5)];
        assert_eq!(reader.diagnostics(), &expected.into());
        assert!(reader.drain_ready().is_empty());
    }

    #[test]
    fn no_more_threads_than_the_limit_are_stuck() {
        let mut reader = DescriptionReader::with(stuck_in_directories);
        let modules = u32::try_from(MAX_THREADS).unwrap() + 10;
        for id in 0..modules {
            reader.request(ModuleId(id), String::new(), job("/"));
        }
        assert_eq!((reader.running, reader.queue.len()), (MAX_THREADS, 10));
        let rest = reader.drain_all();
        assert_eq!(rest.len(), modules as usize);
        assert!(reader.queue.is_empty());
    }

    #[test]
    fn a_file_that_changed_has_no_build_id() {
        let mut job = job("/proc/self/exe");
        assert!(matches!(read(&job), Outcome::Done(_)));
        job.identity = self::job("/proc/self/stat").identity;
        assert_eq!(read(&job), Outcome::Failed);
    }
}
