//! What the walk of a wait comes to.

use offwake_recording::units::Nanos;

use super::{
    super::{BlameKind, BlamePart, Chains, IdleState},
    shared::{SharedWalk, SharedWalkId, SharedWalks},
};

/// Time of one kind of blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindSum {
    /// The kind. Which threads it names does not matter.
    pub kind: BlameKind,
    /// Whether the time was idle.
    pub idle_state: IdleState,
    /// How long it was.
    pub time: Nanos,
}

/// The blame of a wait.
#[derive(Clone, Copy)]
pub struct WalkedWait<'w> {
    /// Its parts, but for those of its shared walks.
    pub parts: &'w [BlamePart],
    /// The chains that parts refer to.
    pub chains: &'w Chains,
    used: &'w [SharedWalkId],
    shared: &'w [SharedWalk],
}

impl<'w> WalkedWait<'w> {
    pub(super) fn new(parts: &'w [BlamePart], chains: &'w Chains, shared: &'w SharedWalks) -> Self {
        let (used, shared) = shared.used();
        Self { parts, chains, used, shared }
    }

    /// Returns the shared walks that it has in common with other waits.
    pub fn shared(self) -> impl Iterator<Item = (SharedWalkId, &'w SharedWalk)> {
        self.used.iter().filter_map(move |&id| Some((id, self.shared.get(id.index())?)))
    }

    /// Returns all of its blame by kind, each kind once or several times.
    pub fn sums(self) -> impl Iterator<Item = KindSum> + 'w {
        let of_part = |&BlamePart { kind, idle_state, time, .. }: &BlamePart| KindSum {
            kind,
            idle_state,
            time,
        };
        (self.parts.iter().map(of_part))
            .chain(self.shared().flat_map(|(_, walk)| walk.sums().iter().copied()))
    }
}
