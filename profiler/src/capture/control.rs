//! What the threads of a run share beside the messages: flags, and the handing over of snapshots.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize},
    },
    time::Duration,
};

use offwake_recording::units::{Nanos, Timestamp};

use super::{messages::SurveyRequest, snapshot_pacer::SnapshotPacer};

/// How often the thread that waits checks whether the other one is still there.
const LIVENESS_CHECK: Duration = Duration::from_millis(100);

/// Flags and requests that every thread of a run may see.
#[derive(Debug, Default)]
pub(super) struct Control {
    pub stop: AtomicBool,
    pub memory_full: AtomicBool,
    pub sink_failed: AtomicBool,
    /// Bytes of all that was looked up: the drain adds them to those of the records.
    pub looked_up_bytes: Arc<AtomicUsize>,
    pub window_start: OnceLock<Timestamp>,
    pub snapshots: SnapshotHandover,
    pub pacer: SnapshotPacer,
}

impl Control {
    /// Leaves at least `pause` between two snapshots that triggers ask for.
    pub fn new(pause: Nanos) -> Self {
        Self { pacer: SnapshotPacer::new(pause), ..Self::default() }
    }
}

/// Hands one request at a time from the thread that has surveys made to the drain.
#[derive(Debug, Default)]
pub(super) struct SnapshotHandover {
    state: Mutex<HandoverState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct HandoverState {
    request: Option<SurveyRequest>,
    is_busy: bool,
}

impl SnapshotHandover {
    /// Hands a request over, and waits until the drain has taken the survey's records out of the
    /// rings: only then can another survey send its own. False if the drain is gone.
    pub fn submit(&self, request: SurveyRequest, is_alive: impl Fn() -> bool) -> bool {
        let mut state = self.lock();
        state.request = Some(request);
        state.is_busy = true;
        while state.is_busy {
            if !is_alive() {
                return false;
            }
            let waited = self.changed.wait_timeout(state, LIVENESS_CHECK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// The request that was submitted, if there is one.
    pub fn take_request(&self) -> Option<SurveyRequest> {
        self.lock().request.take()
    }

    /// Lets the thread go on that submitted the request.
    pub fn complete(&self) {
        self.lock().is_busy = false;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, HandoverState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
