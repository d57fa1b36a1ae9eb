//! The roots of the trees of findings: waits of threads of one program that mean the same.

use std::collections::{BTreeMap, BTreeSet};

use offwake_recording::{
    FileId,
    units::{Nanos, Tgid},
};

use super::{meaning::SharedMeaning, programs::ProgramId, tree::Node};

/// The waits of threads of one program that mean the same.
#[derive(Default)]
pub(super) struct WaitRoot {
    pub(super) node: Node,
    pub(super) count: u64,
    pub(super) longest: Nanos,
    /// Stopped processes that have the other end of what was waited on.
    pub(super) stopped_peers: BTreeSet<Tgid>,
    /// How long the waits on each file were, where they were on files.
    pub(super) files: BTreeMap<FileId, Nanos>,
}

impl WaitRoot {
    /// Adds another root's waits.
    pub(super) fn merge(&mut self, other: Self) {
        self.node.merge(other.node);
        self.count += other.count;
        self.longest = self.longest.max(other.longest);
        self.stopped_peers.extend(other.stopped_peers);
        for (file, time) in other.files {
            *self.files.entry(file).or_default() += time;
        }
    }

    /// Returns the file that the waits were on for at least this part of their time.
    pub(super) fn main_file(&self, part: f64) -> Option<FileId> {
        let (&file, &most) = self.files.iter().max_by_key(|&(_, &time)| time)?;
        (most.0 as f64 >= self.node.time.0 as f64 * part).then_some(file)
    }
}

/// What roots have to have in common to be one.
pub(super) type RootKey = (ProgramId, SharedMeaning);
