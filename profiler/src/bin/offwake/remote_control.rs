//! How the thread that shows a session controls it.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use offwake_recording::ClosedBy;

/// What is asked of a session that runs in another thread, and how it ended.
#[derive(Debug)]
pub struct RemoteControl {
    is_snapshot_requested: AtomicBool,
    is_stopped: AtomicBool,
    has_left: AtomicBool,
    closed_by: OnceLock<ClosedBy>,
    restore_terminal: fn(),
}

impl RemoteControl {
    /// `restore_terminal` is called before the session's thread ends the program.
    pub fn new(restore_terminal: fn()) -> Self {
        Self {
            is_snapshot_requested: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
            closed_by: OnceLock::new(),
            restore_terminal,
        }
    }

    /// Asks for a snapshot.
    pub fn request_snapshot(&self) {
        self.is_snapshot_requested.store(true, Ordering::Relaxed);
    }

    /// Whether a snapshot is asked for, once for each request.
    pub fn take_snapshot_request(&self) -> bool {
        self.is_snapshot_requested.swap(false, Ordering::Relaxed)
    }

    /// Makes the session end.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Whether [`Self::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Notes that the view is over: it draws no more.
    pub fn set_left(&self) {
        self.has_left.store(true, Ordering::Relaxed);
    }

    /// Returns whether the view is over because its session is: its time was up, or a signal came.
    pub fn ends_with_session(&self) -> bool {
        match self.closed_by() {
            Some(ClosedBy::Duration) => true,
            Some(ClosedBy::Signal) => !self.is_stopped(),
            Some(_) | None => false,
        }
    }

    /// Waits until the view is over. Returns whether it is.
    pub fn wait_until_left(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        while !self.has_left.load(Ordering::Relaxed) {
            if Instant::now() >= until {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// Reports that the window is about to close.
    pub fn set_closed_by(&self, closed_by: ClosedBy) {
        self.closed_by.get_or_init(|| closed_by);
    }

    /// Why the window was closed, if it was.
    pub fn closed_by(&self) -> Option<ClosedBy> {
        self.closed_by.get().copied()
    }

    /// Restores the terminal: the program ends now.
    pub fn restore_terminal(&self) {
        (self.restore_terminal)();
    }
}
