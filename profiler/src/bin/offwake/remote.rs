//! A hand on a session that runs in another thread.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};

use offwake::recording::ClosedBy;

/// What is wanted of a session, and how it ended.
#[derive(Debug)]
pub struct Remote {
    wish: AtomicBool,
    stopped: AtomicBool,
    closed_by: OnceLock<ClosedBy>,
    restore_terminal: fn(),
}

impl Remote {
    /// `restore_terminal` is called before the program leaves without asking anybody else.
    pub fn new(restore_terminal: fn()) -> Self {
        Self {
            wish: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            closed_by: OnceLock::new(),
            restore_terminal,
        }
    }

    /// Wants to see how things are.
    pub fn wish(&self) {
        self.wish.store(true, Ordering::Relaxed);
    }

    /// Whether somebody does; it is asked once for each wish.
    pub fn take_wish(&self) -> bool {
        self.wish.swap(false, Ordering::Relaxed)
    }

    /// Has it end.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Whether somebody did.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// The window is about to close.
    pub fn closed(&self, by: ClosedBy) {
        self.closed_by.get_or_init(|| by);
    }

    /// Why the window was closed, if it was.
    pub fn closed_by(&self) -> Option<ClosedBy> {
        self.closed_by.get().copied()
    }

    /// The program leaves now.
    pub fn give_terminal_back(&self) {
        (self.restore_terminal)();
    }
}
