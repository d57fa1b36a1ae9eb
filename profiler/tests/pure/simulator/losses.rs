//! What a profiler loses of a recording.

use std::collections::BTreeSet;

use offwake_recording::{
    Recording,
    units::{Nanos, Tid},
};
use proptest::prelude::*;

use super::{Sums, records};

/// What is not recorded one by one, and what of the rest is lost.
#[derive(Clone, Debug)]
pub struct Loss {
    /// Which records, thread events and exits are lost, one after the other, over and over.
    lost: Vec<bool>,
    /// How many of a thousand times off the CPU are summed up, the shortest first, and the longest time on a
    /// CPU within a sum.
    summed: Option<(usize, Nanos)>,
}

/// Anything from a few records to nearly all of them, and of short waits perhaps nothing but their sums.
pub fn loss() -> impl Strategy<Value = Loss> {
    let lost = |share: f64| prop::collection::vec(prop::bool::weighted(share), 97);
    let share = prop_oneof![Just(0.03), Just(0.15), Just(0.5), Just(0.9)];
    let summed = || {
        let pause = prop_oneof![Just(u64::MAX), 1..2_000_u64];
        (0..=1_000_usize, pause).prop_map(|(permille, pause)| (permille, Nanos(pause)))
    };
    prop_oneof![
        (share.prop_flat_map(lost), prop::option::weighted(0.3, summed())),
        (lost(0.0), summed().prop_map(Some)),
    ]
    .prop_map(|(lost, summed)| Loss { lost, summed })
}

impl Loss {
    /// What is left of a recording. Something is left of each thread: of one that nothing at all tells
    /// of, nobody could know that anything is missing.
    pub fn apply(&self, recording: &Recording) -> Recording {
        let mut recording = match self.summed {
            Some((permille, longest_break)) => {
                Sums::of_shortest(recording, permille, longest_break).apply(recording)
            }
            None => recording.clone(),
        };
        let mut lost = self.lost.iter().cycle();
        let mut keep = || !lost.next().copied().unwrap_or(false);
        let mut waits = records::waits(&recording);
        waits.retain(|_| keep());
        recording.preemptions.retain(|_| keep());
        recording.summed.retain(|_| keep());
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
            .chain(recording.summed.iter().map(|summed| summed.tid))
            .chain(recording.exits.iter().map(|exit| exit.tid))
            .collect();
        recording.thread_events.retain(|thread_event| keep() || told.insert(thread_event.tid));
        records::put_waits(&mut recording, waits);
        recording
    }
}
