//! What a workload says of itself: one JSON line when it is ready, one when it has ended.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::intervals::{Interval, total_in};

/// The first line: who plays which role.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// The workload's own process.
    pub pid: u32,
    /// The roles by name.
    pub roles: BTreeMap<String, Player>,
}

/// The thread that plays a role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Player {
    /// The process that the thread belongs to.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The name that it gave itself, bytes that are no UTF-8 replaced.
    pub comm: String,
}

/// The last line: what each role measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroundTruth {
    /// The logs by the role's name.
    pub roles: BTreeMap<String, Log>,
}

/// What one role did, in order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Log {
    /// What the role did, in order.
    pub entries: Vec<Entry>,
    /// Entries that found no room; a truth with holes is no truth, see [`Log::is_complete`].
    pub dropped: u64,
}

/// What an entry of a log measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// The time around a call that blocks.
    Wait,
    /// The time spent computing.
    Work,
    /// A hole in a busy loop: the CPU was elsewhere.
    OffCpu,
}

/// One interval in which a role did one thing.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// What the role did.
    pub activity: Activity,
    /// When it began, `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// When it ended; none if it never did.
    pub end_ns: Option<u64>,
    /// A process or thread that the workload ties to the entry (a child that ends the wait); 0 if
    /// there is none.
    pub tied_to: u32,
    /// The CPU time that the thread had in it; 0 if that was not measured.
    pub cpu_ns: u64,
}

impl Entry {
    /// The entry's interval. An entry that never ended goes on for ever.
    #[must_use]
    pub fn interval(&self) -> Interval {
        Interval::new(self.start_ns, self.end_ns.unwrap_or(u64::MAX))
    }
}

impl Log {
    /// The intervals of one activity.
    #[must_use]
    pub fn intervals(&self, activity: Activity) -> Vec<Interval> {
        self.entries_of(activity).map(Entry::interval).collect()
    }

    /// The entries of one activity.
    pub fn entries_of(&self, activity: Activity) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.activity == activity)
    }

    /// How long one activity took inside `window`, in ns.
    #[must_use]
    pub fn total_ns(&self, activity: Activity, window: Interval) -> u64 {
        total_in(self.intervals(activity), window)
    }

    /// The CPU time measured during `times`, which do not overlap, in ns. Of an entry that lies in them
    /// in part it is the part that its length has.
    #[must_use]
    pub fn cpu_ns(&self, times: &[Interval]) -> f64 {
        let of_entry = |entry: &Entry| {
            let whole = entry.interval();
            let inside = total_in(times.iter().copied(), whole) as f64;
            entry.cpu_ns as f64 * inside / whole.length_ns().max(1) as f64
        };
        self.entries.iter().map(of_entry).sum()
    }

    /// Whether nothing was dropped.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.dropped == 0
    }
}
