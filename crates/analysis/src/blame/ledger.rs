//! The ledger: a thread's life inside the window, accounted for to the nanosecond.

use crate::timeline::Thread;
use offwake_recording::units::Nanos;

use super::{BlameKind, Duty, External, Reason};

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
    /// Of the blocked time, that which was idle by design. It is in the other sums as well.
    pub idle: Nanos,
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
        let Self { wall, on_cpu, runnable, blocked, work, cpu_queue, external, unattributed, idle } =
            other;
        self.wall += *wall;
        self.on_cpu += *on_cpu;
        self.runnable += *runnable;
        self.blocked += *blocked;
        self.work += *work;
        self.cpu_queue += *cpu_queue;
        self.idle += *idle;
        for (sum, &more) in self.external.iter_mut().zip(external) {
            *sum += more;
        }
        for (sum, &more) in self.unattributed.iter_mut().zip(unattributed) {
            *sum += more;
        }
    }

    /// Adds what a part of a wait comes to.
    pub fn blame(&mut self, kind: BlameKind, duty: Duty, time: Nanos) {
        if duty == Duty::Idle {
            self.idle += time;
        }
        match kind {
            BlameKind::Work(_) => self.work += time,
            BlameKind::CpuQueue { .. } => self.cpu_queue += time,
            BlameKind::External(external) => self.external[external as usize] += time,
            BlameKind::Unattributed(reason) => self.unattributed[reason as usize] += time,
        }
    }
}

impl Ledger {
    /// Of a thread. What its waits come to is still to be added.
    #[must_use]
    pub fn of_life(thread: &Thread) -> Self {
        let split = thread.track.split();
        let mut ledger = Self {
            wall: thread.until.since(thread.from),
            on_cpu: split.on_cpu,
            runnable: split.runnable,
            blocked: split.blocked + split.lost,
            ..Self::default()
        };
        ledger.blame(BlameKind::Unattributed(Reason::Lost), Duty::Busy, split.lost);
        ledger
    }
}
