//! The ledger: a thread's life inside the window, accounted for to the nanosecond.

use crate::{
    timeline::{ThreadIndex, Timeline, WaitIndex},
    units::Nanos,
};

use super::{Blame, BlameKind, External, Reason};

/// What a thread's time went to.
///
/// ```text
/// wall = on_cpu + runnable + blocked
///                            blocked = attributed + external + unattributed
///                                      attributed = work + cpu_queue
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// All of it.
    pub wall: Nanos,
    /// On a CPU.
    pub on_cpu: Nanos,
    /// Waiting for a CPU.
    pub runnable: Nanos,
    /// Everything else, the time of which nothing is known included.
    pub blocked: Nanos,
    /// Blocked while another thread worked.
    pub work: Nanos,
    /// Blocked while another thread waited for a CPU.
    pub cpu_queue: Nanos,
    /// Blocked on something outside of every thread, in the order of [`External::ALL`].
    pub external: [Nanos; External::ALL.len()],
    /// Blocked, and not known on what, in the order of [`Reason::ALL`].
    pub unattributed: [Nanos; Reason::ALL.len()],
}

impl Ledger {
    /// Blame on threads.
    #[must_use]
    pub fn attributed(&self) -> Nanos {
        self.work + self.cpu_queue
    }

    /// Blame on the world outside.
    #[must_use]
    pub fn external(&self) -> Nanos {
        self.external.iter().copied().sum()
    }

    /// What can't be attributed.
    #[must_use]
    pub fn unattributed(&self) -> Nanos {
        self.unattributed.iter().copied().sum()
    }

    /// Adds another thread's.
    pub fn add(&mut self, other: &Self) {
        let Self { wall, on_cpu, runnable, blocked, work, cpu_queue, external, unattributed } =
            other;
        self.wall += *wall;
        self.on_cpu += *on_cpu;
        self.runnable += *runnable;
        self.blocked += *blocked;
        self.work += *work;
        self.cpu_queue += *cpu_queue;
        for (sum, &more) in self.external.iter_mut().zip(external) {
            *sum += more;
        }
        for (sum, &more) in self.unattributed.iter_mut().zip(unattributed) {
            *sum += more;
        }
    }

    fn blame(&mut self, kind: BlameKind, time: Nanos) {
        match kind {
            BlameKind::Work(_) => self.work += time,
            BlameKind::CpuQueue(_) => self.cpu_queue += time,
            BlameKind::External(external) => self.external[external as usize] += time,
            BlameKind::Unattributed(reason) => self.unattributed[reason as usize] += time,
        }
    }
}

/// Every thread's ledger, by [`ThreadIndex`].
pub(super) fn ledgers(timeline: &Timeline, blame: &Blame) -> Vec<Ledger> {
    let mut ledgers: Vec<Ledger> = (timeline.threads.iter())
        .map(|thread| {
            let split = thread.track.split(thread.from, thread.until);
            let mut ledger = Ledger {
                wall: thread.until.since(thread.from),
                on_cpu: split.on_cpu,
                runnable: split.runnable,
                blocked: split.blocked + split.lost,
                ..Ledger::default()
            };
            ledger.blame(BlameKind::Unattributed(Reason::Lost), split.lost);
            ledger
        })
        .collect();
    for (n, place) in timeline.waits.iter().enumerate() {
        let Some(ThreadIndex(thread)) = place.thread else { continue };
        let Some(ledger) = ledgers.get_mut(thread as usize) else { continue };
        for part in blame.parts(WaitIndex(u32::try_from(n).unwrap_or(u32::MAX))) {
            ledger.blame(part.kind, part.time);
        }
    }
    ledgers
}
