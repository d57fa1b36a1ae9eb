//! Has a recording's file written to its disk every few seconds, so that a power failure costs no more
//! than what came since.
//!
//! A thread of its own does it: on a busy disk that takes seconds, and who writes must not wait.

use std::{
    fs::File,
    io,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crate::{
    own_threads::{self, OwnThread},
    scheduling,
};

/// How much time a power failure may cost. It is what journals of file systems have, too.
pub(super) const INTERVAL: Duration = Duration::from_secs(5);

/// Writes a file to its disk, again and again.
#[derive(Debug)]
pub(super) struct DiskSync {
    running: Option<(SyncSender<()>, JoinHandle<()>)>,
    last: Instant,
    failed: Arc<Mutex<Option<io::Error>>>,
}

impl DiskSync {
    /// Begins with the file and the directory that has just got its name. Where there can be no thread
    /// the file is written to the disk as it ends.
    pub(super) fn start(file: &File, path: &Path) -> Self {
        let failed = Arc::default();
        // One that is to come is enough: it writes all that is there by then.
        let (sender, receiver) = sync_channel(1);
        let started = file.try_clone().and_then(|file| {
            let (path, failed) = (path.to_path_buf(), Arc::clone(&failed));
            own_threads::spawn(OwnThread::Sync, move || {
                // Nothing is lost while it waits for a CPU.
                scheduling::restore_priority();
                run(&file, &path, &receiver, &failed);
            })
        });
        let running = match started {
            Ok(thread) => Some((sender, thread)),
            Err(error) => {
                log::warn!("the recording is written to its disk only at its end: {error}");
                None
            }
        };
        Self { running, last: Instant::now(), failed }
    }

    /// Has what was written so far go to the disk, if it is time.
    pub(super) fn wrote(&mut self) {
        if self.last.elapsed() >= INTERVAL {
            self.last = Instant::now();
            // If the last one is not over, the next one has this as well.
            let _full = self.running.as_ref().map(|(requests, _)| requests.try_send(()));
        }
    }

    /// Waits until nothing is written any more, and returns what has failed: the kernel says it once, to
    /// whoever asks first.
    pub(super) fn end(self) -> io::Result<()> {
        if let Some((requests, thread)) = self.running {
            drop(requests);
            // The file has just been written to its disk as it ends: what its death costs is said.
            let _panic = thread.join();
        }
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.map_or(Ok(()), Err)
    }
}

fn run(file: &File, path: &Path, requests: &Receiver<()>, failed: &Mutex<Option<io::Error>>) {
    let note = |synced: io::Result<()>| {
        if let Err(error) = synced {
            failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    };
    note(file.sync_all());
    sync_directory_of(path);
    for () in requests {
        own_threads::pass();
        note(file.sync_data());
    }
}

/// Writes the name of a file to the disk. Not every file system can: then there is none that could be lost.
pub(super) fn sync_directory_of(path: &Path) {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if let Err(error) = File::open(directory).and_then(|directory| directory.sync_all()) {
        log::info!("cannot sync {}: {error}", directory.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_the_disk_and_what_fails_is_told_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.offwake");
        let mut sync = DiskSync::start(&File::create(&path).unwrap(), &path);
        sync.last = Instant::now().checked_sub(INTERVAL).unwrap();
        for _ in 0..1000 {
            sync.wrote();
        }
        assert!(sync.last.elapsed() < INTERVAL);
        sync.end().unwrap();
        let sync = DiskSync::start(&File::open("/dev/null").unwrap(), &path);
        assert!(sync.end().is_err(), "a device without a disk can't be synced");
    }
}
