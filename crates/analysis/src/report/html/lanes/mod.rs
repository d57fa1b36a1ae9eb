//! The lives of the target's threads, made small enough to be drawn in a browser.
//!
//! ```text
//! exact    ##|......|r|###      a lane with few intervals: all of them
//! binned   [37%#.][..][2%?]     one with many: what each of a row of equal bins divides into
//! waits    ---|......|----      the longest waits of all lanes, each with who woke the thread
//! ```

mod bins;
mod wait;

use std::{cmp::Reverse, collections::BTreeMap};

use offwake_recording::units::{Nanos, Tgid, Tid, Timestamp};

use crate::{
    blame::{Blame, BlamePart, Chains},
    container_labels::ContainerLabels,
    report::ThreadEntry,
    timeline::{State, Thread, ThreadIndex, WaitIndex},
};

pub(super) use bins::Bin;
pub(super) use wait::LaneWait;
use wait::LongestWaits;

/// The most threads that are drawn.
const MAX_LANES: usize = 150;
/// The most intervals of a lane that is drawn exactly.
const MAX_EXACT_INTERVALS: usize = 3_000;
/// The most intervals of all exact lanes together.
const MAX_EXACT_INTERVALS_IN_ALL: usize = 60_000;
/// The most waits that are written with their details.
const MAX_WAITS: usize = 3_000;

/// The timeline of a page.
#[derive(Debug, Default)]
pub struct Lanes {
    pub(super) lanes: Vec<Lane>,
    /// The longest waits, by lane, then by time.
    pub(super) waits: Vec<LaneWait>,
    pub(super) waits_left_out: u64,
    pub(super) threads_left_out: u64,
    pub(super) blocked_left_out: Nanos,
}

/// One thread's life.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) tid: Tid,
    pub(super) tgid: Tgid,
    pub(super) comm: String,
    pub(super) container: Option<String>,
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
    pub(super) shape: LaneShape,
}

/// How a lane is drawn.
#[derive(Debug)]
pub(super) enum LaneShape {
    /// Where each interval begins, and its state.
    Exact(Vec<(Timestamp, LaneState)>),
    /// Bins of equal length over the whole window.
    Binned(Vec<Bin>),
}

/// A state as it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneState {
    OnCpu,
    Runnable,
    Blocked,
    Lost,
}

impl From<State> for LaneState {
    fn from(state: State) -> Self {
        match state {
            State::OnCpu => Self::OnCpu,
            State::Runnable(_) | State::Throttled(_) => Self::Runnable,
            State::Blocked(_) => Self::Blocked,
            State::Lost | State::Summed(_) => Self::Lost,
        }
    }
}

/// Lanes whose waits have no parts yet.
pub(crate) struct LanePlan {
    lanes: Lanes,
    indices: Vec<ThreadIndex>,
    waits: LongestWaits,
}

impl Lanes {
    /// Makes the lanes of the threads that did most or waited most. `entries` are those of the report that
    /// was made from the same blame.
    #[must_use]
    pub fn new(blame: &Blame<'_>, entries: &[ThreadEntry]) -> Self {
        LanePlan::new(blame, entries).into_lanes(blame)
    }
}

impl LanePlan {
    /// Plans the lanes of the threads that did most or waited most, those of a process beside each
    /// other. `entries` are those of the report that was made from the same blame.
    pub(crate) fn new(blame: &Blame<'_>, entries: &[ThreadEntry]) -> Self {
        let timeline = blame.timeline();
        let target = (timeline.threads.iter().zip(0..)).filter(|(thread, _)| thread.in_target);
        let mut threads: Vec<_> = target
            .zip(entries)
            .map(|((thread, n), entry)| {
                let ledger = &entry.ledger;
                // Who never woke, or had nothing to do, holds nobody up.
                let asleep = ledger.unattributed.get("still_blocked").copied();
                let active = ledger.wall_ns - ledger.idle_ns - asleep.unwrap_or_default();
                (active, ThreadIndex(n), thread, ledger.blocked_ns)
            })
            .collect();
        threads.sort_by_key(|&(active, index, ..)| (Reverse(active), index));
        let left_out = threads.get(MAX_LANES..).unwrap_or_default();
        let threads_left_out = left_out.len() as u64;
        let blocked_left_out = left_out.iter().map(|&(.., blocked)| blocked).sum();
        threads.truncate(MAX_LANES);
        let mut exact_left = MAX_EXACT_INTERVALS_IN_ALL;
        let mut drawn: Vec<_> = (threads.iter())
            .map(|&(_, index, thread, _)| (index, thread, is_exact(thread, &mut exact_left)))
            .collect();
        let mut ranks = BTreeMap::new();
        for (rank, (_, thread, _)) in drawn.iter().enumerate() {
            ranks.entry(thread.tgid).or_insert(rank);
        }
        // Stable: within a process the order stays.
        drawn.sort_by_key(|(_, thread, _)| ranks.get(&thread.tgid).copied());
        let indices: Vec<ThreadIndex> = drawn.iter().map(|&(index, ..)| index).collect();
        let window = blame.recording().meta.window;
        let labels = ContainerLabels::new(blame.recording());
        let lanes = (drawn.into_iter())
            .map(|(_, thread, is_exact)| Lane {
                tid: thread.tid,
                tgid: thread.tgid,
                comm: thread.last_comm().to_owned(),
                container: labels.for_thread(thread).map(str::to_owned),
                from: thread.from,
                until: thread.until,
                shape: if is_exact {
                    let intervals = thread.track.iter();
                    LaneShape::Exact(intervals.map(|i| (i.from, i.state.into())).collect())
                } else {
                    LaneShape::Binned(bins::bin_track(window, &thread.track))
                },
            })
            .collect();
        let waits = LongestWaits::find(blame, &indices, MAX_WAITS);
        let waits_left_out = waits.left_out();
        let lanes =
            Lanes { lanes, waits: Vec::new(), waits_left_out, threads_left_out, blocked_left_out };
        Self { lanes, indices, waits }
    }

    /// Adds the parts of a wait that was walked, if it is one of those that are drawn.
    pub(crate) fn add_parts(&self, wait: WaitIndex, parts: &[BlamePart], chains: &Chains) {
        self.waits.add_parts(wait, parts, chains);
    }

    /// Makes the lanes. Waits whose parts were not added are walked.
    pub(crate) fn into_lanes(self, blame: &Blame<'_>) -> Lanes {
        let Self { lanes, indices, waits } = self;
        Lanes { waits: waits.into_lane_waits(blame, &indices), ..lanes }
    }
}

/// Returns whether a thread has few enough intervals to be drawn exactly; if so, takes them from
/// the budget.
fn is_exact(thread: &Thread, exact_left: &mut usize) -> bool {
    let intervals = thread.track.len();
    let fits = intervals <= MAX_EXACT_INTERVALS.min(*exact_left);
    if fits {
        *exact_left -= intervals;
    }
    fits
}
