//! Reads what held files are, each on a thread of its own.
//!
//! Opening a file asks the server of a network filesystem, or whatever program stands behind one in
//! user space. Either can leave us waiting for ever, and may be what everybody waits for: that must
//! not hold up the recording.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    os::fd::{AsRawFd, OwnedFd},
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use object::ReadCache;
use rustix::fs::{FileType, Mode, OFlags};

use super::{
    Shortfalls, count,
    description::Description,
    modules::{Identity, is_unchanged},
};
use crate::privileges::{self, Task};
use crate::recording::{Module, ModuleId};

/// Threads at a time, the stuck ones among them.
const MAX_THREADS: usize = 16;
/// How long is waited for answers that are just coming: a file whose pages are in memory takes some
/// 50 µs.
const SOON: Duration = Duration::from_millis(20);
/// A module goes without its description after this.
const TOO_LATE: Duration = Duration::from_secs(2);
/// How long is waited at the end.
const AT_END: Duration = Duration::from_secs(1);

/// A held file to be read.
pub(super) struct Job {
    pub file: Arc<OwnedFd>,
    pub identity: Identity,
}

/// What reading came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// This is what the file is.
    Done(Description),
    /// What was mapped can't be read, or not any more.
    Failed,
}

struct Asked {
    path: String,
    since: Instant,
}

/// Modules whose descriptions are on their way.
pub(super) struct Identifier {
    asked: BTreeMap<ModuleId, Asked>,
    queue: VecDeque<(ModuleId, Job)>,
    running: usize,
    sender: Sender<(ModuleId, Reading)>,
    readings: Receiver<(ModuleId, Reading)>,
    read: fn(&Job) -> Reading,
    shortfalls: Shortfalls,
}

impl Identifier {
    pub(super) fn new() -> Self {
        Self::with(read)
    }

    fn with(read: fn(&Job) -> Reading) -> Self {
        let (sender, readings) = channel();
        Self {
            asked: BTreeMap::new(),
            queue: VecDeque::new(),
            running: 0,
            sender,
            readings,
            read,
            shortfalls: Shortfalls::new(),
        }
    }

    /// The module is wanted, with its description.
    pub(super) fn ask(&mut self, id: ModuleId, path: String, job: Job) {
        self.asked.insert(id, Asked { path, since: Instant::now() });
        self.queue.push_back((id, job));
        self.start();
    }

    /// The modules whose descriptions came, and those that have waited too long for theirs.
    pub(super) fn take(&mut self) -> Vec<(ModuleId, Module)> {
        self.take_within(SOON, TOO_LATE)
    }

    /// All modules that are left.
    pub(super) fn take_rest(&mut self) -> Vec<(ModuleId, Module)> {
        self.take_within(AT_END, Duration::ZERO)
    }

    fn take_within(&mut self, patience: Duration, too_late: Duration) -> Vec<(ModuleId, Module)> {
        let mut taken = Vec::new();
        let until = Instant::now() + patience;
        loop {
            self.start();
            let wait = match self.asked.is_empty() {
                true => Duration::ZERO,
                false => until.saturating_duration_since(Instant::now()),
            };
            let Ok((id, reading)) = self.readings.recv_timeout(wait) else { break };
            self.running -= 1;
            // One that had waited too long was handed on without.
            let Some(Asked { path, .. }) = self.asked.remove(&id) else { continue };
            let description = match reading {
                Reading::Done(description) => description,
                Reading::Failed => {
                    count(&mut self.shortfalls, "symbols_build_ids_unread");
                    Description::default()
                }
            };
            taken.push((id, description.into_module(path, &mut self.shortfalls)));
        }
        for (id, asked) in std::mem::take(&mut self.asked) {
            if asked.since.elapsed() < too_late {
                self.asked.insert(id, asked);
                continue;
            }
            count(&mut self.shortfalls, "symbols_build_ids_too_slow");
            let nothing = Description::default();
            taken.push((id, nothing.into_module(asked.path, &mut self.shortfalls)));
        }
        self.queue.retain(|(id, _)| self.asked.contains_key(id));
        taken
    }

