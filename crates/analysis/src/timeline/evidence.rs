//! What the records of others say of a thread of whose own records some were lost.

use std::collections::HashMap;

use offwake_recording::{
    Phase, Recording,
    units::{Tid, Timestamp},
};

/// A thread was on a CPU, and had made so many records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Anchor {
    pub(super) at: Timestamp,
    /// The number of its newest wait or preemption at that moment.
    pub(super) seq: u32,
}

/// What is known of one tid.
#[derive(Debug, Default)]
pub(super) struct OfTid {
    /// By time.
    pub(super) anchors: Vec<Anchor>,
    /// When it came to a CPU from which another thread was preempted; by time.
    pub(super) arrivals: Vec<Timestamp>,
}

/// What is known of those tids that have gaps.
#[derive(Default)]
pub(super) struct Evidence(HashMap<Tid, OfTid>);

impl Evidence {
    pub(super) fn of(&self, tid: Tid) -> Option<&OfTid> {
        self.0.get(&tid)
    }
}

/// Gathers it from a whole recording.
pub(super) fn of(recording: &Recording, tids: &[Tid]) -> Evidence {
    let mut known: HashMap<Tid, OfTid> = tids.iter().map(|&tid| (tid, OfTid::default())).collect();
    for sighting in &recording.sightings {
        if sighting.phase == Phase::OnCpu
            && let Some(of_tid) = known.get_mut(&sighting.tid)
        {
            of_tid.anchors.push(Anchor { at: sighting.at, seq: sighting.seq });
        }
    }
    for preemption in &recording.preemptions {
        if let Some(of_tid) = known.get_mut(&preemption.next) {
            of_tid.arrivals.push(preemption.off);
        }
    }
    for sample in &recording.samples {
        if let (Some(seq), Some(of_tid)) = (sample.seq, known.get_mut(&sample.tid)) {
            of_tid.anchors.push(Anchor { at: sample.at, seq });
        }
    }
    let waits = &recording.waits;
    let is_wanted: Vec<bool> = (waits.patterns().iter())
        .map(|(_, pattern)| {
            let waker = pattern.wake.map(|(waker, _)| &waits.wakers()[waker]);
            waker.is_some_and(|waker| known.contains_key(&waker.current.tid))
        })
        .collect();
    for row in waits.rows() {
        if is_wanted.get(row.pattern.index()) == Some(&true)
            && let (Some(at), Some(seq)) = (row.woken_at(), row.waker_seq())
            && let Some(waker) = waits.waker(row)
            && let Some(of_tid) = known.get_mut(&waker.current.tid)
        {
            of_tid.anchors.push(Anchor { at, seq });
        }
    }
    for of_tid in known.values_mut() {
        of_tid.anchors.sort_by_key(|anchor| anchor.at);
    }
    known.retain(|_, of_tid| !of_tid.anchors.is_empty() || !of_tid.arrivals.is_empty());
    Evidence(known)
}
