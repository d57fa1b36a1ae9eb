//! Limits the number of a report's entries, so that it makes a file of usable size.
//!
//! ```text
//!  waits, the longest first    ████████ ██████ ████ ███ ██ │ █ █ ▌ ▌ ▌ ▌ …
//!                              as they are                 │ summed up: one entry for each thread,
//!                                         EntryLimits ─────┘ cause and state
//! ```
//!
//! Nothing is lost from any sum: the entries of a thread add up to its ledger as before. What has no room
//! is never made: millions of parts with texts would take a gigabyte, to be given up again.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use offwake_recording::units::{CgroupId, Nanos, Tgid, Tid};

use super::{BlameEntry, FilterNote, Report, WaitEntry, wait_entries};
use crate::{
    blame::{BlameEntryKind, BlamePart, IdleState, Reason, cause::Cause},
    frames::Frames,
    wait_sums::{SmallParts, WaitTotals},
};

/// How much of a report has room in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryLimits {
    /// The most hops of all parts of blame together.
    pub hops: usize,
    /// The most waits and the most wakes that are listed one by one. A wait is 0.6 KB without its blame.
    pub entries: usize,
    /// The most bytes of parts of blame. A part is a quarter of a kilobyte.
    pub part_bytes: usize,
}

impl EntryLimits {
    /// Room for everything.
    pub const NONE: Self = Self { hops: usize::MAX, entries: usize::MAX, part_bytes: usize::MAX };
    /// What a picture or a page has room for.
    pub const OF_PICTURES: Self = Self { hops: Report::MAX_HOPS, ..Self::NONE };
    /// What makes a file of less than 20 MB that lists entries one by one.
    pub const OF_LISTS: Self = Self { entries: 8_000, part_bytes: 6_000_000, ..Self::OF_PICTURES };
}

/// How much of a report had no room.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LimitedSums {
    pub(super) parts: CountAndTime,
    pub(super) waits: CountAndTime,
    pub(super) wakes: CountAndTime,
}

/// How many, and their time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CountAndTime {
    count: u64,
    time: Nanos,
}

impl CountAndTime {
    pub(super) fn add(&mut self, time: Nanos) {
        self.add_several(1, time);
    }

    pub(super) fn add_several(&mut self, count: u64, time: Nanos) {
        self.count += count;
        self.time += time;
    }
}

impl LimitedSums {
    pub(super) fn add(&mut self, more: Self) {
        for (sum, more) in [
            (&mut self.parts, more.parts),
            (&mut self.waits, more.waits),
            (&mut self.wakes, more.wakes),
        ] {
            sum.add_several(more.count, more.time);
        }
    }

    /// Returns the note on a filter with what had no room.
    pub(super) fn fill_in(self, filter: &FilterNote) -> FilterNote {
        let Self { parts, waits, wakes } = self;
        FilterNote {
            limited_count: parts.count,
            limited_ns: parts.time,
            limited_waits: waits.count,
            limited_waits_ns: waits.time,
            limited_wakes: wakes.count,
            limited_wakes_ns: wakes.time,
            ..filter.clone()
        }
    }
}

/// What stands for the stacks of waits that are summed up.
const SMALLER_WAITS: &str = "[smaller waits]";

/// What waits that are summed up have in common.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct SmallWaitsKey {
    pub(super) tid: Tid,
    pub(super) tgid: Tgid,
    pub(super) comm: String,
    pub(super) cgroup: Option<CgroupId>,
    pub(super) container: Option<String>,
    pub(super) cause: Cause,
    pub(super) state: char,
}

/// The waits that are summed up.
#[derive(Default)]
pub(super) struct SmallWaits(IndexMap<SmallWaitsKey, WaitEntry>);

impl SmallWaits {
    /// Adds waits that are alike.
    pub(super) fn add(&mut self, key: SmallWaitsKey, wait: &WaitTotals, limited: &mut LimitedSums) {
        limited.waits.add(wait.blocked);
        let sum = self.0.entry(key).or_insert_with_key(empty_sum);
        sum.summed_up += 1;
        sum.count += wait.count;
        sum.retries += wait.retries;
        sum.blocked_ns += wait.blocked;
        sum.idle_ns += wait.idle;
        sum.longest_ns = sum.longest_ns.max(wait.longest);
        for part in &wait.parts {
            if part.depth > 0 {
                limited.parts.add(part.time);
            }
            let (kind, reason) = kind_without_hops(part);
            add_part((kind, reason, part.idle_state), part.time, &mut sum.blame);
        }
        for &SmallParts { idle_state, count, time, .. } in &wait.small {
            limited.parts.add_several(count, time);
            add_part((REST.0, REST.1, idle_state), time, &mut sum.blame);
        }
    }

    /// Returns an entry for each thread, cause and state.
    pub(super) fn into_entries(self) -> impl Iterator<Item = WaitEntry> {
        self.0.into_values().map(|mut sum| {
            wait_entries::sort_blame(&mut sum.blame);
            sum
        })
    }
}

/// Returns the entry that waits are added to.
fn empty_sum(key: &SmallWaitsKey) -> WaitEntry {
    let SmallWaitsKey { tid, tgid, comm, cgroup, container, cause, state } = key.clone();
    WaitEntry {
        tid,
        tgid,
        comm,
        cgroup,
        container,
        cause,
        seen_in: None,
        label: None,
        waited_on: None,
        syscall: None,
        timeout_ns: None,
        state,
        count: 0,
        retries: 0,
        blocked_ns: Nanos(0),
        idle_ns: Nanos(0),
        longest_ns: Nanos(0),
        summed_up: 0,
        markers: Vec::new(),
        labels: BTreeMap::new(),
        stack: Frames::placeholder(SMALLER_WAITS),
        waker: None,
        waker_call: None,
        blame: Vec::new(),
    }
}

/// What parts are on whose threads are not named.
const REST: (BlameEntryKind, Option<Reason>) =
    (BlameEntryKind::Unattributed, Some(Reason::ReportLimit));

/// Returns what a part without its chain is on: that stays if it is no thread.
fn kind_without_hops(part: &BlamePart) -> (BlameEntryKind, Option<Reason>) {
    match part.depth {
        0 => BlameEntryKind::from_blame(part.kind),
        _ => REST,
    }
}

/// Adds a part without its chain.
fn add_part(
    (kind, reason, idle_state): (BlameEntryKind, Option<Reason>, IdleState),
    time: Nanos,
    sums: &mut Vec<BlameEntry>,
) {
    let idle = idle_state == IdleState::Idle;
    let is_its = |sum: &&mut BlameEntry| (sum.kind, sum.reason, sum.idle) == (kind, reason, idle);
    if let Some(sum) = sums.iter_mut().find(is_its) {
        sum.ns += time;
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
        ns: time,
        idle,
        holder: None,
        label: None,
        stack: Frames::default(),
        chain: Vec::new(),
    });
}
