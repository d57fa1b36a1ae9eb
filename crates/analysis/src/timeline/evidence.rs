//! What the records of other threads prove about a thread some of whose own records were lost.

use std::collections::HashMap;

use offwake_recording::{
    Phase, Recording,
    units::{Tid, Timestamp},
};

/// A moment at which a thread was on a CPU, and how many records it had made by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Anchor {
    pub(super) at: Timestamp,
    /// The number of the thread's newest wait or preemption at that moment.
    pub(super) seq: u32,
}

/// What the records of others prove about one tid.
#[derive(Debug, Default)]
pub(super) struct TidEvidence {
    /// In order of time.
    pub(super) anchors: Vec<Anchor>,
    /// When the thread came to a CPU from which another thread was preempted for it, in order of
    /// time.
    pub(super) arrivals: Vec<Timestamp>,
}

/// What the records of others prove about the tids that have gaps.
#[derive(Default)]
pub(super) struct OthersEvidence(HashMap<Tid, TidEvidence>);

impl OthersEvidence {
    pub(super) fn get(&self, tid: Tid) -> Option<&TidEvidence> {
        self.0.get(&tid)
    }
}

/// Gathers the evidence about `tids` from a whole recording.
pub(super) fn gather(recording: &Recording, tids: &[Tid]) -> OthersEvidence {
    let mut known: HashMap<Tid, TidEvidence> =
        tids.iter().map(|&tid| (tid, TidEvidence::default())).collect();
    for thread_event in &recording.thread_events {
        if thread_event.phase == Phase::OnCpu
            && let Some(of_tid) = known.get_mut(&thread_event.tid)
        {
            of_tid.anchors.push(Anchor { at: thread_event.at, seq: thread_event.seq });
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
    OthersEvidence(known)
}
