//! Single waits as entries, for formats that have a timeline: each is an entry of its own, with all of
//! its parts of blame.
//!
//! ```text
//! waits of the target ── the longest ──▶ walked, on all CPUs ── the filter ──▶ entries
//! ```

use std::cmp::Reverse;

use offwake_recording::{
    WaitRow,
    units::{Nanos, Timestamp},
};

use crate::{
    blame::{Blame, BlamePart, Chains, HopDetail},
    filter::Filter,
    timeline::{BlockedInterval, ThreadIndex, WaitIndex},
    wait_sums::{
        FilteredWait, KeptWait, SmallParts, WaitAttributesTable, WaitSum, filter_wait, is_of_target,
    },
};

use super::{WaitEntry, hop_limit::PartLimits, wait_entries::EntryWriter};

/// The most single waits, and the most of their parts that are told apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SingleWaitLimits {
    /// The longest waits.
    pub(crate) waits: usize,
    /// The largest parts of each wait, as many of one as of any other.
    pub(crate) parts: usize,
}

impl SingleWaitLimits {
    /// Everything.
    pub(crate) const NONE: Self = Self { waits: usize::MAX, parts: usize::MAX };
}

/// What had no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftOutWaits {
    /// Shorter waits.
    pub(crate) waits: u64,
    /// Parts of the others that are summed up.
    pub(crate) parts: u64,
}

/// One wait of the target.
pub(crate) struct SingleWait {
    pub(crate) thread: ThreadIndex,
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    pub(crate) entry: WaitEntry,
}

/// A wait that was walked.
struct WalkedSingle {
    wait: WaitIndex,
    kept: KeptWait,
    parts: (Vec<BlamePart>, Vec<SmallParts>),
}

/// Shows `visit` the longest of the target's waits that the filter keeps, the longest first.
pub(crate) fn visit_longest(
    blame: &Blame<'_>,
    filter: &Filter,
    limits: SingleWaitLimits,
    mut visit: impl FnMut(SingleWait),
) -> LeftOutWaits {
    let attributes = WaitAttributesTable::new(blame, filter.told_apart_by.as_ref());
    let for_recording = filter.for_recording(blame.recording());
    let rows = blame.recording().waits.rows();
    // A filter may leave more out once it is known what a wait was for.
    let find = |wait: WaitIndex| -> Option<(&WaitRow, BlockedInterval)> {
        let place = blame.timeline().blocked_interval(wait)?;
        let row = rows.get(wait.0 as usize)?;
        let blocked = place.to.since(place.from);
        let keeps = is_of_target(blame, wait)
            && for_recording.keeps(wait, row, blocked, blame.own_idle_state(wait));
        keeps.then_some((row, place))
    };
    let lengths = (0..).map(WaitIndex).take(rows.len()).filter_map(|wait| {
        let (_, place) = find(wait)?;
        Some(place.to.since(place.from))
    });
    let mut lengths: Vec<Nanos> = lengths.collect();
    let longer_than = (lengths.len() > limits.waits)
        .then(|| *lengths.select_nth_unstable_by_key(limits.waits, |&length| Reverse(length)).1);
    let has_room = |length: Nanos| longer_than.is_none_or(|most| length > most);
    let without_room = lengths.iter().filter(|&&length| !has_room(length)).count();
    let parts_of_each = limits.parts / (lengths.len() - without_room).max(1);
    let mut left_out = LeftOutWaits { waits: without_room as u64, parts: 0 };
    let walked = blame.visit_waits(
        HopDetail::WakerStacks,
        Vec::new,
        |wait| find(wait).is_some_and(|(_, place)| has_room(place.to.since(place.from))),
        |found: &mut Vec<WalkedSingle>, wait, walked| {
            if let Some(FilteredWait::Kept(kept)) =
                filter_wait(blame, &for_recording, wait, walked.sums())
            {
                let parts = split_off_small(walked.parts, parts_of_each, walked.chains);
                found.push(WalkedSingle { wait, kept, parts });
            }
        },
    );
    let mut longest: Vec<(&WalkedSingle, &Chains)> = (walked.iter())
        .flat_map(|(found, chains)| found.iter().map(move |one| (one, chains)))
        .collect();
    longest.sort_by_key(|(one, _)| (Reverse(one.kept.blocked), one.wait));
    let mut writer = EntryWriter::new(blame, &attributes, PartLimits::NONE);
    for (WalkedSingle { wait, kept, parts }, chains) in longest {
        let Some((_, place)) = find(*wait) else { continue };
        left_out.parts += parts.1.iter().map(|small| small.count).sum::<u64>();
        let Some(sum) = WaitSum::from_wait(blame, &attributes, *wait, *kept, parts.clone()) else {
            continue;
        };
        let entry = writer.wait_entry(&sum, chains);
        visit(SingleWait { thread: place.thread, from: place.from, to: place.to, entry });
    }
    left_out
}

/// Splits off the parts that have no room: the smallest. Parts without any hop have room.
fn split_off_small(
    parts: &[BlamePart],
    most: usize,
    chains: &Chains,
) -> (Vec<BlamePart>, Vec<SmallParts>) {
    let mut parts = parts.to_vec();
    if parts.len() <= most {
        return (parts, Vec::new());
    }
    parts.sort_by_key(|part| (part.depth > 0, Reverse(part.time)));
    let without_hop = parts.iter().take_while(|part| part.depth == 0).count();
    let small = parts.split_off(most.max(without_hop).min(parts.len()));
    let small = small.into_iter().map(|part| SmallParts {
        first: chains.first_hop_alone(part.chain),
        idle_state: part.idle_state,
        count: 1,
        time: part.time,
    });
    (parts, small.collect())
}
