//! What programs marked in their own code, as a part of the report.

use std::sync::Arc;

use offwake_recording::units::{Nanos, Tgid};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    blame::Blame,
    markers::{self, MarkerTotals, UnpairedMarkers},
    timeline::{NAMELESS, Timeline},
};

/// The most entries: a program may put a number into each name.
const MAX_ENTRIES: usize = 1_000;

/// What the target's programs marked, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MarkersEntry {
    /// By track, name and process; those with the most time first, 1,000 at most.
    pub totals: Vec<MarkerEntry>,
    /// How many there is no room for.
    pub left_out: u64,
    /// Ranges that no marker ended.
    pub begins_without_end: u64,
    /// Ends of ranges that were open as the window opened.
    pub ends_of_earlier_begins: u64,
    /// Ends of nothing, which are left out.
    pub ends_without_begin: u64,
    /// Ranges that another thread ended than the one that began them. They are on no chain.
    pub ended_by_other_threads: u64,
    /// Ranges of threads that were in 64 others already, which are left out.
    pub too_many_open: u64,
    /// Markers that were lost. If there are any, ranges with one marker alone are left out, and
    /// others may be longer than the program's.
    pub lost: u64,
}

/// The ranges and instants of one name in one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MarkerEntry {
    /// What stands before the first colon; `Markers` if there is none.
    pub track: Arc<str>,
    /// What stands behind it.
    pub name: Arc<str>,
    /// The process.
    pub tgid: Tgid,
    /// Its name.
    pub comm: String,
    /// How many ranges.
    pub ranges: u64,
    /// Of those, the ones of which only one end was marked inside the window.
    pub unpaired: u64,
    /// How many instants.
    pub instants: u64,
    /// The time of all ranges, added up.
    pub ns: Nanos,
    /// The longest of them.
    pub longest_ns: Nanos,
    /// Of that time, what their threads were on a CPU. Ranges that another thread ended do not
    /// count here.
    pub on_cpu_ns: Nanos,
    /// What they waited for a CPU.
    pub runnable_ns: Nanos,
    /// What they were blocked.
    pub blocked_ns: Nanos,
}

/// Sums up what the target marked; none if it marked nothing.
pub(super) fn markers_entry(blame: &Blame<'_>) -> Option<MarkersEntry> {
    let (markers, timeline) = (blame.markers(), blame.timeline());
    let all = markers::sum_up(markers, timeline);
    let unpaired = markers.unpaired();
    if all.is_empty() && unpaired == UnpairedMarkers::default() {
        return None;
    }
    let shown = all.len().min(MAX_ENTRIES);
    Some(MarkersEntry {
        totals: all.iter().take(shown).map(|totals| entry(blame, timeline, totals)).collect(),
        left_out: (all.len() - shown) as u64,
        begins_without_end: unpaired.begins_without_end,
        ends_of_earlier_begins: unpaired.ends_of_earlier_begins,
        ends_without_begin: unpaired.ends_without_begin,
        ended_by_other_threads: unpaired.ended_by_other_threads,
        too_many_open: unpaired.too_many_open,
        lost: unpaired.lost,
    })
}

fn entry(blame: &Blame<'_>, timeline: &Timeline, totals: &MarkerTotals) -> MarkerEntry {
    let (track, name) = blame.markers().name(totals.name);
    // A process is called what its first thread is.
    let first = timeline.threads.iter().find(|one| one.tid.0 == totals.tgid.0);
    MarkerEntry {
        track: track.into(),
        name: name.into(),
        tgid: totals.tgid,
        comm: first.map_or(NAMELESS, |thread| thread.last_comm()).to_owned(),
        ranges: totals.ranges,
        unpaired: totals.unpaired,
        instants: totals.instants,
        ns: totals.time,
        longest_ns: totals.longest,
        on_cpu_ns: totals.states.on_cpu,
        runnable_ns: totals.states.runnable,
        blocked_ns: totals.states.blocked,
    }
}
