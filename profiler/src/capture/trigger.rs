//! Triggers: waits that are long enough for the flight recorder to write a snapshot.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use offwake_analysis::timeline::EARLY_WAKE;
use offwake_recording::{
    Begin, End, ThreadEvent, ThreadExit, Wait,
    units::{Nanos, Tid, Timestamp},
};

use super::messages::{LongWait, WaitProgress};

/// How long after a wait that was too long the snapshot is taken, so that what followed is in it.
const AFTERMATH: Nanos = Nanos(100_000_000);

/// What makes a wait too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// A blocked time longer than this.
    pub longer_than: Nanos,
    /// Of threads with this name; of any if there is none.
    pub comm: Option<String>,
}

/// Compares each wait with the triggers as it comes.
#[derive(Debug, Default)]
pub(super) struct TriggerMatcher {
    triggers: Vec<Trigger>,
    /// The names of the living threads; none are kept without triggers.
    comms: HashMap<Tid, String>,
    /// The open waits that were too long when they were last looked at: thread and beginning.
    long_open: HashSet<(Tid, Timestamp)>,
}

impl TriggerMatcher {
    pub fn new(triggers: Vec<Trigger>) -> Self {
        Self { triggers, ..Self::default() }
    }

    pub fn record_name(&mut self, thread_event: &ThreadEvent) {
        if !self.triggers.is_empty() {
            self.comms.insert(thread_event.tid, thread_event.comm.clone());
        }
    }

    pub fn forget_thread(&mut self, exit: &ThreadExit) {
        self.comms.remove(&exit.tid);
    }

    /// The wait, if it is one of the target that began inside the window and was longer than a
    /// trigger allows.
    pub fn match_wait(&self, wait: &Wait, window_start: Timestamp) -> Option<LongWait> {
        self.match_blocked(wait, blocked(wait), WaitProgress::Over, window_start)
    }

    /// The waits that have not ended and are longer than a trigger allows already, under the same
    /// conditions. Each is returned once: `open` are all the waits that are open now.
    pub fn match_open_waits(&mut self, open: &[Wait], window_start: Timestamp) -> Vec<LongWait> {
        let mut long_open = HashSet::new();
        let mut new = Vec::new();
        for wait in open.iter().filter(|wait| wait.wake.is_none()) {
            let blocked = wait.on.since(wait.off);
            let long = self.match_blocked(wait, blocked, WaitProgress::Open, window_start);
            let Some(long) = long else { continue };
            let key = (wait.tid, wait.off);
            if long_open.insert(key) && !self.long_open.contains(&key) {
                new.push(long);
            }
        }
        self.long_open = long_open;
        new
    }

    fn match_blocked(
        &self,
        wait: &Wait,
        blocked: Nanos,
        progress: WaitProgress,
        window_start: Timestamp,
    ) -> Option<LongWait> {
        let shortest = self.triggers.iter().map(|trigger| trigger.longer_than).min()?;
        let counts = wait.in_target && wait.begin == Begin::Seen && wait.off >= window_start;
        if blocked <= shortest || !counts {
            return None;
        }
        let comm = self.comms.get(&wait.tid);
        let exceeds = |trigger: &Trigger| {
            blocked > trigger.longer_than
                && trigger.comm.as_ref().is_none_or(|wanted| comm == Some(wanted))
        };
        self.triggers.iter().any(exceeds).then(|| LongWait {
            tid: wait.tid,
            tgid: wait.tgid,
            comm: comm.cloned().unwrap_or_default(),
            blocked,
            at: wait.on,
            progress,
        })
    }
}

/// How often to look for open waits that are too long already, if there are triggers: an open wait is
/// found when it is at most half as long again, and looking at every thread costs little as rarely.
pub(super) fn open_wait_interval(triggers: &[Trigger]) -> Option<Duration> {
    const LEAST: Duration = Duration::from_secs(1);
    const MOST: Duration = Duration::from_secs(10);
    let shortest = triggers.iter().map(|trigger| trigger.longer_than).min()?;
    Some(Duration::from_nanos(shortest.0 / 2).clamp(LEAST, MOST))
}

