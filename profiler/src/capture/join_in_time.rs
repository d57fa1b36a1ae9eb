//! Waits for the look-up thread at the end, but not for ever.

use std::{
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::parser;

/// How long the thread may work by itself. What it asks other processes has deadlines of its own.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// How long after the end's deadline the thread may take to notice that nobody answers any more.
pub(super) const GRACE: Duration = Duration::from_secs(10);
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Why a thread has returned nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// It has panicked.
    Died,
    /// It does not end, and runs on: nobody waits for it any more.
    GivenUp,
}

/// Returns what a thread returns. It is given up if it neither asks another process anything nor ends
/// for longer than `patience`, and at `last` whatever it does.
pub(super) fn join_in_time<T>(
    thread: JoinHandle<T>,
    patience: Duration,
    last: Instant,
) -> Result<T, Lost> {
    let mut silent_since = Instant::now();
    let mut asked = parser::questions();
    while !thread.is_finished() {
        let asked_now = parser::questions();
        if asked_now != asked || asked_now.are_open() {
            (asked, silent_since) = (asked_now, Instant::now());
        }
        if silent_since.elapsed() >= patience || Instant::now() >= last {
            return Err(Lost::GivenUp);
        }
        thread::sleep(CHECK_INTERVAL);
    }
    thread.join().map_err(|_panic| Lost::Died)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_does_not_end_is_given_up() {
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let stuck = thread::spawn(move || wait.recv());
        let patience = Duration::from_millis(20);
        assert_eq!(join_in_time(stuck, patience, Instant::now() + PATIENCE), Err(Lost::GivenUp));
        drop(end);
    }

    #[test]
    fn a_thread_that_does_not_end_is_given_up_at_the_end_whatever_it_does() {
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let stuck = thread::spawn(move || wait.recv());
        let last = Instant::now() + Duration::from_millis(20);
        assert_eq!(join_in_time(stuck, PATIENCE, last), Err(Lost::GivenUp));
        drop(end);
    }

    #[test]
    fn a_thread_that_ends_or_panics_is_told_from_one_that_does_not() {
        let last = Instant::now() + PATIENCE;
        assert_eq!(join_in_time(thread::spawn(|| 5), PATIENCE, last), Ok(5));
        let panics = thread::spawn(|| -> u32 { panic!("on purpose") });
        assert_eq!(join_in_time(panics, PATIENCE, last), Err(Lost::Died));
    }
}
