//! A small machine that runs random programs, and knows why each of its threads waited.
//!
//! ```text
//! Scenario ──▶ Machine ──events──▶ Recorder ──▶ Recording     what the kernel half would have left
//!                 └───────────────▶ History ──▶ Truth         what really happened
//! ```
//!
//! The truth is computed from the machine's own states, never from the records, so that it can judge
//! whoever reads the records. Only what `docs/blame.md` defines by records is taken from there: which
//! of a lock's releases were seen, and whether it proved to be one.

mod history;
mod kernel_half;
mod losses;
mod machine;
mod program;
mod quotas;
mod records;
mod scenarios;
mod scheduler;
mod served;
mod servers;
mod steps;
mod sums;
mod truth;

pub use history::{Activity, WakeSource};
pub use losses::loss;
pub use machine::run;
pub use program::{Errand, Migration, Op, Outside, Scenario, ThreadPlan, UsedUpQuota};
pub use records::{put_waits, stretch, waits};
pub use scenarios::scenario;
pub use served::{loops, loops_of_their_own, pools, shared_loops};
pub use servers::Request;
pub use sums::Sums;
pub use truth::{Leaf, Parts, Reading, Truth};

use offwake_recording::{
    Recording,
    units::{Tgid, Tid},
};

/// When the machine starts, in nanoseconds.
pub const START: u64 = 1_000_000;

/// A thread by the order of creation, those of a [`Scenario`] first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(pub usize);

impl ThreadId {
    const FIRST: u32 = 101;

    pub fn tid(self) -> Tid {
        Tid(Self::FIRST + self.0 as u32)
    }

    pub fn from_tid(tid: Tid) -> Self {
        Self((tid.0 - Self::FIRST) as usize)
    }
}

/// A process by the order in which a [`Scenario`] names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub usize);

impl ProcessId {
    pub fn tgid(self) -> Tgid {
        Tgid(91 + self.0 as u32)
    }
}

/// One run of a machine: its recording and the truth about it.
pub struct Run {
    /// What a profiler would have recorded of it, sorted.
    pub recording: Recording,
    /// What happened.
    pub truth: Truth,
    /// What clients asked the event loop or the pool.
    pub requests: Vec<Request>,
}
