//! Threads that read what other processes may keep them from reading for as long as they like: a
//! process holds the lock on its own mappings. They have memory and files read by a
//! [process](crate::reader_process), and are there so that nobody waits for that for long.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Sender},
    },
    time::{Duration, Instant},
};

use crate::{
    own_threads::{self, OwnThread},
    privileges::{self, Task},
    reader_process,
};

/// How long a thread's reader process may take to start. That takes some milliseconds, and in an emulator
/// or on a machine that is overloaded more than what is read takes.
const START_PATIENCE: Duration = Duration::from_secs(5);

/// One kind of reading, which one thread at a time does. A thread that takes too long is given up:
/// it runs on, and until it has ended nothing more of this kind is read.
pub(crate) struct ReaderThread {
    thread: OwnThread,
    is_reading: AtomicBool,
}

/// The right to read, of one thread at a time. It ends with the thread, however that ends.
struct Turn(&'static ReaderThread);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.is_reading.store(false, Ordering::Release);
    }
}

impl ReaderThread {
    pub(crate) const fn new(thread: OwnThread) -> Self {
        Self { thread, is_reading: AtomicBool::new(false) }
    }

    fn take_turn(&'static self) -> Option<Turn> {
        (!self.is_reading.swap(true, Ordering::AcqRel)).then_some(Turn(self))
    }

    /// Has `read` send what it finds, and returns what comes within `patience`, once the thread can read.
    pub(crate) fn collect<T: Send + 'static>(
        &'static self,
        patience: Duration,
        read: impl FnOnce(&Sender<T>) + Send + 'static,
    ) -> Vec<T> {
        let Some(turn) = self.take_turn() else { return Vec::new() };
        let (found, all) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        // If there can be no thread, the turn ends with the closure.
        let _started = own_threads::spawn(self.thread, move || {
            let _turn = turn;
            privileges::restrict_to(Task::LookingUp);
            reader_process::start();
            // Nobody listens any more if it took too long.
            if ready.send(()).is_ok() {
                read(&found);
            }
        });
        if is_ready.recv_timeout(START_PATIENCE).is_err() {
            return Vec::new();
        }
        drop(is_ready);
        let begin = Instant::now();
        // Who finds ever more is not listened to for longer either.
        std::iter::from_fn(|| {
            let rest = patience.checked_sub(begin.elapsed())?;
            all.recv_timeout(rest).ok()
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_reader_that_panics_leaves_its_turn_to_the_next() {
        static READER: ReaderThread = ReaderThread::new(OwnThread::PolledFiles);
        let none: Vec<u32> = READER.collect(LONG, |found| {
            found.send(1).unwrap();
            panic!("on purpose");
        });
        assert_eq!(none, [1]);
        // The thread ends its turn as it unwinds, a moment after it has let go of the channel.
        let mut again = Vec::new();
        while again.is_empty() {
            again = READER.collect(LONG, |found| found.send(2).unwrap());
        }
        assert_eq!(again, [2]);
    }

    #[test]
    fn a_reader_that_finds_ever_more_is_given_up_in_time() {
        static READER: ReaderThread = ReaderThread::new(OwnThread::LockOwners);
        let found =
            READER.collect(Duration::from_millis(50), |found| while found.send(0).is_ok() {});
        assert!(!found.is_empty());
    }
}
