//! Short waits that were summed up where they happened, instead of being recorded one by one.

use super::ThreadKind;
use crate::units::{Cpu, Nanos, Tgid, Tid, Timestamp};

/// A stretch of a thread's life of which only sums are known: it waited again and again, each time for so
/// short a while that the wait was not recorded by itself (`--max-overhead`).
///
/// ```text
///   on-CPU | b | r | on | b | on | p | on | b | r | on-CPU      b: blocked, r: runnable, p: preempted
/// ---------+---+---+----+---+----+---+----+---+---+--------> time
///        from                                   until
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummedWaits {
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub tgid: Tgid,
    /// What kind of thread it is.
    pub kind: ThreadKind,
    /// Whether it belongs to the target.
    pub in_target: bool,
    /// The number of the last wait or preemption in it, as [`crate::Wait::seq`]. Those of the others come
    /// before it without a gap.
    pub seq: u32,
    /// How many waits there were.
    pub waits: u32,
    /// How many preemptions there were.
    pub preemptions: u32,
    /// When the thread left the CPU for the first of them.
    pub from: Timestamp,
    /// When it was back after the last one.
    pub until: Timestamp,
    /// The CPU that it left at first.
    pub off_cpu: Cpu,
    /// The CPU that it came back to at last.
    pub on_cpu: Cpu,
    /// How long it was blocked.
    pub blocked: Nanos,
    /// How long it waited for a CPU.
    pub runnable: Nanos,
    /// The longest that it was blocked at a time.
    pub longest: Nanos,
}

impl SummedWaits {
    /// The number of the first wait or preemption in it; none if the counts say that there were more than
    /// there can have been.
    #[must_use]
    pub fn first_seq(&self) -> Option<u32> {
        let others = self.waits.checked_add(self.preemptions)?.checked_sub(1)?;
        self.seq.checked_sub(others)
    }
}
