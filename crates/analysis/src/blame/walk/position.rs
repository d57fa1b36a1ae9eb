//! Where a walk is: on which chain, in which thread, in which part of its time.

use offwake_recording::units::{Nanos, Timestamp};

use crate::timeline::ThreadIndex;

use super::{
    super::{
        BlameKind, ChainId, IdleHint, IdleState, SleepId, StackPairId, asks::Ask,
        work_waits::Expects,
    },
    GroupId,
};

/// A position on the chain that is being walked.
#[derive(Clone, Copy)]
pub(super) struct ChainPosition {
    pub(super) chain: ChainId,
    pub(super) depth: u16,
    /// How the last thread of the chain slept, while one of its waits is being walked.
    pub(super) slept: SleepId,
    pub(super) idle_state: IdleState,
    /// Whether all waits on the way were for what another thread hands over.
    pub(super) only_hand_overs: bool,
    /// What the thread before the one that is walked expects of it.
    pub(super) expects: Expects,
    /// The group of the thread before the chain's last one.
    pub(super) group: Option<GroupId>,
}

impl ChainPosition {
    /// Returns the position at the thread whose own time is walked.
    pub(super) fn beginning(group: Option<GroupId>) -> Self {
        Self {
            chain: ChainId::ROOT,
            depth: 0,
            slept: SleepId::NONE,
            idle_state: IdleState::Busy,
            only_hand_overs: true,
            expects: Expects::Progress,
            group,
        }
    }

    /// Returns the position inside a wait with this hint.
    pub(super) fn inside_wait(self, hint: IdleHint) -> Self {
        match hint {
            IdleHint::Idle if self.only_hand_overs => Self { idle_state: IdleState::Idle, ..self },
            IdleHint::SameAsWaker => self,
            IdleHint::Idle | IdleHint::Busy => Self { only_hand_overs: false, ..self },
        }
    }
}

/// A hop to the thread that is waited for.
#[derive(Clone, Copy)]
pub(super) struct HopTo {
    pub(super) thread: ThreadIndex,
    /// When it ended the wait, or was asked.
    pub(super) at: Timestamp,
    /// With which stacks it did.
    pub(super) stack: StackPairId,
    pub(super) expects: Expects,
}

/// A stretch of one thread's time that is walked back from `to`.
#[derive(Clone, Copy)]
pub(super) struct Leg {
    pub(super) thread: ThreadIndex,
    pub(super) to: Timestamp,
    /// When the thread did what was waited for. It is later than `to` where the stretch ends before.
    pub(super) done: Timestamp,
    /// The stack with which the thread left what is walked.
    pub(super) left_with: StackPairId,
    /// The position that the hop to the thread was made from.
    pub(super) parent: ChainPosition,
    pub(super) at: ChainPosition,
    /// What the loop's time is blamed on where nobody was waited for.
    pub(super) unexplained: BlameKind,
    /// The thread that was asked for something as the stretch ends, if it is not the waiter that is answered.
    pub(super) asks: Option<ThreadIndex>,
    /// What the thread had asked for another client before, and whose answer had it go on with the waiter's request.
    pub(super) released_by: Option<ReleasingAnswer>,
}

/// An answer to something that a loop had asked for another client, upon which it asked the same server on the
/// waiter's behalf.
#[derive(Clone, Copy)]
pub(super) struct ReleasingAnswer {
    pub(super) ask: Ask,
    /// When the answer came.
    pub(super) at: Timestamp,
}

/// The time `from..to`, inside one interval or one wait.
#[derive(Clone, Copy)]
pub(super) struct TimeRange {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
}

impl TimeRange {
    pub(super) fn length(self) -> Nanos {
        self.to.since(self.from)
    }

    pub(super) fn until(self, to: Timestamp) -> Self {
        Self { from: self.from, to: to.clamp(self.from, self.to) }
    }

    pub(super) fn since(self, from: Timestamp) -> Self {
        Self { from: from.clamp(self.from, self.to), to: self.to }
    }
}
