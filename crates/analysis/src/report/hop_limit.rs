//! Limits the size of a report's blame to the parts of all waits that tell most.
//!
//! A wait that is followed sixteen hops far has dozens of parts, and each names all hops up to it. Twenty thousand threads
//! that pass a baton on, recorded for three seconds, were 13 MB of records and 48 GB of JSON before it was given up.
//! So what is written out one by one has a limit, and the rest of a wait's time is one part that says so.
//! [`super::entry_limit`] does the same for whole entries.
//!
//! ```text
//!  parts of all waits, by time a hop    ████████ ██████ ████ ███ │ ██ █ █ ▌ ▌ ▌ …
//!                                       written out one by one   │ `report_limit`, summed up in each wait
//!                                                       the room ─┘
//! ```

use std::sync::Arc;

use offwake_recording::units::Nanos;

use super::{BlameEntry, EntryLimits, HopEntry, Report, path_limit::most_summed_up, wait_entries};
use crate::{
    blame::{BlameEntryKind, BlamePart, Reason},
    wait_sums::{WaitSum, WaitSums, worth, worth_of_hops},
};

impl Report {
    /// The most hops of all parts together in a file. Each takes a few dozen frames in a flame graph.
    pub const MAX_HOPS: usize = 200_000;

    /// Returns the report with only those parts of blame that tell most, of `hops` hops in all. In
    /// each wait all others become one part that follows the wait's first hop; they are counted. Parts
    /// without any hop stay: there are few kinds of them.
    #[must_use]
    pub fn limit_hops(mut self, hops: usize) -> Self {
        let worth = |part: &BlameEntry| worth(part.ns, part.depth.into());
        let all = (self.waits.iter().flat_map(|wait| &wait.blame)).filter(|part| can_merge(part));
        let Some(most) =
            most_summed_up(all.map(|part| (worth(part), usize::from(part.depth))), hops)
        else {
            return self;
        };
        for wait in &mut self.waits {
            // What an earlier limit has summed up is counted.
            let mut rests: Vec<BlameEntry> =
                wait.blame.extract_if(.., |part| is_rest(part)).collect();
            let others = wait.blame.extract_if(.., |part| can_merge(part) && worth(part) <= most);
            for other in others {
                self.filter.limited_count += 1;
                self.filter.limited_ns += other.ns;
                add_to_rest(other.ns, other.idle, other.chain.first(), &mut rests);
            }
            wait.blame.append(&mut rests);
            wait_entries::sort_blame(&mut wait.blame);
        }
        self
    }
}

/// How many bytes a part takes in a list.
fn bytes(part: &BlamePart) -> usize {
    220 + 8 * usize::from(part.depth)
}

/// Which parts of blame have room.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartLimits {
    /// The most that a part is worth which has none, for its hops and for its bytes.
    by_hops: Option<u64>,
    by_bytes: Option<u64>,
}

impl PartLimits {
    /// All parts have room.
    pub(super) const NONE: Self = Self { by_hops: None, by_bytes: None };

    /// Finds out which parts of waits have room. Only those of `listed` waits are written out at all.
    pub(super) fn new(sums: &WaitSums, listed: &[&WaitSum], limits: EntryLimits) -> Self {
        let all = (sums.waits.iter().flat_map(|wait| &wait.totals.parts))
            .filter(|part| part.depth > 0 && worth_of_hops(part) >= sums.least_with_room);
        let by_hops = match limits.hops {
            usize::MAX => None,
            room => most_summed_up(all.map(|part| (worth_of_hops(part), part.depth.into())), room),
        };
        let limited = Self { by_hops, by_bytes: None };
        let left = (listed.iter().flat_map(|wait| &wait.totals.parts))
            .filter(|part| part.depth > 0 && limited.have_room_for(part));
        let by_bytes = match limits.part_bytes {
            usize::MAX => None,
            room => {
                most_summed_up(left.map(|part| (worth(part.time, bytes(part)), bytes(part))), room)
            }
        };
        Self { by_bytes, ..limited }
    }

    /// Returns whether a part is written out by itself. Parts without any hop are: there are few kinds.
    pub(super) fn have_room_for(&self, part: &BlamePart) -> bool {
        let is_small = |most: Option<u64>, size| most.is_some_and(|m| worth(part.time, size) <= m);
        part.depth == 0
            || !is_small(self.by_hops, part.depth.into()) && !is_small(self.by_bytes, bytes(part))
    }
}

/// Whether a part stands for others already.
fn is_rest(part: &BlameEntry) -> bool {
    part.reason == Some(Reason::ReportLimit)
}

/// Whether a part can be told less exactly.
fn can_merge(part: &BlameEntry) -> bool {
    part.depth > 0 && !is_rest(part)
}

/// Adds a part's time to the part that stands for all with its first hop.
pub(super) fn add_to_rest(
    time: Nanos,
    idle: bool,
    first: Option<&Arc<HopEntry>>,
    rests: &mut Vec<BlameEntry>,
) {
    let is_its = |rest: &&mut BlameEntry| rest.idle == idle && rest.chain.first() == first;
    if let Some(rest) = rests.iter_mut().find(is_its) {
        rest.ns += time;
        return;
    }
    rests.push(BlameEntry {
        kind: BlameEntryKind::Unattributed,
        reason: Some(Reason::ReportLimit),
        tid: None,
        tgid: None,
        comm: None,
        container: None,
        depth: 1,
        ns: time,
        idle,
        holder: None,
        label: None,
        stack: first.map(|hop| hop.stack.clone()).unwrap_or_default(),
        chain: first.map(Arc::clone).into_iter().collect(),
    });
}
