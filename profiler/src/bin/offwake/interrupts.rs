//! The signals that end a recording.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end a recording. They do not end the program once this exists, not even when it
/// is dropped.
pub struct Interrupts([Signal; 3]);

impl Interrupts {
    /// Watches for them, inside a runtime.
    pub fn watch() -> anyhow::Result<Self> {
        Ok(Self([
            signal(SignalKind::interrupt()).context("cannot watch for Ctrl-C")?,
            signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?,
            signal(SignalKind::hangup()).context("cannot watch for SIGHUP")?,
        ]))
    }

    /// Waits for one of them.
    pub async fn recv(&mut self) {
        let [first, second, third] = &mut self.0;
        tokio::select! {
            _ = first.recv() => {}
            _ = second.recv() => {}
            _ = third.recv() => {}
        }
    }
}
