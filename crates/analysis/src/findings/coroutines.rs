//! What coroutines do that have a thread of their own. Where such a one waits, its thread's stack ends in
//! the runtime, and only what the thread does at other times tells whose it is.

use std::collections::{HashMap, HashSet};

use offwake_recording::units::{Nanos, Tid};

use crate::{
    blame::{Blame, FrameEvidence, StackPairId},
    label::Label,
    timeline::{ThreadIndex, WaitIndex},
};

use super::meaning::Meanings;

/// Each stack counts once for each time that it was seen.
const ONCE: Nanos = Nanos(1);

/// Finds the function that each thread was mostly seen in that is one coroutine's own.
pub(super) fn find_coroutines(
    blame: &Blame<'_>,
    meanings: &mut Meanings<'_>,
) -> HashMap<Tid, Option<Label>> {
    let threads: HashSet<Tid> =
        blame.sleeps().iter().filter_map(|sleep| sleep.own_coroutine).collect();
    if threads.is_empty() {
        return HashMap::new();
    }
    let mut seen: HashMap<Tid, Vec<(StackPairId, Nanos)>> = HashMap::new();
    for (thread, n) in blame.timeline().threads.iter().zip(0..) {
        if threads.contains(&thread.tid) {
            let samples = blame.sampled_work(ThreadIndex(n)).map(|(stack, _)| (stack, ONCE));
            seen.entry(thread.tid).or_default().extend(samples);
        }
    }
    let waits = &blame.recording().waits;
    for (row, n) in waits.rows().iter().zip(0..) {
        let (waiter, wait) = (waits.waiter(row).tid, WaitIndex(n));
        if threads.contains(&waiter) && blame.frame_evidence(wait) == FrameEvidence::None {
            let (stack, _) = blame.wait_and_waker_stacks(wait);
            seen.entry(waiter).or_default().push((stack, ONCE));
        }
    }
    (seen.into_iter())
        .map(|(tid, stacks)| {
            let label = meanings.work_label(stacks.into_iter());
            (tid, label.filter(Label::is_own_or_library))
        })
        .collect()
}
