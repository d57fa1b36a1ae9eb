//! What a load says of itself in the end.

use anyhow::Context as _;
use serde::Deserialize;

/// The counts that a load of `tests/src/loads` prints when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct LoadCount {
    switches: u64,
    forks: u64,
    seconds: f64,
}

impl LoadCount {
    /// # Errors
    ///
    /// When it said something else.
    pub fn read(said: &str) -> anyhow::Result<Self> {
        serde_json::from_str(said).with_context(|| format!("a load said {said:?}"))
    }

    /// Switches a second.
    pub fn rate(self) -> f64 {
        self.switches as f64 / self.seconds
    }

    /// Forks a second.
    pub fn forks_a_second(self) -> f64 {
        self.forks as f64 / self.seconds
    }
}
