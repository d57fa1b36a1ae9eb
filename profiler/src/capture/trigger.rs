//! Triggers: waits that are long enough for the flight recorder to write a snapshot.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    time::Duration,
};

use offwake_analysis::{blame::cause::syscalls, timeline::EARLY_WAKE};
use offwake_recording::{
    Begin, End, Syscall, ThreadEvent, ThreadExit, ThreadKind, Wait,
    units::{Nanos, Tid, Timestamp},
};
use profiler_ebpf::syscalls::may_wait_for_lock;

use super::messages::{LongWait, WaitBegin, WaitProgress};

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
        // Of one that began earlier, nobody knows how long it was.
        let began = begin(wait, window_start).filter(|&began| began == WaitBegin::InWindow)?;
        self.match_blocked(wait, blocked(wait), WaitProgress::Over, began)
    }

    /// The waits of the target that have not ended and are longer than a trigger allows already, those
    /// first that say themselves that they hold a thread up. `open` are all the waits that are open now.
    ///
    /// Each is returned once. One that is found before `quiet_until` is returned later, if it is still
    /// open then: the snapshot before does not show that it became too long.
    pub fn match_open_waits(
        &mut self,
        open: &[Wait],
        window_start: Timestamp,
        quiet_until: Timestamp,
    ) -> Vec<LongWait> {
        let mut long_open = HashSet::new();
        let mut new = Vec::new();
        for wait in open.iter().filter(|wait| wait.wake.is_none()) {
            let Some(began) = begin(wait, window_start) else { continue };
            // A thread that was asleep when recording began is known to be since then.
            let blocked = wait.on.since(wait.off);
            let long = self.match_blocked(wait, blocked, WaitProgress::Open, began);
            let Some(long) = long else { continue };
            let key = (wait.tid, wait.off);
            if self.long_open.contains(&key) {
                long_open.insert(key);
            } else if wait.on >= quiet_until && long_open.insert(key) {
                new.push((!is_held_up(wait), Reverse(blocked), long));
            }
        }
        self.long_open = long_open;
        new.sort_by_key(|&(is_unclear, blocked, _)| (is_unclear, blocked));
        new.into_iter().map(|(.., long)| long).collect()
    }

    fn match_blocked(
        &self,
        wait: &Wait,
        blocked: Nanos,
        progress: WaitProgress,
        began: WaitBegin,
    ) -> Option<LongWait> {
        let shortest = self.triggers.iter().map(|trigger| trigger.longer_than).min()?;
        if blocked <= shortest || !wait.in_target {
            return None;
        }
        let comm = self.comms.get(&wait.tid);
        // A server that has had nothing to do since before the recording says nothing new. Whoever names
        // its threads wants to hear of them all the same.
        let is_for_work = began == WaitBegin::BeforeWindow && waits_for_whatever_comes(wait);
        let exceeds = |trigger: &Trigger| {
            blocked > trigger.longer_than
                && trigger.comm.as_ref().map_or(!is_for_work, |wanted| comm == Some(wanted))
        };
        self.triggers.iter().any(exceeds).then(|| LongWait {
            tid: wait.tid,
            tgid: wait.tgid,
            comm: comm.cloned().unwrap_or_default(),
            blocked,
            at: wait.on,
            progress,
            began,
        })
    }
}

/// When a wait began; none if the thread had not run yet.
fn begin(wait: &Wait, window_start: Timestamp) -> Option<WaitBegin> {
    match wait.begin {
        Begin::Seen if wait.off >= window_start => Some(WaitBegin::InWindow),
        Begin::Seen | Begin::BeforeWindow => Some(WaitBegin::BeforeWindow),
        Begin::Newborn => None,
    }
}

/// Whether a wait says itself that a thread can't go on until another lets it: it is for a lock, or
/// signals can't end it.
fn is_held_up(wait: &Wait) -> bool {
    let is_lock = |call: &Syscall| {
        syscalls::waits_for_file_lock(call)
            || matches!(syscalls::name(call), Some("futex" | "futex_time64"))
                && may_wait_for_lock(&call.args)
    };
    wait.state.letter() == 'D' || wait.syscall.as_ref().is_some_and(is_lock)
}

/// Whether a thread waits for whatever comes next, or for a time of its own, by its call alone: an event
/// loop, a server without clients, a kernel thread without work.
fn waits_for_whatever_comes(wait: &Wait) -> bool {
    if wait.state.letter() != 'S' {
        return wait.state.letter() == 'I';
    }
    if wait.kind == ThreadKind::Kernel {
        return true;
    }
    match wait.syscall.as_ref().and_then(syscalls::name) {
        // Who polls a single file may have asked something there.
        Some(call) if syscalls::polls(call) => wait.polled_fd.is_none(),
        Some(call) => FOR_WHATEVER_COMES.contains(&call),
        None => false,
    }
}

/// The calls in which threads wait for events of any kind, for clients, for signals or for a time.
const FOR_WHATEVER_COMES: &[&str] = &[
    "_newselect",
    "accept",
    "accept4",
    "clock_nanosleep",
    "clock_nanosleep_time64",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "io_uring_enter",
    "nanosleep",
    "pause",
    "pselect6",
    "pselect6_time64",
    "rt_sigsuspend",
    "rt_sigtimedwait",
    "rt_sigtimedwait_time64",
    "select",
];

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

