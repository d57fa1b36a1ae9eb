//! What the target's threads did with their time when they did not wait.

use std::collections::BTreeSet;

use offwake_recording::units::Nanos;

use crate::{
    blame::{Blame, Ledger},
    timeline::{ThreadIndex, Timeline},
};

use super::coroutines::{self, Coroutines};

/// What the target's threads did with their time.
pub(super) struct Activity<'a> {
    pub(super) ledgers: &'a [Ledger],
    pub(super) on_cpu: Nanos,
    pub(super) runnable: Nanos,
    /// Time in which threads had nothing to do, or never woke.
    pub(super) idle: Nanos,
    /// Of that, the time of those that never woke.
    pub(super) open: Nanos,
    /// How many threads did nothing else.
    pub(super) idle_threads: u64,
    /// All other threads.
    pub(super) active_threads: u64,
    /// What runs on the threads, if nothing is seen of it as it waits.
    pub(super) coroutines: Option<Coroutines>,
}

impl<'a> Activity<'a> {
    pub(super) fn new(blame: &Blame<'_>, ledgers: &'a [Ledger]) -> Self {
        let timeline = blame.timeline();
        let mut activity = Self {
            ledgers,
            on_cpu: Nanos(0),
            runnable: Nanos(0),
            idle: Nanos(0),
            open: Nanos(0),
            idle_threads: 0,
            active_threads: 0,
            coroutines: coroutines::find_kind(blame),
        };
        for (thread, ledger) in timeline.threads.iter().zip(ledgers) {
            if !thread.in_target {
                continue;
            }
            let idle = idle_time(ledger);
            activity.on_cpu += ledger.on_cpu;
            activity.runnable += ledger.runnable;
            activity.idle += idle;
            activity.open += ledger.open;
            activity.active_threads += u64::from(is_active_thread(ledger));
            activity.idle_threads += u64::from(!is_active_thread(ledger));
        }
        activity
    }

    /// Counts out threads that are stuck, which are no idle ones.
    pub(super) fn subtract_stuck(
        &mut self,
        timeline: &Timeline,
        threads: impl Iterator<Item = ThreadIndex>,
    ) {
        let threads: BTreeSet<ThreadIndex> = threads.collect();
        for thread in threads {
            let place = thread.0 as usize;
            let Some((ledger, life)) = self.ledgers.get(place).zip(timeline.thread(thread)) else {
                continue;
            };
            // A deadlock may have threads of other processes.
            if !life.in_target {
                continue;
            }
            self.idle_threads -= u64::from(!is_active_thread(ledger));
            self.active_threads += u64::from(!is_active_thread(ledger));
            self.idle = self.idle - idle_time(ledger);
            self.open = self.open - ledger.open;
        }
    }
}

/// Returns the time of a thread that had nothing to do, or never woke.
fn idle_time(ledger: &Ledger) -> Nanos {
    // Who never woke up either has nothing to do, or is a finding of its own.
    ledger.idle + ledger.open
}

/// Returns whether a thread ran, waited for a CPU, or waited in the middle of something.
fn is_active_thread(ledger: &Ledger) -> bool {
    ledger.on_cpu + ledger.runnable + ledger.blocked > idle_time(ledger)
}