/// How long a wait was blocked, as the timeline has it.
fn blocked(wait: &Wait) -> Nanos {
    match &wait.wake {
        Some(wake) if wake.at > wait.off => wake.at.min(wait.on).since(wait.off),
        Some(wake) if wait.off.since(wake.at) <= EARLY_WAKE => Nanos(0),
        // When the thread came back is not known.
        _ if wait.end != End::Seen => Nanos(0),
        _ => wait.on.since(wait.off),
    }
}

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

    /// How many waits were too long, and too soon after another for a snapshot.
    pub fn suppressed(&self) -> u64 {
        self.with(|state| state.suppressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use offwake_recording::{
        Phase, StackRef, TaskState, ThreadEventReason, ThreadKind, ThreadRef, Wake, WakeContext,
        units::{CgroupId, Cpu, Tgid},
    };

    const MS: u64 = 1_000_000;

    fn wait(off: u64, wake: Option<u64>, on: u64) -> Wait {
        Wait {
            tid: Tid(7),
            tgid: Tgid(7),
            kind: ThreadKind::User,
            in_target: true,
            seq: 1,
            begin: Begin::Seen,
            end: End::Seen,
            off: Timestamp(off * MS),
            on: Timestamp(on * MS),
            migrated: None,
            off_cpu: Cpu(0),
            on_cpu: Cpu(0),
            state: TaskState(1),
            syscall: None,
            timeout: None,
            file: None,
            polled_fd: None,
            polled_events: None,
            cgroup: CgroupId(1),
            user_stack: StackRef::NotTaken,
            kernel_stack: StackRef::NotTaken,
            wake: wake.map(|at| Wake {
                at: Timestamp(at * MS),
                context: WakeContext::Hrtimer,
                cpu: Cpu(0),
                current: ThreadRef { tid: Tid(0), tgid: Tgid(0) },
                current_kind: ThreadKind::Kernel,
                current_seq: None,
                syscall: None,
                file: None,
                ready: None,
                user_stack: StackRef::NotTaken,
                kernel_stack: StackRef::NotTaken,
            }),
        }
    }

    fn named(comm: &str) -> ThreadEvent {
        ThreadEvent {
            at: Timestamp(1),
            reason: ThreadEventReason::Rename,
            tid: Tid(7),
            old_tid: None,
            tgid: Tgid(7),
            parent: Tgid(1),
            kind: ThreadKind::User,
            in_target: true,
            phase: Phase::Unknown,
            seq: 0,
            created: Timestamp(0),
            cgroup: CgroupId(1),
            comm: comm.to_owned(),
        }
    }

    fn matcher(comm: Option<&str>) -> TriggerMatcher {
        let comm = comm.map(str::to_owned);
        TriggerMatcher::new(vec![Trigger { longer_than: Nanos(200 * MS), comm }])
    }

    #[test]
    fn blocked_time_trips_and_time_in_the_queue_does_not() {
        let matcher = matcher(None);
        let start = Timestamp(100 * MS);
        let trips = |wait: &Wait| matcher.match_wait(wait, start).map(|long| long.blocked.0 / MS);
        assert_eq!(trips(&wait(100, Some(301), 301)), Some(201));
        assert_eq!(trips(&wait(100, Some(300), 900)), None);
        assert_eq!(trips(&wait(100, None, 301)), Some(201));
        // This thread never slept.
        assert_eq!(trips(&wait(100, Some(100), 900)), None);
        // It began before the window, or nobody knows when it was over.
        assert_eq!(trips(&wait(99, None, 900)), None);
        assert_eq!(trips(&Wait { begin: Begin::Newborn, ..wait(100, None, 900) }), None);
        assert_eq!(trips(&Wait { end: End::Missed, ..wait(100, None, 900) }), None);
        assert_eq!(trips(&Wait { in_target: false, ..wait(100, None, 900) }), None);
    }

    #[test]
    fn an_open_wait_trips_once_as_soon_as_it_is_too_long() {
        let mut matcher = matcher(None);
        let start = Timestamp(100 * MS);
        let open = |tid: u32, off: u64, on: u64| Wait {
            tid: Tid(tid),
            end: End::StillOff,
            ..wait(off, None, on)
        };
        let mut trips = |open: &[Wait]| -> Vec<(u32, u64)> {
            let long = matcher.match_open_waits(open, start);
            assert!(long.iter().all(|long| long.progress == WaitProgress::Open));
            long.iter().map(|long| (long.tid.0, long.blocked.0 / MS)).collect()
        };
        assert_eq!(trips(&[open(7, 100, 300), open(8, 150, 300)]), []);
        assert_eq!(trips(&[open(7, 100, 400), open(8, 150, 350)]), [(7, 300)]);
        assert_eq!(trips(&[open(7, 100, 500), open(8, 150, 500)]), [(8, 350)]);
        // The next wait of the same thread is another.
        assert_eq!(trips(&[open(7, 600, 900)]), [(7, 300)]);
        // It began before the window, is of others, or is over but for a CPU.
        assert_eq!(trips(&[open(7, 99, 900)]), []);
        assert_eq!(trips(&[Wait { in_target: false, ..open(7, 100, 900) }]), []);
        assert_eq!(trips(&[Wait { end: End::StillOff, ..wait(100, Some(800), 900) }]), []);
    }

    #[test]
    fn open_waits_are_looked_at_often_enough_and_not_too_often() {
        let trigger = |ms: u64| Trigger { longer_than: Nanos(ms * MS), comm: None };
        let interval = |triggers: &[Trigger]| open_wait_interval(triggers).map(|i| i.as_millis());
        assert_eq!(interval(&[]), None);
        assert_eq!(interval(&[trigger(60_000), trigger(5_000)]), Some(2_500));
        assert_eq!(interval(&[trigger(200)]), Some(1_000));
        assert_eq!(interval(&[trigger(600_000)]), Some(10_000));
    }

    #[test]
    fn a_name_is_the_newest_and_whole() {
        let mut matcher = matcher(Some("redis"));
        let long = wait(100, None, 900);
        assert_eq!(matcher.match_wait(&long, Timestamp(0)), None);
        for (comm, trips) in [("redis", true), ("redis2", false), ("redi", false)] {
            matcher.record_name(&named(comm));
            let long = matcher.match_wait(&long, Timestamp(0));
            assert_eq!(long.map(|long| long.comm), trips.then(|| comm.to_owned()), "{comm}");
        }
    }

    #[test]
    fn a_trip_is_due_after_its_aftermath_and_then_there_is_a_pause() {
        let pacer = SnapshotPacer::new(Nanos(10_000 * MS));
        let long =
            |at: u64| matcher(None).match_wait(&wait(at - 300, None, at), Timestamp(0)).unwrap();
        let due = |at: u64| pacer.take_due(Timestamp(at * MS)).map(|long| long.at.0 / MS);
        assert_eq!(due(500), None);
        pacer.request(long(1_000));
        pacer.request(long(1_001));
        assert_eq!((due(1_099), due(1_100), due(1_200)), (None, Some(1_000), None));
        pacer.request(long(11_099));
        assert_eq!(due(12_000), None);
        pacer.request(long(11_100));
        assert_eq!((due(12_000), pacer.suppressed()), (Some(11_100), 2));
    }
}
