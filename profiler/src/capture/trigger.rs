//! Waits that are long enough to write a flight recorder's stretch out.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use crate::{
    recording::{Begin, End, Sighting, ThreadExit, Wait},
    timeline::EARLY_WAKE,
    units::{Nanos, Tgid, Tid, Timestamp},
};

/// From the wait that was too long to the snapshot, so that what followed is in it.
const AFTERMATH: Nanos = Nanos(100_000_000);

/// A wait that is too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// A blocked time longer than this.
    pub longer_than: Nanos,
    /// Of threads with this name; of any if there is none.
    pub comm: Option<String>,
}

/// A trigger that was tripped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trip {
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub tgid: Tgid,
    /// Its name, if it is known. From another program: it may hold anything.
    pub comm: String,
    /// How long it was blocked.
    pub blocked: Nanos,
    /// When it was back on a CPU.
    pub at: Timestamp,
}

/// Looks at each record as it comes.
#[derive(Debug, Default)]
pub(super) struct Watch {
    triggers: Vec<Trigger>,
    /// Of the living threads.
    comms: HashMap<Tid, String>,
}

impl Watch {
    pub fn new(triggers: Vec<Trigger>) -> Self {
        Self { triggers, comms: HashMap::new() }
    }

    pub fn see(&mut self, sighting: &Sighting) {
        if !self.triggers.is_empty() {
            self.comms.insert(sighting.tid, sighting.comm.clone());
        }
    }

    pub fn forget(&mut self, exit: &ThreadExit) {
        self.comms.remove(&exit.tid);
    }

    /// A wait of the target that began inside the window, and is over.
    pub fn look(&self, wait: &Wait, window_start: Timestamp) -> Option<Trip> {
        let shortest = self.triggers.iter().map(|trigger| trigger.longer_than).min()?;
        let blocked = blocked(wait);
        let counts = wait.in_target && wait.begin == Begin::Seen && wait.off >= window_start;
        if blocked <= shortest || !counts {
            return None;
        }
        let comm = self.comms.get(&wait.tid);
        let trips = |trigger: &Trigger| {
            blocked > trigger.longer_than
                && trigger.comm.as_ref().is_none_or(|wanted| comm == Some(wanted))
        };
        self.triggers.iter().any(trips).then(|| Trip {
            tid: wait.tid,
            tgid: wait.tgid,
            comm: comm.cloned().unwrap_or_default(),
            blocked,
            at: wait.on,
        })
    }
}

/// How long a wait was blocked, as the timeline has it.
fn blocked(wait: &Wait) -> Nanos {
    match &wait.wake {
        Some(wake) if wake.at > wait.off => wake.at.min(wait.on).since(wait.off),
        Some(wake) if wait.off.since(wake.at) <= EARLY_WAKE => Nanos(0),
        // Nobody knows when it came back.
        _ if wait.end != End::Seen => Nanos(0),
        _ => wait.on.since(wait.off),
    }
}

/// When a trip becomes a snapshot, and when it is one too many.
#[derive(Debug, Default)]
pub(super) struct Trips(Mutex<Pace>);

#[derive(Debug, Default)]
struct Pace {
    pause: Nanos,
    pending: Option<Trip>,
    quiet_until: Timestamp,
    suppressed: u64,
}

impl Trips {
    /// With so long a pause between two snapshots.
    pub fn new(pause: Nanos) -> Self {
        Self(Mutex::new(Pace { pause, ..Pace::default() }))
    }

    fn with<T>(&self, action: impl FnOnce(&mut Pace) -> T) -> T {
        action(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A trigger was tripped.
    pub fn trip(&self, trip: Trip) {
        self.with(|pace| {
            if pace.pending.is_some() || trip.at < pace.quiet_until {
                pace.suppressed += 1;
            } else {
                pace.pending = Some(trip);
            }
        });
    }

    /// The trip for which it is time now.
    pub fn due(&self, now: Timestamp) -> Option<Trip> {
        self.with(|pace| {
            let trip = pace.pending.take_if(|trip| trip.at + AFTERMATH <= now)?;
            pace.quiet_until = now + pace.pause;
            Some(trip)
        })
    }

    /// Trips that came too soon after another.
    pub fn suppressed(&self) -> u64 {
        self.with(|pace| pace.suppressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        recording::{
            Phase, SightingReason, StackRef, TaskState, ThreadKind, ThreadRef, Wake, WakeContext,
        },
        units::{CgroupId, Cpu},
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
                user_stack: StackRef::NotTaken,
                kernel_stack: StackRef::NotTaken,
            }),
        }
    }

    fn named(comm: &str) -> Sighting {
        Sighting {
            at: Timestamp(1),
            reason: SightingReason::Rename,
            tid: Tid(7),
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

    fn watch(comm: Option<&str>) -> Watch {
        let comm = comm.map(str::to_owned);
        Watch::new(vec![Trigger { longer_than: Nanos(200 * MS), comm }])
    }

    #[test]
    fn blocked_time_trips_and_time_in_the_queue_does_not() {
        let watch = watch(None);
        let start = Timestamp(100 * MS);
        let trips = |wait: &Wait| watch.look(wait, start).map(|trip| trip.blocked.0 / MS);
        assert_eq!(trips(&wait(100, Some(301), 301)), Some(201));
        assert_eq!(trips(&wait(100, Some(300), 900)), None);
        assert_eq!(trips(&wait(100, None, 301)), Some(201));
        // It never slept.
        assert_eq!(trips(&wait(100, Some(100), 900)), None);
        // It began before the window, or nobody knows when it was over.
        assert_eq!(trips(&wait(99, None, 900)), None);
        assert_eq!(trips(&Wait { begin: Begin::Newborn, ..wait(100, None, 900) }), None);
        assert_eq!(trips(&Wait { end: End::Missed, ..wait(100, None, 900) }), None);
        assert_eq!(trips(&Wait { in_target: false, ..wait(100, None, 900) }), None);
    }

    #[test]
    fn a_name_is_the_newest_and_whole() {
        let mut watch = watch(Some("redis"));
        let long = wait(100, None, 900);
        assert_eq!(watch.look(&long, Timestamp(0)), None);
        for (comm, trips) in [("redis", true), ("redis2", false), ("redi", false)] {
            watch.see(&named(comm));
            let trip = watch.look(&long, Timestamp(0));
            assert_eq!(trip.map(|trip| trip.comm), trips.then(|| comm.to_owned()), "{comm}");
        }
    }

    #[test]
    fn a_trip_is_due_after_its_aftermath_and_then_there_is_a_pause() {
        let trips = Trips::new(Nanos(10_000 * MS));
        let trip = |at: u64| watch(None).look(&wait(at - 300, None, at), Timestamp(0)).unwrap();
        let due = |at: u64| trips.due(Timestamp(at * MS)).map(|trip| trip.at.0 / MS);
        assert_eq!(due(500), None);
        trips.trip(trip(1_000));
        trips.trip(trip(1_001));
        assert_eq!((due(1_099), due(1_100), due(1_200)), (None, Some(1_000), None));
        trips.trip(trip(11_099));
        assert_eq!(due(12_000), None);
        trips.trip(trip(11_100));
        assert_eq!((due(12_000), trips.suppressed()), (Some(11_100), 2));
    }
}
