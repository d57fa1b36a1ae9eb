//! What was lost, by name.

use std::collections::BTreeMap;

use crate::{Unanswered, units::Timestamp};

/// What could not be done on this side, by name, and how often; only what is not 0.
pub type Diagnostics = BTreeMap<&'static str, u64>;

/// Counts one diagnostic.
pub fn count(diagnostics: &mut Diagnostics, name: &'static str) {
    *diagnostics.entry(name).or_default() += 1;
}

/// Adds the counts of `more`.
pub fn add_all(diagnostics: &mut Diagnostics, more: &Diagnostics) {
    for (name, count) in more {
        *diagnostics.entry(name).or_default() += count;
    }
}

/// A thread of offwake's own without which a part of a recording is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartThread {
    /// The thread's name.
    pub name: &'static str,
    /// What counts that it has died.
    pub counter: &'static str,
    /// What is missing then, as a sentence.
    pub cost: &'static str,
}

/// What processes read from disks and wrote to them is not known: the kernel did not hand its counts out.
pub const DISK_USES_UNREAD: &str = "disk_uses_unread";

/// How many threads of offwake's own have died.
pub const OWN_THREADS_FAILED: &str = "own_threads_failed";

/// All such threads. Without any other there is no recording.
pub const PART_THREADS: [PartThread; 9] = [
    PartThread {
        name: "offwake-sync",
        counter: "own_thread_sync_failed",
        cost: "the recording went to its disk only as it ended",
    },
    PartThread {
        name: "offwake-engines",
        counter: "own_thread_engines_failed",
        cost: "containers go by their ids",
    },
    PartThread {
        name: "offwake-build-id",
        counter: "own_thread_build_id_failed",
        cost: "build ids of programs are missing",
    },
    PartThread {
        name: "offwake-labels",
        counter: "own_thread_labels_failed",
        cost: "labels and traces of programs are missing",
    },
    PartThread {
        name: "offwake-sockets",
        counter: "own_thread_sockets_failed",
        cost: "sockets of other network namespaces have no addresses",
    },
    PartThread {
        name: "offwake-owners",
        counter: "own_thread_owners_failed",
        cost: "who held the locks at the end is not known",
    },
    PartThread {
        name: "offwake-polled",
        counter: "own_thread_polled_failed",
        cost: "which files were polled at the end is not known",
    },
    PartThread {
        name: "offwake-names",
        counter: "own_thread_names_failed",
        cost: "functions have no names",
    },
    PartThread {
        name: "offwake-print",
        counter: "own_thread_print_failed",
        cost: "the line that shows the progress is missing",
    },
];

/// What was lost in one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossTotals {
    /// Records that never arrived: every ring-full counter but those of stacks.
    pub records: u64,
    /// Stacks that were asked for and never arrived.
    pub stacks: u64,
    /// Every counter that is not 0, by name.
    pub counters: BTreeMap<String, u64>,
    /// When a ring was full for the first and for the last time.
    pub ring_full: Option<(Timestamp, Timestamp)>,
    /// Records that arrived and could not be read.
    pub undecodable: u64,
    /// Records that arrived after the recording had reached its limit of memory.
    pub over_memory: u64,
    /// What did not answer. Nothing of it is asked again, so that it is missing from then on.
    pub unanswered: Vec<Unanswered>,
}

impl LossTotals {
    /// Adds what could not be done on this side.
    pub fn add_diagnostics(&mut self, diagnostics: &Diagnostics) {
        for (name, count) in diagnostics {
            *self.counters.entry((*name).to_owned()).or_default() += count;
        }
    }

    /// What was lost since an earlier reading of the same counters.
    #[must_use]
    pub fn since(mut self, earlier: &Self) -> Self {
        let before = |name: &str| earlier.counters.get(name).copied().unwrap_or(0);
        self.counters = self
            .counters
            .into_iter()
            .map(|(name, count)| {
                let count = count.saturating_sub(before(&name));
                (name, count)
            })
            .filter(|(_, count)| *count > 0)
            .collect();
        self.undecodable = self.undecodable.saturating_sub(earlier.undecodable);
        self.over_memory = self.over_memory.saturating_sub(earlier.over_memory);
        self.records = self.records.saturating_sub(earlier.records);
        self.stacks = self.stacks.saturating_sub(earlier.stacks);
        if self.ring_full == earlier.ring_full {
            self.ring_full = None;
        }
        self
    }
}
