//! Threads that read what other processes may keep them from reading for as long as they like: a
//! process holds the lock on its own mappings.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Sender},
    },
    time::{Duration, Instant},
};

use crate::privileges::{self, Task};

/// One kind of reading, which one thread at a time does. A thread that takes too long is given up:
/// it runs on, and until it has ended nothing more of this kind is read.
pub(crate) struct ReaderThread {
    name: &'static str,
    is_reading: AtomicBool,
}

impl ReaderThread {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, is_reading: AtomicBool::new(false) }
    }

    /// Has `read` send what it finds, and returns what comes within `patience`.
    pub(crate) fn collect<T: Send + 'static>(
        &'static self,
        patience: Duration,
        read: impl FnOnce(&Sender<T>) + Send + 'static,
    ) -> Vec<T> {
        if self.is_reading.swap(true, Ordering::AcqRel) {
            return Vec::new();
        }
        let (found, all) = mpsc::channel();
        let reader = std::thread::Builder::new().name(self.name.to_owned());
        let started = reader.spawn(move || {
            privileges::restrict_to(Task::LookingUp);
            read(&found);
            self.is_reading.store(false, Ordering::Release);
        });
        if started.is_err() {
            self.is_reading.store(false, Ordering::Release);
        }
        let begin = Instant::now();
        std::iter::from_fn(|| all.recv_timeout(patience.saturating_sub(begin.elapsed())).ok())
            .collect()
    }
}
