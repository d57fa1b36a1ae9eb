//! The few classes of time that have a colour.

use serde::{Serialize, Serializer};

use crate::{
    blame::{BlameKind, Duty, Part},
    report::{self, BlameEntry, WaitEntry, worst},
};
use offwake_recording::units::Nanos;

/// What some blocked time comes to, as a picture shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Work,
    CpuQueue,
    External,
    Unattributed,
    /// Whatever it was spent on: the thread had nothing to do.
    Idle,
    /// The thread never woke: nobody knows what it waited for, and it held nobody up.
    Asleep,
}

impl Class {
    /// In the order of their numbers, by which the page knows them.
    pub(super) const ALL: [Self; 6] =
        [Self::Work, Self::CpuQueue, Self::External, Self::Unattributed, Self::Idle, Self::Asleep];

    /// Of a part of a wait.
    pub(super) fn of(wait: &WaitEntry, blame: &BlameEntry, window: Nanos) -> Self {
        match blame.class() {
            report::Class::Idle => Self::Idle,
            _ if worst::sleeps_through(wait, window) => Self::Asleep,
            report::Class::Work => Self::Work,
            report::Class::CpuQueue => Self::CpuQueue,
            report::Class::External => Self::External,
            report::Class::Unattributed => Self::Unattributed,
        }
    }

    /// Whether nobody was held up by it: what looks for what holds a program up passes it over.
    pub(super) fn is_quiet(self) -> bool {
        matches!(self, Self::Idle | Self::Asleep)
    }

    pub(super) fn of_part(part: &Part) -> Self {
        match part.kind {
            _ if part.duty == Duty::Idle => Self::Idle,
            BlameKind::Work(_) => Self::Work,
            BlameKind::CpuQueue { .. } => Self::CpuQueue,
            BlameKind::External(_) => Self::External,
            BlameKind::Unattributed(_) => Self::Unattributed,
        }
    }
}

impl Serialize for Class {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(*self as u8)
    }
}
