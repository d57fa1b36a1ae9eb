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

use std::{cmp::Reverse, sync::Arc};

use offwake_recording::units::Nanos;

use super::{BlameEntry, Report, wait_entries};
use crate::blame::{BlameEntryKind, Reason};

impl Report {
    /// The most hops of all parts together in a file. Each takes a few dozen frames in a flame graph.
    pub const MAX_HOPS: usize = 200_000;

    /// Returns the report with only those parts of blame that tell most, of `hops` hops in all. In
    /// each wait all others become one part that follows the wait's first hop; they are counted.
    #[must_use]
    pub fn limit_hops(self, hops: usize) -> Self {
        self.limit_parts(hops, |part| usize::from(part.depth))
    }

    /// Returns the report with only those parts of blame that tell most for their size, of `room` in
    /// all. Parts without any hop stay: there are few kinds of them.
    pub(super) fn limit_parts(mut self, room: usize, size: fn(&BlameEntry) -> usize) -> Self {
        let all = || self.waits.iter().flat_map(|wait| &wait.blame).filter(|part| can_merge(part));
        if all().map(size).sum::<usize>() <= room {
            return self;
        }
        let worth = |part: &BlameEntry| Nanos(part.ns.0 / size(part).max(1) as u64);
        let mut worths: Vec<(Nanos, usize)> = all().map(|part| (worth(part), size(part))).collect();
        worths.sort_unstable_by_key(|&(worth, _)| Reverse(worth));
        let mut taken = 0;
        let first_too_many = worths.iter().find(|&&(_, size)| {
            taken += size;
            taken > room
        });
        // Those that are worth as much as it are left out with it: who came first does not matter.
        let least = first_too_many.map_or(Nanos(0), |&(worth, _)| worth);
        for wait in &mut self.waits {
            // What an earlier limit has summed up is counted.
            let mut rests: Vec<BlameEntry> =
                wait.blame.extract_if(.., |part| is_rest(part)).collect();
            let others = wait.blame.extract_if(.., |part| can_merge(part) && worth(part) <= least);
            for other in others {
                self.filter.limited_count += 1;
                self.filter.limited_ns += other.ns;
                merge_into_rest(other, &mut rests);
            }
            wait.blame.append(&mut rests);
            wait_entries::sort_blame(&mut wait.blame);
        }
        self
    }
}

/// Whether a part stands for others already.
pub(super) fn is_rest(part: &BlameEntry) -> bool {
    part.reason == Some(Reason::ReportLimit)
}

/// Whether a part can be told less exactly.
fn can_merge(part: &BlameEntry) -> bool {
    part.depth > 0 && !is_rest(part)
}

/// Adds a part to the one that stands for all like it.
fn merge_into_rest(part: BlameEntry, rests: &mut Vec<BlameEntry>) {
    let first = part.chain.first();
    let is_its = |rest: &&mut BlameEntry| rest.idle == part.idle && rest.chain.first() == first;
    if let Some(rest) = rests.iter_mut().find(is_its) {
        rest.ns += part.ns;
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
        ns: part.ns,
        idle: part.idle,
        holder: None,
        label: None,
        stack: first.map(|hop| hop.stack.clone()).unwrap_or_default(),
        chain: first.map(Arc::clone).into_iter().collect(),
    });
}
