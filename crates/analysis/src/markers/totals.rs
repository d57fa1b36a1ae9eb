//! What the ranges of one name come to, process by process.

use std::cmp::Reverse;

use indexmap::IndexMap;
use offwake_recording::units::{Nanos, Tgid};

use crate::timeline::{StateTimes, Timeline};

use super::{MarkerNameId, Markers, RangeBegin, RangeEnd};

/// The ranges and instants of one name in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkerTotals {
    /// Their track and their name.
    pub name: MarkerNameId,
    /// The process.
    pub tgid: Tgid,
    /// How many ranges.
    pub ranges: u64,
    /// Of those, the ones that lack a marker inside the window.
    pub unpaired: u64,
    /// How many instants.
    pub instants: u64,
    /// The time of all ranges, added up.
    pub time: Nanos,
    /// The longest of them.
    pub longest: Nanos,
    /// What the threads did in them; nothing of ranges that another thread ended.
    pub states: StateTimes,
}

/// Adds up what the target marked, that with the most time first.
#[must_use]
pub fn sum_up(markers: &Markers, timeline: &Timeline) -> Vec<MarkerTotals> {
    let mut sums: IndexMap<(MarkerNameId, Tgid), MarkerTotals> = IndexMap::new();
    let target = |thread| timeline.thread(thread).filter(|life| life.in_target);
    for range in markers.ranges() {
        let Some(life) = target(range.thread) else { continue };
        let length = range.to.since(range.from);
        let sum = totals_for(&mut sums, range.name, life.tgid);
        sum.ranges += 1;
        sum.time += length;
        sum.longest = sum.longest.max(length);
        let is_whole = range.begin == RangeBegin::Marked && range.end != RangeEnd::NotSeen;
        sum.unpaired += u64::from(!is_whole);
        if range.end != RangeEnd::ByOtherThread {
            sum.states.add_times(life.track.times_between(range.from, range.to));
        }
    }
    for instant in markers.instants() {
        let Some(life) = target(instant.thread) else { continue };
        totals_for(&mut sums, instant.name, life.tgid).instants += 1;
    }
    let mut sums: Vec<MarkerTotals> = sums.into_values().collect();
    sums.sort_by_key(|sum| (Reverse(sum.time), Reverse(sum.instants), sum.tgid, sum.name));
    sums
}

fn totals_for(
    sums: &mut IndexMap<(MarkerNameId, Tgid), MarkerTotals>,
    name: MarkerNameId,
    tgid: Tgid,
) -> &mut MarkerTotals {
    sums.entry((name, tgid)).or_insert_with(|| MarkerTotals {
        name,
        tgid,
        ranges: 0,
        unpaired: 0,
        instants: 0,
        time: Nanos(0),
        longest: Nanos(0),
        states: StateTimes::default(),
    })
}
