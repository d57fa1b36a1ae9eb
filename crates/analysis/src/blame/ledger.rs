//! The ledger: a thread's life inside the window, accounted for to the nanosecond.

use crate::timeline::Thread;
use offwake_recording::units::Nanos;

use super::{BlameKind, External, IdleState, KindSum, Reason};

/// How a thread's time divides.
///
/// ```text
/// wall = on_cpu + runnable + blocked
///                 runnable includes throttled
///                            blocked = attributed + external + unattributed
///                                      attributed = work + cpu_queue
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// The thread's whole time inside the window.
    pub wall: Nanos,
    /// Time on a CPU.
    pub on_cpu: Nanos,
    /// Time waiting for a CPU, or throttled.
    pub runnable: Nanos,
    /// Of that, the time in which a CPU quota kept the thread from running.
    pub throttled: Nanos,
    /// All other time, including the time of which nothing is known.
    pub blocked: Nanos,
    /// Blocked while another thread worked.
    pub work: Nanos,
    /// Blocked while another thread waited for a CPU.
    pub cpu_queue: Nanos,
    /// Blocked on something outside of every thread, in the order of [`External::ALL`].
    pub external: [Nanos; External::ALL.len()],
    /// Blocked, and not known on what, in the order of [`Reason::ALL`].
    pub unattributed: [Nanos; Reason::ALL.len()],
    /// The part of the blocked time that was idle by design. The other sums include it.
    pub idle: Nanos,
    /// The part of the blocked time that was not idle, in waits that had not ended when the window did.
    /// The other sums include it.
    pub open: Nanos,
}

impl Ledger {
    /// Returns the time that is blamed on threads.
    #[must_use]
    pub fn attributed(&self) -> Nanos {
        self.work + self.cpu_queue
    }

    /// Returns the time that is blamed on something outside of every thread.
    #[must_use]
    pub fn external(&self) -> Nanos {
        self.external.iter().copied().sum()
    }

    /// Returns the time that can't be attributed.
    #[must_use]
    pub fn unattributed(&self) -> Nanos {
        self.unattributed.iter().copied().sum()
    }

    /// Adds another thread's ledger.
    pub fn add(&mut self, other: &Self) {
        let Self { wall, on_cpu, runnable, throttled, blocked, idle, .. } = other;
        let Self { work, cpu_queue, external, unattributed, open, .. } = other;
        self.wall += *wall;
        self.on_cpu += *on_cpu;
        self.runnable += *runnable;
        self.throttled += *throttled;
        self.blocked += *blocked;
        self.work += *work;
        self.cpu_queue += *cpu_queue;
        self.idle += *idle;
        self.open += *open;
        for (sum, &more) in self.external.iter_mut().zip(external) {
            *sum += more;
        }
        for (sum, &more) in self.unattributed.iter_mut().zip(unattributed) {
            *sum += more;
        }
    }

    /// Adds some of a wait's blame.
    pub fn add_blame(&mut self, KindSum { kind, idle_state, time }: KindSum) {
        match idle_state {
            IdleState::Idle => self.idle += time,
            IdleState::Busy if kind == BlameKind::Unattributed(Reason::StillBlocked) => {
                self.open += time;
            }
            IdleState::Busy => {}
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
    /// Creates a thread's ledger from its track. The blame of its waits is still to be added.
    #[must_use]
    pub fn for_thread(thread: &Thread) -> Self {
        let (split, summed) = (thread.track.total_times(), thread.summed);
        let lost = Nanos(split.lost.0.saturating_sub(split.summed.0));
        let mut ledger = Self {
            wall: thread.until.since(thread.from),
            on_cpu: split.on_cpu + summed.on_cpu(),
            runnable: split.runnable + summed.runnable,
            throttled: split.throttled,
            blocked: split.blocked + lost + summed.blocked,
            ..Self::default()
        };
        for (reason, time) in [(Reason::Lost, lost), (Reason::ShortWaits, summed.blocked)] {
            ledger.add_blame(KindSum {
                kind: BlameKind::Unattributed(reason),
                idle_state: IdleState::Busy,
                time,
            });
        }
        ledger
    }
}
