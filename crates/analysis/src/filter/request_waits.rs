//! The waits of some requests.

use std::collections::HashSet;

use crate::timeline::WaitIndex;

/// The waits of those that asked and of those that served while some requests went on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestWaits {
    /// Which requests these are: `p99–100`.
    band: String,
    waits: HashSet<WaitIndex>,
}

impl RequestWaits {
    /// The waits of the requests of a band.
    #[must_use]
    pub fn new(band: String, waits: HashSet<WaitIndex>) -> Self {
        Self { band, waits }
    }

    /// Returns which requests these are.
    #[must_use]
    pub fn band(&self) -> &str {
        &self.band
    }

    /// Returns whether a wait is one of them.
    #[must_use]
    pub fn contains(&self, wait: WaitIndex) -> bool {
        self.waits.contains(&wait)
    }
}
