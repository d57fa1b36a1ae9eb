//! What was lost, by name.

use std::collections::BTreeMap;

use crate::units::Timestamp;

/// What was lost in one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossTotals {
    /// Records that never arrived: every ring-full counter but those of stacks.
    pub records: u64,
    /// Stacks that were asked for and never arrived.
    pub stacks: u64,
    /// Every counter that is not 0, by name.
    pub counters: BTreeMap<&'static str, u64>,
    /// When a ring was full for the first and for the last time.
    pub ring_full: Option<(Timestamp, Timestamp)>,
    /// Records that arrived and could not be read.
    pub undecodable: u64,
    /// Records that arrived after the recording had reached its limit of memory.
    pub over_memory: u64,
}