    fn start(&mut self) {
        while self.running < MAX_THREADS
            && let Some((id, job)) = self.queue.pop_front()
        {
            let (sender, read) = (self.sender.clone(), self.read);
            let body = move || {
                privileges::restrict_to(Task::Naming);
                // Nobody listens any more when the run is over.
                let _over = sender.send((id, read(&job)));
            };
            let thread = thread::Builder::new().name("offwake-build-id".to_owned()).spawn(body);
            if thread.is_err() {
                let _over = self.sender.send((id, Reading::Failed));
            }
            self.running += 1;
        }
    }

    pub(super) fn shortfalls(&self) -> &Shortfalls {
        &self.shortfalls
    }
}

fn read(job: &Job) -> Reading {
    let Some(file) = open(&job.file) else { return Reading::Failed };
    let description = Description::of(&ReadCache::new(file));
    // Asked last: what was in it while it was read is what ran.
    match is_unchanged(&job.file, job.identity) {
        true => Reading::Done(description),
        false => Reading::Failed,
    }
}

/// Opens a held file for reading, if it is one.
pub(super) fn open(held: &OwnedFd) -> Option<File> {
    let stat = rustix::fs::fstat(held).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    // Somebody's lease on it is not waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let link = format!("/proc/self/fd/{}", held.as_raw_fd());
    Some(File::from(rustix::fs::open(link, flags, Mode::empty()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{BuildId, Segment};

    fn job(path: &str) -> Job {
        let file = File::open(path).unwrap();
        let identity = Identity::of_file(&file).unwrap();
        Job { file: Arc::new(OwnedFd::from(file)), identity }
    }

    fn read_description() -> Description {
        let segments = vec![Segment { offset: 1, address: 2, size: 3 }];
        Description { build_id: BuildId::new(b"read"), segments, left_out: 5 }
    }

    /// Never answers for a directory.
    fn stuck_in_directories(job: &Job) -> Reading {
        let stat = rustix::fs::fstat(&job.file).unwrap();
        while FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            thread::park();
        }
        Reading::Done(read_description())
    }

    #[test]
    fn a_file_that_never_answers_holds_up_nobody() {
        let mut identifier = Identifier::with(stuck_in_directories);
        identifier.ask(ModuleId(1), "stuck".to_owned(), job("/"));
        identifier.ask(ModuleId(2), "quick".to_owned(), job("/proc/self/exe"));
        let mut taken = Vec::new();
        while taken.len() < 2 {
            let begin = Instant::now();
            taken.extend(identifier.take());
            assert!(begin.elapsed() < TOO_LATE);
        }
        let Description { build_id, segments, .. } = read_description();
        assert_eq!(
            taken[0],
            (ModuleId(2), Module { path: "quick".to_owned(), build_id, segments })
        );
        let (path, segments) = ("stuck".to_owned(), Vec::new());
        assert_eq!(taken[1], (ModuleId(1), Module { path, build_id: None, segments }));
        let expected = [("symbols_build_ids_too_slow", 1), ("symbols_segments_over_limit", 5)];
        assert_eq!(identifier.shortfalls(), &expected.into());
        assert!(identifier.take().is_empty());
    }

    #[test]
    fn no_more_threads_than_the_limit_are_stuck() {
        let mut identifier = Identifier::with(stuck_in_directories);
        let modules = u32::try_from(MAX_THREADS).unwrap() + 10;
        for id in 0..modules {
            identifier.ask(ModuleId(id), String::new(), job("/"));
        }
        assert_eq!((identifier.running, identifier.queue.len()), (MAX_THREADS, 10));
        let rest = identifier.take_rest();
        assert_eq!(rest.len(), modules as usize);
        assert!(identifier.queue.is_empty());
    }

    #[test]
    fn a_file_that_changed_has_no_build_id() {
        let mut job = job("/proc/self/exe");
        assert!(matches!(read(&job), Reading::Done(_)));
        job.identity = self::job("/proc/self/stat").identity;
        assert_eq!(read(&job), Reading::Failed);
    }
}
