//! The signals that end a recording, and then the program.

use anyhow::Context as _;
use nix::sys::signal::{self as posix, SigHandler};
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

/// Has Ctrl-C and SIGTERM end the program from now on, as they do any other: somebody may never read what it
/// writes.
pub fn end_the_program() -> anyhow::Result<()> {
    for signal in [posix::Signal::SIGINT, posix::Signal::SIGTERM] {
        // SAFETY: no handler of ours runs.
        unsafe { posix::signal(signal, SigHandler::SigDfl) }
            .with_context(|| format!("cannot let {signal} end the program"))?;
    }
    Ok(())
}
