//! Waits + wakes → who or what each blocked nanosecond was spent on.
//!
//! One hop deep: a wait is divided over what its waker did meanwhile. What the waker itself waited
//! for in that time lies deeper, and is `unattributed: depth_limit`.
//!
//! ```text
//! waiter   --+-- blocked ------------------------------+-- runnable --+--
//!                                                      ^ wake
//! waker    ----- on-CPU ---+-- blocked --+- runnable -+-- on-CPU -----------
//! blame      |   work      | depth_limit | cpu_queue  |W|               (W: work)
//! ```

pub mod cause;
mod ender;
mod ledger;
mod softirq;

use serde::Serialize;

use crate::{
    recording::{Begin, End, Recording, Scope, Wait},
    timeline::{ThreadIndex, Timeline, WaitIndex, WakeUse},
    units::Nanos,
};

pub use ender::Ender;
pub use ledger::Ledger;

use cause::{Cause, Classifier};

/// Something outside of every thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum External {
    /// Time ran out.
    Timer,
    /// A disk was done.
    Disk,
    /// A packet came in that no local thread sent.
    Network,
    /// Some other device.
    Device,
}

impl External {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Timer, Self::Disk, Self::Network, Self::Device];

    /// Its name in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Timer => "timer",
            Self::Disk => "disk",
            Self::Network => "network",
            Self::Device => "device",
        }
    }
}

/// Why something can't be attributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Nobody was seen to wake the thread.
    NoWakeup,
    /// The wait began before the window, and nobody was seen to end it.
    BeforeWindow,
    /// The wait had not ended when the window did.
    StillBlocked,
    /// Records were lost.
    Lost,
    /// The waker itself was waiting: deeper than the chain was followed.
    DepthLimit,
    /// The waker is known, what it did was not recorded: another scope, or the profiler itself.
    NotRecorded,
    /// The waker did not exist yet.
    NotYetCreated,
    /// A packet that some local thread sent, delivered by an interrupt: not known who that was.
    LocalSoftirq,
    /// An interrupt that says nothing about who or what is behind it.
    Interrupt,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::NoWakeup,
        Self::BeforeWindow,
        Self::StillBlocked,
        Self::Lost,
        Self::DepthLimit,
        Self::NotRecorded,
        Self::NotYetCreated,
        Self::LocalSoftirq,
        Self::Interrupt,
    ];

    /// Its name in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoWakeup => "no_wakeup",
            Self::BeforeWindow => "before_window",
            Self::StillBlocked => "still_blocked",
            Self::Lost => "lost",
            Self::DepthLimit => "depth_limit",
            Self::NotRecorded => "not_recorded",
            Self::NotYetCreated => "not_yet_created",
            Self::LocalSoftirq => "local_softirq",
            Self::Interrupt => "interrupt",
        }
    }
}

/// What some of a wait's time was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlameKind {
    /// The thread worked.
    Work(ThreadIndex),
    /// The thread waited for a CPU.
    CpuQueue(ThreadIndex),
    /// Something outside of every thread.
    External(External),
    /// Not known.
    Unattributed(Reason),
}

/// A leaf of a wait's chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// What it was spent on.
    pub kind: BlameKind,
    /// Hops from the wait; 0 if there was nobody to go to.
    pub depth: u16,
    /// How much.
    pub time: Nanos,
}

/// How every wait of a recording divides.
#[derive(Clone, Debug, Default)]
pub struct Blame {
    parts: Vec<Part>,
    /// By [`WaitIndex`]: where its parts end. They begin where those of the wait before end.
    ends: Vec<u32>,
    /// By [`WaitIndex`].
    causes: Vec<Cause>,
    /// By [`WaitIndex`].
    enders: Vec<Ender>,
    /// By [`ThreadIndex`].
    ledgers: Vec<Ledger>,
}

impl Blame {
    /// Divides every wait's blocked part inside the window. The parts of a wait add up to it.
    #[must_use]
    pub fn assign(recording: &Recording, timeline: &Timeline) -> Self {
        let mut blame = Self::default();
        let mut classifier = Classifier::new(recording);
        for (n, wait) in recording.waits.iter().enumerate() {
            let cause = classifier.cause(wait);
            let index = WaitIndex(u32::try_from(n).unwrap_or(u32::MAX));
            let ender = ender_of(recording, timeline, index, wait, cause);
            blame.divide(recording, timeline, index, ender);
            blame.causes.push(cause);
            blame.enders.push(ender);
            blame.ends.push(u32::try_from(blame.parts.len()).unwrap_or(u32::MAX));
        }
        blame.ledgers = ledger::ledgers(timeline, &blame);
        blame
    }

