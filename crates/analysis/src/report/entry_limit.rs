//! Limits the number of a report's entries, so that it makes a file of usable size.
//!
//! ```text
//!  waits, the longest first    ████████ ██████ ████ ███ ██ │ █ █ ▌ ▌ ▌ ▌ …
//!                              as they are                 │ summed up: one entry for each thread,
//!                                         EntryLimits ─────┘ cause and state
//! ```
//!
//! Nothing is lost from any sum: the entries of a thread add up to its ledger as before.

use std::cmp::Reverse;

use indexmap::IndexMap;
use offwake_recording::units::{CgroupId, Nanos, Tgid, Tid};

use super::{BlameEntry, Report, WaitEntry, hop_limit::is_rest, wait_entries};
use crate::{
    blame::{BlameEntryKind, Reason, cause::Cause},
    frames::Frames,
};

/// How much of a report has room in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryLimits {
    /// The most waits and the most wakes that are listed one by one. A wait is 0.6 KB without its blame.
    pub entries: usize,
    /// The most bytes of parts of blame. A part is a quarter of a kilobyte.
    pub part_bytes: usize,
}

impl Default for EntryLimits {
    /// What makes a file of less than 20 MB.
    fn default() -> Self {
        Self { entries: 8_000, part_bytes: 6_000_000 }
    }
}

/// What stands for the stacks of waits that are summed up.
const SMALLER_WAITS: &str = "[smaller waits]";

/// What waits that are summed up have in common.
#[derive(PartialEq, Eq, Hash)]
struct SmallWaitsKey {
    tid: Tid,
    tgid: Tgid,
    comm: String,
    cgroup: Option<CgroupId>,
    container: Option<String>,
    cause: Cause,
    state: char,
}

impl Report {
    /// Returns the report with so many entries that a file of it has a usable size.
    #[must_use]
    pub fn limit_entries(self, limits: EntryLimits) -> Self {
        let mut limited = self.limit_waits(limits.entries);
        let wakes = limited.wakes.split_off(limited.wakes.len().min(limits.entries));
        limited.filter.limited_wakes = wakes.len() as u64;
        limited.filter.limited_wakes_ns = wakes.iter().map(|wake| wake.blocked_ns).sum();
        limited.limit_parts(limits.part_bytes, |part| 220 + 8 * part.chain.len())
    }

    /// Returns the report with the `most` longest waits; the others are summed up.
    fn limit_waits(mut self, most: usize) -> Self {
        let small = self.waits.split_off(self.waits.len().min(most));
        let mut sums: IndexMap<SmallWaitsKey, WaitEntry> = IndexMap::new();
        for wait in small {
            self.filter.limited_waits += 1;
            self.filter.limited_waits_ns += wait.blocked_ns;
            let untold = wait.blame.iter().filter(|part| part.depth > 0 && !is_rest(part));
            for part in untold {
                self.filter.limited_count += 1;
                self.filter.limited_ns += part.ns;
            }
            let sum = sums.entry(key(&wait)).or_insert_with(|| empty_sum(&wait));
            sum.summed_up += 1;
            sum.count += wait.count;
            sum.retries += wait.retries;
            sum.blocked_ns += wait.blocked_ns;
            sum.idle_ns += wait.idle_ns;
            sum.longest_ns = sum.longest_ns.max(wait.longest_ns);
            wait.blame.iter().for_each(|part| add_part(part, &mut sum.blame));
        }
        for mut sum in sums.into_values() {
            wait_entries::sort_blame(&mut sum.blame);
            self.waits.push(sum);
        }
        self.waits.sort_by_key(|wait| Reverse(wait.blocked_ns));
        self
    }
}

fn key(wait: &WaitEntry) -> SmallWaitsKey {
    SmallWaitsKey {
        tid: wait.tid,
        tgid: wait.tgid,
        comm: wait.comm.clone(),
        cgroup: wait.cgroup,
        container: wait.container.clone(),
        cause: wait.cause,
        state: wait.state,
    }
}

/// Returns the entry that waits like this one are added to.
fn empty_sum(wait: &WaitEntry) -> WaitEntry {
    WaitEntry {
        tid: wait.tid,
        tgid: wait.tgid,
        comm: wait.comm.clone(),
        cgroup: wait.cgroup,
        container: wait.container.clone(),
        cause: wait.cause,
        seen_in: None,
        label: None,
        waited_on: None,
        syscall: None,
        timeout_ns: None,
        state: wait.state,
        count: 0,
        retries: 0,
        blocked_ns: Nanos(0),
        idle_ns: Nanos(0),
        longest_ns: Nanos(0),
        summed_up: 0,
        stack: Frames::placeholder(SMALLER_WAITS),
        waker: None,
        waker_call: None,
        blame: Vec::new(),
    }
}

/// Adds a part without its chain: what it is on stays if that is no thread.
fn add_part(part: &BlameEntry, sums: &mut Vec<BlameEntry>) {
    let (kind, reason) = match part.depth {
        0 => (part.kind, part.reason),
        _ => (BlameEntryKind::Unattributed, Some(Reason::ReportLimit)),
    };
    let is_its =
        |sum: &&mut BlameEntry| (sum.kind, sum.reason, sum.idle) == (kind, reason, part.idle);
    if let Some(sum) = sums.iter_mut().find(is_its) {
        sum.ns += part.ns;
        return;
    }
    sums.push(BlameEntry {
        kind,
        reason,
        tid: None,
        tgid: None,
        comm: None,
        container: None,
        depth: 0,
        ns: part.ns,
        idle: part.idle,
        holder: None,
        label: None,
        stack: Frames::default(),
        chain: Vec::new(),
    });
}
