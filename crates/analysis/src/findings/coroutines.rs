//! What coroutines do that have a thread of their own. Where such a one waits, its thread's stack ends in
//! the runtime, and only what the thread does at other times tells whose it is. Of all others nothing is
//! seen as they wait.

use std::collections::{HashMap, HashSet};

use offwake_recording::{
    StackRef,
    units::{Nanos, Tid},
};

use crate::{
    blame::{Blame, FrameEvidence, StackPairId},
    label::Label,
    timeline::{ThreadIndex, WaitIndex},
};

use super::meaning::Meanings;

/// Each stack counts once for each time that it was seen.
const ONCE: Nanos = Nanos(1);

/// What runs on the target's threads by turns, and has none of them as it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coroutines {
    /// Go's.
    Goroutines,
    /// Tokio's.
    Tasks,
}

impl Coroutines {
    /// Those of the runtime whose threads wait in a function for what they could do.
    fn of_function(name: &str) -> Option<Self> {
        match name {
            "runtime.stopm" => Some(Self::Goroutines),
            _ if name.starts_with("tokio::runtime::scheduler::multi_thread::park::") => {
                Some(Self::Tasks)
            }
            _ => None,
        }
    }

    /// What one of them is called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Goroutines => "goroutine",
            Self::Tasks => "task",
        }
    }
}

/// Finds what runs on the target's threads, if these wait for something that is able to.
pub(super) fn find_kind(blame: &Blame<'_>) -> Option<Coroutines> {
    let (recording, threads) = (blame.recording(), &blame.timeline().threads);
    let target: HashSet<Tid> =
        threads.iter().filter(|thread| thread.in_target).map(|thread| thread.tid).collect();
    let waits = &recording.waits;
    let waiters = waits.patterns().iter().map(|(_, pattern)| &waits.waiters()[pattern.waiter]);
    (waiters.filter(|waiter| target.contains(&waiter.tid))).find_map(|waiter| {
        let StackRef::Id(stack) = waiter.user_stack else { return None };
        let mut functions =
            recording.stacks.frames_of(stack).flat_map(|frame| frame.functions.iter());
        functions.find_map(|function| Coroutines::of_function(&function.name))
    })
}

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
