//! Chains as a reader sees them who adds them up by groups of threads.
//!
//! ```text
//! postgres 7 ── postgres 3, LockAcquire ── postgres 5, LockAcquire ── pgbench
//! └────────── all wait in the same function: one group ───────┘
//! postgres 7 ── postgres 5 ── pgbench         all that is told apart of that chain
//! ```
//!
//! Sixty threads that queue for a lock make as many chains as there are orders to queue in. To who puts them
//! into one group they are sixty, by who has the lock.

use offwake_recording::units::Tgid;

use crate::timeline::{NamedThread, ThreadIndex, WaitIndex};

use super::{
    super::{ChainId, Hop, SleepId},
    ChainPosition, HopDetail, Walker,
};

/// Identifies a group of threads: to its reader, they did the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupId {
    /// The number of what the threads ran.
    pub program: u32,
    /// The number of what they waited for.
    pub meaning: u32,
    /// Their process, if those of others are told apart from it.
    pub process: Option<Tgid>,
}

/// Which threads are one group to a reader of chains.
pub trait HopGroups: Sync {
    /// Returns the first of all ways to sleep that mean the same as this one.
    fn find_representative(&self, sleep: SleepId) -> SleepId;

    /// Returns the first of all threads of the same program, as far as who had a CPU is told apart.
    fn find_program_leader(&self, thread: ThreadIndex) -> ThreadIndex;

    /// Returns the group of a wait's own thread.
    fn group_of_waiter(&self, wait: WaitIndex, waiter: NamedThread) -> GroupId;

    /// Returns whether the ends of a wait's chains are the same for all waits of its group.
    fn has_ends_of_group(&self, wait: WaitIndex) -> bool;

    /// Returns the group of a thread on a chain that slept like this; none if nothing is known of that.
    fn group_of_hop(&self, thread: NamedThread, slept: SleepId) -> Option<GroupId>;
}

impl Walker<'_> {
    /// Returns the chain that is a hop longer than that of `at`, and the group of the thread before its last
    /// one. To a reader of groups, a thread of the same group as the one before it is no hop.
    pub(super) fn extend_chain(
        &mut self,
        at: ChainPosition,
        hop: Hop,
    ) -> (ChainId, Option<GroupId>) {
        let HopDetail::Groups(groups) = self.detail else {
            return (self.chains.extend(at.chain, hop), None);
        };
        let Some((shorter, last)) = self.chains.last_hop(at.chain) else {
            return (self.chains.extend(at.chain, hop), at.group);
        };
        let group = groups.group_of_hop(last.thread, hop.slept);
        if group.is_some() && group == at.group {
            (self.chains.extend(shorter, Hop { slept: last.slept, ..hop }), group)
        } else {
            (self.chains.extend(at.chain, hop), group)
        }
    }

    /// Returns the depth that parts tell. A reader of groups tells none and some apart.
    pub(super) fn depth_of_parts(&self, at: ChainPosition) -> u16 {
        match self.detail {
            HopDetail::Groups(_) => at.depth.min(1),
            HopDetail::WakerStacks | HopDetail::Sleeps(_) => at.depth,
        }
    }
}
