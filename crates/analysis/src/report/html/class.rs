//! The classes of time that have a colour on the page.

use offwake_recording::units::Nanos;
use serde::{Serialize, Serializer};

use crate::{
    blame::{BlameClass, BlameEntryKind, BlamePart, IdleState, Reason},
    findings::TimeByClass,
    report::{BlameEntry, WaitEntry, wait_groups},
};

/// The class of some blocked time, by which the page colours it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageClass {
    Work,
    CpuQueue,
    Throttled,
    Timer,
    Disk,
    Network,
    Device,
    HeldBack,
    Unattributed,
    /// The thread had nothing to do, whatever the time was spent on.
    Idle,
    /// The thread never woke: nobody knows what it waited for, and it held nobody up.
    Asleep,
}

impl PageClass {
    /// All classes in the order of the numbers by which the page's code knows them.
    pub(super) const ALL: [Self; 11] = [
        Self::Work,
        Self::CpuQueue,
        Self::Throttled,
        Self::Timer,
        Self::Disk,
        Self::Network,
        Self::Device,
        Self::HeldBack,
        Self::Unattributed,
        Self::Idle,
        Self::Asleep,
    ];

    /// Classifies a part of a wait's blame in the report.
    pub(super) fn classify(wait: &WaitEntry, blame: &BlameEntry, window: Nanos) -> Self {
        match blame.class() {
            BlameClass::Idle => Self::Idle,
            _ if wait_groups::sleeps_through(wait, window) => Self::Asleep,
            class => Self::from_blame_class(class),
        }
    }

    /// Returns the class with the most of some time; the first of several.
    pub(super) fn most(time: &TimeByClass) -> Self {
        let most = BlameClass::ALL.into_iter().rev().max_by_key(|&class| time.get(class));
        most.map_or(Self::Unattributed, Self::from_blame_class)
    }

    fn from_blame_class(class: BlameClass) -> Self {
        match class {
            BlameClass::Work => Self::Work,
            BlameClass::CpuQueue => Self::CpuQueue,
            BlameClass::Throttled => Self::Throttled,
            BlameClass::Timer => Self::Timer,
            BlameClass::Disk => Self::Disk,
            BlameClass::Network => Self::Network,
            BlameClass::Device => Self::Device,
            BlameClass::HeldBack => Self::HeldBack,
            BlameClass::Unattributed => Self::Unattributed,
            BlameClass::Idle => Self::Idle,
        }
    }

    /// Returns the class of what was spent on something of this kind.
    pub(super) fn from_kind(kind: BlameEntryKind, reason: Option<Reason>) -> Self {
        Self::from_blame_class(BlameClass::from_kind(kind, reason))
    }

    /// Returns whether the time held nobody up, so that a reader who looks for delays can skip it.
    pub(super) fn is_quiet(self) -> bool {
        matches!(self, Self::Idle | Self::Asleep)
    }

    pub(super) fn classify_part(part: &BlamePart) -> Self {
        match part.idle_state {
            IdleState::Idle => Self::Idle,
            _ => {
                let (kind, reason) = BlameEntryKind::from_blame(part.kind);
                Self::from_blame_class(BlameClass::from_kind(kind, reason))
            }
        }
    }
}

impl Serialize for PageClass {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(*self as u8)
    }
}