    /// The leaves of a wait's chain; they add up to its blocked part inside the window.
    #[must_use]
    pub fn parts(&self, wait: WaitIndex) -> &[Part] {
        let n = wait.0 as usize;
        let begin = n.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |&e| e);
        let end = self.ends.get(n).map_or(begin, |&end| end);
        self.parts.get(begin as usize..end as usize).unwrap_or_default()
    }

    /// What a wait was on.
    #[must_use]
    pub fn cause(&self, wait: WaitIndex) -> Cause {
        self.causes.get(wait.0 as usize).copied().unwrap_or(Cause::Other)
    }

    /// Who or what ended a wait.
    #[must_use]
    pub fn ender(&self, wait: WaitIndex) -> Ender {
        self.enders.get(wait.0 as usize).copied().unwrap_or(Ender::Nobody(Reason::Lost))
    }

    /// A thread's ledger.
    #[must_use]
    pub fn ledger(&self, thread: ThreadIndex) -> Ledger {
        self.ledgers.get(thread.0 as usize).copied().unwrap_or_default()
    }

    fn divide(
        &mut self,
        recording: &Recording,
        timeline: &Timeline,
        wait: WaitIndex,
        ender: Ender,
    ) {
        let Some(place) = timeline.waits.get(wait.0 as usize) else { return };
        let (from, to) = (place.from, place.to);
        let all = to.since(from);
        let kind = match ender {
            Ender::Nobody(reason) | Ender::Interrupt(reason) => BlameKind::Unattributed(reason),
            Ender::External(external) => BlameKind::External(external),
            Ender::Task(task) => {
                if let Some(index) = timeline.find(task.tid, to)
                    && let Some(waker) = timeline.thread(index)
                    && (recording.meta.scope == Scope::Machine || waker.in_target)
                {
                    let begun = waker.from.clamp(from, to);
                    let split = waker.track.split(begun, to);
                    let unborn = if waker.created.is_some_and(|created| created >= waker.from) {
                        Reason::NotYetCreated
                    } else {
                        Reason::Lost
                    };
                    self.push(BlameKind::Work(index), 1, split.on_cpu);
                    self.push(BlameKind::CpuQueue(index), 1, split.runnable);
                    self.unattributed(Reason::DepthLimit, split.blocked);
                    self.unattributed(Reason::Lost, split.lost);
                    self.unattributed(unborn, begun.since(from));
                    // The waker woke it, so that it lived until then.
                    self.unattributed(Reason::Lost, all - split.total() - begun.since(from));
                    return;
                }
                BlameKind::Unattributed(Reason::NotRecorded)
            }
        };
        self.push(kind, if matches!(ender, Ender::Task(_)) { 1 } else { 0 }, all);
    }

    fn unattributed(&mut self, reason: Reason, time: Nanos) {
        self.push(BlameKind::Unattributed(reason), 1, time);
    }

    fn push(&mut self, kind: BlameKind, depth: u16, time: Nanos) {
        if time > Nanos(0) {
            self.parts.push(Part { kind, depth, time });
        }
    }
}

/// Who or what ended a wait, from what its record and its place in the timeline say.
fn ender_of(
    recording: &Recording,
    timeline: &Timeline,
    index: WaitIndex,
    wait: &Wait,
    cause: Cause,
) -> Ender {
    let used = timeline.waits.get(index.0 as usize).map_or(WakeUse::None, |place| place.wake);
    match (&wait.wake, used) {
        (Some(wake), WakeUse::Ended | WakeUse::Early) => ender::ender(recording, wait, wake, cause),
        _ => Ender::Nobody(match (wait.begin, wait.end) {
            (_, End::StillOff) => Reason::StillBlocked,
            (_, End::Missed) => Reason::Lost,
            (Begin::BeforeWindow, End::Seen) => Reason::BeforeWindow,
            (Begin::Seen | Begin::Newborn, End::Seen) => Reason::NoWakeup,
        }),
    }
}
