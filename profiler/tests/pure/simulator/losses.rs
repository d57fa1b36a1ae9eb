//! What a profiler loses of a recording.

use std::collections::BTreeSet;

use offwake_recording::{Recording, units::Tid};
use proptest::prelude::*;

use super::records;

/// Which records, thread events and exits are lost, one after the other, over and over.
#[derive(Clone, Debug)]
pub struct Loss(Vec<bool>);

/// Anything from a few records to nearly all of them.
pub fn loss() -> impl Strategy<Value = Loss> {
    let share = prop_oneof![Just(0.03), Just(0.15), Just(0.5), Just(0.9)];
    share
        .prop_flat_map(|share| prop::collection::vec(prop::bool::weighted(share), 97))
        .prop_map(Loss)
}

impl Loss {
    /// What is left of a recording. Something is left of each thread: of one that nothing at all tells
    /// of, nobody could know that anything is missing.
    pub fn apply(&self, recording: &Recording) -> Recording {
        let mut recording = recording.clone();
        let mut lost = self.0.iter().cycle();
        let mut keep = || !lost.next().copied().unwrap_or(false);
        let mut waits = records::waits(&recording);
        waits.retain(|_| keep());
        recording.preemptions.retain(|_| keep());
        // A thread's number is skipped where a throttle could not be sent: both records are missing.
        let mut lost_throttles = BTreeSet::new();
        recording.throttles.retain(|throttle| {
            let is_kept = keep();
            if !is_kept {
                lost_throttles.insert((throttle.tid, throttle.from));
            }
            is_kept
        });
        recording
            .preemptions
            .retain(|preemption| !lost_throttles.contains(&(preemption.tid, preemption.off)));
        recording.exits.retain(|_| keep());
        let mut told: BTreeSet<Tid> = (waits.iter().map(|wait| wait.tid))
            .chain(recording.preemptions.iter().map(|preemption| preemption.tid))
            .chain(recording.exits.iter().map(|exit| exit.tid))
            .collect();
        recording.thread_events.retain(|thread_event| keep() || told.insert(thread_event.tid));
        records::put_waits(&mut recording, waits);
        recording
    }
}
