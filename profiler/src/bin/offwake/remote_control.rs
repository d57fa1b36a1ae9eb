//! How the thread that shows a session controls it.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};

use offwake_recording::ClosedBy;

/// What is asked of a session that runs in another thread, and how it ended.
#[derive(Debug)]
pub struct RemoteControl {
    is_snapshot_requested: AtomicBool,
    is_stopped: AtomicBool,
    closed_by: OnceLock<ClosedBy>,
    restore_terminal: fn(),
}

impl RemoteControl {
    /// `restore_terminal` is called before the session's thread ends the program.
    pub fn new(restore_terminal: fn()) -> Self {
        Self {
            is_snapshot_requested: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
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
