//! The roots of the trees of findings: waits of threads of one program that mean the same.

use std::collections::BTreeSet;

use offwake_recording::units::{Nanos, Tgid};

use super::{meaning::SharedMeaning, programs::ProgramId, tree::Node};

/// The waits of threads of one program that mean the same.
#[derive(Default)]
pub(super) struct WaitRoot {
    pub(super) node: Node,
    pub(super) count: u64,
    pub(super) longest: Nanos,
    /// Stopped processes that have the other end of what was waited on.
    pub(super) stopped_peers: BTreeSet<Tgid>,
}

impl WaitRoot {
    /// Adds another root's waits.
    pub(super) fn merge(&mut self, other: Self) {
        self.node.merge(other.node);
        self.count += other.count;
        self.longest = self.longest.max(other.longest);
        self.stopped_peers.extend(other.stopped_peers);
    }
}

/// What roots have to have in common to be one.
pub(super) type RootKey = (ProgramId, SharedMeaning);