#[cfg(test)]
mod tests {
    use super::*;
    use offwake_recording::{
        Phase, StackRef, SyscallTable, TaskState, ThreadEventReason, ThreadRef, Wake, WakeContext,
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
            let long = matcher.match_open_waits(open, start, Timestamp(0));
            assert!(long.iter().all(|long| long.progress == WaitProgress::Open));
            long.iter().map(|long| (long.tid.0, long.blocked.0 / MS)).collect()
        };
        assert_eq!(trips(&[open(7, 100, 300), open(8, 150, 300)]), []);
        assert_eq!(trips(&[open(7, 100, 400), open(8, 150, 350)]), [(7, 300)]);
        assert_eq!(trips(&[open(7, 100, 500), open(8, 150, 500)]), [(8, 350)]);
        // The next wait of the same thread is another.
        assert_eq!(trips(&[open(7, 600, 900)]), [(7, 300)]);
        // It is of others, of a thread that has not run yet, or is over but for a CPU.
        assert_eq!(trips(&[Wait { begin: Begin::Newborn, ..open(7, 100, 900) }]), []);
        assert_eq!(trips(&[Wait { in_target: false, ..open(7, 100, 900) }]), []);
        assert_eq!(trips(&[Wait { end: End::StillOff, ..wait(100, Some(800), 900) }]), []);
    }

    fn call(number: libc::c_long) -> Option<Syscall> {
        let number = number.try_into().unwrap();
        Some(Syscall { table: SyscallTable::Native, number, args: [0; 6] })
    }

    /// A wait that was going on when recording began.
    fn since_before(tid: u32, number: libc::c_long, on: u64) -> Wait {
        Wait {
            tid: Tid(tid),
            begin: Begin::BeforeWindow,
            end: End::StillOff,
            syscall: call(number),
            ..wait(99, None, on)
        }
    }

    #[test]
    fn a_wait_from_before_the_window_trips_once_and_for_as_long_as_it_was_seen() {
        let start = Timestamp(100 * MS);
        let mut matcher = matcher(None);
        let mut trips = |on: u64| -> Vec<(u64, WaitBegin)> {
            let open = [since_before(7, libc::SYS_read, on)];
            let long = matcher.match_open_waits(&open, start, Timestamp(0));
            long.iter().map(|long| (long.blocked.0 / MS, long.began)).collect()
        };
        assert_eq!(trips(299), []);
        assert_eq!(trips(400), [(301, WaitBegin::BeforeWindow)]);
        assert_eq!((trips(500), trips(9_000)), (vec![], vec![]));
        // Its end says nothing about its length.
        let over = Wait { end: End::Seen, ..since_before(7, libc::SYS_read, 9_000) };
        assert_eq!(matcher.match_wait(&over, start), None);
        // Whoever fell asleep while the window opened.
        let asleep = Wait { begin: Begin::Seen, ..since_before(8, libc::SYS_read, 900) };
        let long = matcher.match_open_waits(&[asleep], start, Timestamp(0));
        assert_eq!(long.iter().map(|long| long.tid).collect::<Vec<_>>(), [Tid(8)]);
    }

    #[test]
    fn who_waits_for_work_since_before_the_window_trips_only_by_name() {
        let start = Timestamp(100 * MS);
        let trips = |matcher: &mut TriggerMatcher, wait: Wait| {
            !matcher.match_open_waits(&[wait], start, Timestamp(0)).is_empty()
        };
        for idle in
            [libc::SYS_epoll_pwait, libc::SYS_accept4, libc::SYS_ppoll, libc::SYS_clock_nanosleep]
        {
            let open = since_before(7, idle, 900);
            assert!(!trips(&mut matcher(None), open), "{idle}");
            let mut named_one = matcher(Some("redis"));
            named_one.record_name(&named("redis"));
            assert!(trips(&mut named_one, open), "{idle}");
            // It began inside the window.
            let inside = Wait { begin: Begin::Seen, off: start, ..open };
            assert!(trips(&mut matcher(None), inside), "{idle}");
        }
        let polls_one = Wait { polled_fd: Some(3), ..since_before(7, libc::SYS_ppoll, 900) };
        assert!(trips(&mut matcher(None), polls_one));
        let in_kernel = Wait { state: TaskState(2), ..since_before(7, libc::SYS_epoll_pwait, 900) };
        assert!(trips(&mut matcher(None), in_kernel));
        let kernel_thread = Wait {
            kind: ThreadKind::Kernel,
            syscall: None,
            ..since_before(7, libc::SYS_read, 900)
        };
        assert!(!trips(&mut matcher(None), kernel_thread));
    }

    #[test]
    fn who_is_held_up_comes_first() {
        let mut matcher = matcher(None);
        let open = [
            since_before(7, libc::SYS_read, 900),
            Wait { off: Timestamp(0), ..since_before(8, libc::SYS_futex, 900) },
            since_before(9, libc::SYS_flock, 900),
        ];
        let long = matcher.match_open_waits(&open, Timestamp(100 * MS), Timestamp(0));
        assert_eq!(long.iter().map(|long| long.tid.0).collect::<Vec<_>>(), [9, 8, 7]);
    }

    #[test]
    fn what_becomes_too_long_in_a_pause_trips_after_it() {
        let mut matcher = matcher(None);
        let (start, quiet_until) = (Timestamp(100 * MS), Timestamp(1_000 * MS));
        let mut trips = |waits: &[(u32, u64)], on: u64| -> Vec<u32> {
            let open: Vec<Wait> = (waits.iter())
                .map(|&(tid, off)| Wait {
                    tid: Tid(tid),
                    end: End::StillOff,
                    ..wait(off, None, on)
                })
                .collect();
            let long = matcher.match_open_waits(&open, start, quiet_until);
            long.iter().map(|long| long.tid.0).collect()
        };
        assert_eq!(trips(&[(7, 100), (8, 500)], 900), [0; 0]);
        assert_eq!(trips(&[(7, 100), (8, 500)], 1_000), [7, 8]);
        // The snapshot shows both.
        assert_eq!(trips(&[(7, 100), (8, 500)], 1_100), [0; 0]);
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
}
