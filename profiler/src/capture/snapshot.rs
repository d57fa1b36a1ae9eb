//! Asking for a snapshot, and for how everybody stood.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{collector::OpenRecords, flight::Why};
use crate::units::{Nanos, Timestamp};

/// How often whoever waits looks whether the other thread is still there.
const LOOK: Duration = Duration::from_millis(100);

/// A snapshot that is wanted; its survey has been.
#[derive(Debug)]
pub(super) struct Request {
    pub why: Why,
    /// When everybody was looked at: the stretch's end.
    pub at: Timestamp,
    pub own_cpu: Nanos,
}

/// The same with what the survey found.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub request: Request,
    pub open: OpenRecords,
}

/// Hands one request at a time from the thread that asks to the one that drains the rings.
#[derive(Debug, Default)]
pub(super) struct Desk {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    wanted: Option<Request>,
    is_busy: bool,
}

impl Desk {
    /// Asks, and waits until the survey's records have been taken out of the rings: those of another
    /// may come then. False if nobody is there to do it.
    pub fn ask(&self, request: Request, is_there: impl Fn() -> bool) -> bool {
        let mut state = self.lock();
        state.wanted = Some(request);
        state.is_busy = true;
        while state.is_busy {
            if !is_there() {
                return false;
            }
            let waited = self.changed.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// What is asked for, if anything is.
    pub fn take(&self) -> Option<Request> {
        self.lock().wanted.take()
    }

    /// What was taken is done.
    pub fn done(&self) {
        self.lock().is_busy = false;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
