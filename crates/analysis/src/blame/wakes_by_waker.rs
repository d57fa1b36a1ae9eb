//! Which threads of its process each thread woke from a futex.

use std::collections::{HashMap, HashSet};

use offwake_recording::{
    Recording,
    units::{Tgid, Tid, Timestamp},
};

use crate::timeline::WaitIndex;

use super::{cause::Cause, pattern_analysis::PatternAnalysis};

/// The wakes of threads by others of their process, by the waker, in the order of time.
pub(super) type WakesByWaker = HashMap<Tid, Vec<(Timestamp, WaitIndex)>>;

/// Finds the processes that have waits of some patterns. `by_pattern` has what is known of each pattern, and
/// `is_meant` says whether it is one of them.
pub(super) fn find_processes<T>(
    recording: &Recording,
    by_pattern: &[T],
    is_meant: impl Fn(&T) -> bool,
) -> HashSet<Tgid> {
    let waits = &recording.waits;
    (waits.patterns().iter().zip(by_pattern))
        .filter(|(_, known)| is_meant(known))
        .map(|((_, pattern), _)| waits.waiters()[pattern.waiter].tgid)
        .collect()
}

/// Finds the ends of waits on futexes in these processes.
pub(super) fn find_wakes_within(
    processes: &HashSet<Tgid>,
    recording: &Recording,
    patterns: &[PatternAnalysis],
) -> WakesByWaker {
    let waits = &recording.waits;
    let wakers: Vec<Option<Tid>> = (waits.patterns().iter().zip(patterns))
        .map(|((_, pattern), analysis)| {
            let woken = waits.waiters()[pattern.waiter].tgid;
            let waker = analysis.waker().filter(|waker| waker.tgid == woken)?;
            let is_kept = analysis.cause == Cause::Futex && processes.contains(&woken);
            is_kept.then_some(waker.tid)
        })
        .collect();
    let mut wakes = WakesByWaker::new();
    for (row, n) in waits.rows().iter().zip(0..) {
        let waker = wakers.get(row.pattern.index()).copied().flatten();
        if let (Some(waker), Some(at)) = (waker, row.woken_at()) {
            wakes.entry(waker).or_default().push((at, WaitIndex(n)));
        }
    }
    wakes.values_mut().for_each(|wakes| wakes.sort_unstable());
    wakes
}
