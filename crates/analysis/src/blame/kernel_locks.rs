//! Locks of the kernel's own: who released one, and when, and so who held it before.
//!
//! Such a lock has no address in a recording. It is told by its kind and by what it belongs to.
//!
//! A release wakes the first in line, or all readers in line at once, those behind a writer too
//! ([`rwsem_mark_wake`](https://github.com/torvalds/linux/blob/v6.12/kernel/locking/rwsem.c#L414)). So the next
//! holder may have come after the one that waits for it, and done something else before:
//!
//! ```text
//! H       has it for writing ----------------+ releases it, wakes both readers
//! reader  .. | waits ........................|#### has it ##|
//! W       ....... | waits for it ...............................| wake by R
//! R       ########### works on ##| waits ....|#### has it ######|
//! blame of W      |          H               |        R         |
//! ```

use std::collections::HashMap;

use offwake_recording::Recording;

use super::{
    cause::{
        Cause, kernel_frames,
        kernel_locks::{KernelLock, LockScope, find_only_lock},
    },
    locks::Releases,
    pattern_analysis::PatternAnalysis,
};

/// Finds the releases of all locks of the kernel's of which it is known what they belong to.
pub(super) fn find_releases(recording: &Recording, patterns: &[PatternAnalysis]) -> Releases {
    if patterns.iter().all(|pattern| pattern.cause != Cause::KernelLock) {
        return Releases::default();
    }
    let mut numbers: HashMap<(KernelLock, LockScope), u32> = HashMap::new();
    let mut by_pattern = vec![None; patterns.len()];
    for (row, n) in recording.waits.rows().iter().zip(0..) {
        let place = row.pattern.index();
        let Some(number @ None) = by_pattern.get_mut(place) else { continue };
        if patterns.get(place).is_none_or(|pattern| pattern.cause != Cause::KernelLock) {
            continue;
        }
        let lock = || {
            let wait = recording.waits.get(n)?;
            let functions = || kernel_frames(&recording.stacks, wait.kernel_stack);
            let lock = find_only_lock(Cause::KernelLock, functions)?;
            Some((lock, LockScope::find(lock, &wait)?))
        };
        *number = Some(lock().map(|lock| {
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            *numbers.entry(lock).or_insert(next)
        }));
    }
    let by_pattern = by_pattern.into_iter().map(Option::flatten).collect();
    let is_released =
        |place: usize| patterns.get(place).is_some_and(|pattern| pattern.waker().is_some());
    Releases::new(recording, by_pattern, numbers.len(), is_released)
}
