//! When waits that were too long become snapshots.

use std::sync::{Mutex, PoisonError};

use offwake_recording::units::{Nanos, Timestamp};

use super::messages::LongWait;

/// How long after a wait that was too long the snapshot is taken, so that what followed is in it.
const AFTERMATH: Nanos = Nanos(100_000_000);

/// Decides when a wait that was too long becomes a snapshot, and when that would be one too many.
#[derive(Debug, Default)]
pub(super) struct SnapshotPacer(Mutex<PacerState>);

#[derive(Debug, Default)]
struct PacerState {
    pause: Nanos,
    pending: Option<LongWait>,
    quiet_until: Timestamp,
    suppressed: u64,
}

impl SnapshotPacer {
    /// Leaves at least `pause` between two snapshots.
    pub fn new(pause: Nanos) -> Self {
        Self(Mutex::new(PacerState { pause, ..PacerState::default() }))
    }

    fn with<T>(&self, action: impl FnOnce(&mut PacerState) -> T) -> T {
        action(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks for a snapshot because of this wait.
    pub fn request(&self, wait: LongWait) {
        self.with(|state| {
            if state.pending.is_some() || wait.at < state.quiet_until {
                state.suppressed += 1;
            } else {
                state.pending = Some(wait);
            }
        });
    }

    /// The wait whose snapshot is to be taken now.
    pub fn take_due(&self, now: Timestamp) -> Option<LongWait> {
        self.with(|state| {
            let wait = state.pending.take_if(|wait| wait.at + AFTERMATH <= now)?;
            state.quiet_until = now + state.pause;
            Some(wait)
        })
    }

    /// Until when there is no other snapshot by a trigger.
    pub fn quiet_until(&self) -> Timestamp {
        self.with(|state| state.quiet_until)
    }

    /// How many waits were too long, and too soon after another for a snapshot.
    pub fn suppressed(&self) -> u64 {
        self.with(|state| state.suppressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{WaitBegin, WaitProgress};
    use offwake_recording::units::{Tgid, Tid};

    const MS: u64 = 1_000_000;

    #[test]
    fn a_trip_is_due_after_its_aftermath_and_then_there_is_a_pause() {
        let pacer = SnapshotPacer::new(Nanos(10_000 * MS));
        let long = |at: u64| LongWait {
            tid: Tid(7),
            tgid: Tgid(7),
            comm: String::new(),
            blocked: Nanos(300 * MS),
            at: Timestamp(at * MS),
            progress: WaitProgress::Over,
            began: WaitBegin::InWindow,
        };
        let due = |at: u64| pacer.take_due(Timestamp(at * MS)).map(|long| long.at.0 / MS);
        assert_eq!(due(500), None);
        pacer.request(long(1_000));
        pacer.request(long(1_001));
        assert_eq!((due(1_099), due(1_100), due(1_200)), (None, Some(1_000), None));
        assert_eq!(pacer.quiet_until(), Timestamp(11_100 * MS));
        pacer.request(long(11_099));
        assert_eq!(due(12_000), None);
        pacer.request(long(11_100));
        assert_eq!((due(12_000), pacer.suppressed()), (Some(11_100), 2));
    }
}
