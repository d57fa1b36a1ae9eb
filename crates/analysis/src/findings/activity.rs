//! What the target's threads did with their time: the whole that findings are shares of.

use std::collections::BTreeSet;

use offwake_recording::units::Nanos;

use crate::{
    blame::{Ledger, Reason},
    timeline::{ThreadIndex, Timeline},
};

/// A thread that was idle for a larger part of its life had nothing to do: the rest of its life
/// alone counts as active.
const IDLE_THREAD: f64 = 0.9;

/// What the target's threads did with their time.
pub(super) struct Activity<'a> {
    pub(super) ledgers: &'a [Ledger],
    /// The time of all threads, without that of threads that had nothing to do.
    pub(super) active: Nanos,
    pub(super) on_cpu: Nanos,
    pub(super) runnable: Nanos,
    pub(super) idle: Nanos,
    pub(super) idle_threads: u64,
}

impl<'a> Activity<'a> {
    pub(super) fn new(timeline: &Timeline, ledgers: &'a [Ledger]) -> Self {
        let mut activity = Self {
            ledgers,
            active: Nanos(0),
            on_cpu: Nanos(0),
            runnable: Nanos(0),
            idle: Nanos(0),
            idle_threads: 0,
        };
        for (thread, ledger) in timeline.threads.iter().zip(ledgers) {
            if !thread.in_target {
                continue;
            }
            let idle = idle_time(ledger);
            activity.on_cpu += ledger.on_cpu;
            activity.runnable += ledger.runnable;
            activity.idle += idle;
            let is_idle = is_idle_thread(ledger);
            activity.idle_threads += u64::from(is_idle);
            activity.active += if is_idle { ledger.wall - idle } else { ledger.wall };
        }
        activity
    }

    /// Counts the time of threads that are stuck, which are no idle ones.
    pub(super) fn add_stuck(
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
            let idle = idle_time(ledger);
            if life.in_target && is_idle_thread(ledger) {
                self.idle_threads -= 1;
                self.active += idle;
            }
            self.idle = self.idle - idle;
        }
    }
}

/// Returns the time of a thread that had nothing to do, or never woke.
fn idle_time(ledger: &Ledger) -> Nanos {
    // Who never woke up either has nothing to do, or is a finding of its own.
    ledger.idle.max(ledger.unattributed[Reason::StillBlocked as usize])
}

fn is_idle_thread(ledger: &Ledger) -> bool {
    idle_time(ledger).0 as f64 >= ledger.wall.0 as f64 * IDLE_THREAD
}
