//! What blamed time is told apart by: kinds, the three sums of the ledger, and the colours of pictures.

use schemars::JsonSchema;
use serde::Serialize;
use strum::IntoStaticStr;

use super::{BlameKind, External, Reason};

/// What blame is on.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema, IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words of the JSON contract")]
#[strum(serialize_all = "snake_case")]
#[schemars(rename = "BlameWord")]
pub enum BlameEntryKind {
    Work,
    CpuQueue,
    Timer,
    Disk,
    Network,
    Device,
    Throttled,
    Unattributed,
}

impl BlameEntryKind {
    /// Returns the kind of some blame, and why it can't be attributed, if it can't.
    pub(crate) fn from_blame(kind: BlameKind) -> (Self, Option<Reason>) {
        match kind {
            BlameKind::Work(_) => (Self::Work, None),
            BlameKind::CpuQueue { .. } => (Self::CpuQueue, None),
            BlameKind::External(External::Timer) => (Self::Timer, None),
            BlameKind::External(External::Disk) => (Self::Disk, None),
            BlameKind::External(External::Network) => (Self::Network, None),
            BlameKind::External(External::Device) => (Self::Device, None),
            BlameKind::External(External::Throttled) => (Self::Throttled, None),
            BlameKind::Unattributed(reason) => (Self::Unattributed, Some(reason)),
        }
    }

    /// Returns the name in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The three sums that blocked time divides into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum BlameGroup {
    /// A thread is to blame.
    Attributed,
    /// The cause is known, and no thread is to blame.
    External,
    /// Unknown.
    Unattributed,
}

impl BlameGroup {
    /// All groups.
    pub const ALL: [Self; 3] = [Self::Attributed, Self::External, Self::Unattributed];

    /// Returns the name in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl BlameEntryKind {
    /// Returns which of the three sums the blame counts for.
    #[must_use]
    pub fn group(self) -> BlameGroup {
        match self {
            Self::Work | Self::CpuQueue => BlameGroup::Attributed,
            Self::Timer | Self::Disk | Self::Network | Self::Device | Self::Throttled => {
                BlameGroup::External
            }
            Self::Unattributed => BlameGroup::Unattributed,
        }
    }
}

/// The classes of blame that have a colour of their own. Idle time is idle whatever it was spent
/// on, since nobody has to act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlameClass {
    /// A thread worked.
    Work,
    /// A thread waited for a CPU.
    CpuQueue,
    /// A CPU quota was used up.
    Throttled,
    /// A thread slept until a timer.
    Timer,
    /// A thread waited for a disk.
    Disk,
    /// A thread waited for the network.
    Network,
    /// A thread waited for another device.
    Device,
    /// No thread is to blame, and the reason is known: a process was stopped, threads wait for each
    /// other, or TCP held data back.
    HeldBack,
    /// Unknown.
    Unattributed,
    /// The thread had nothing to do.
    Idle,
}

impl BlameClass {
    /// All classes, in the order of legends.
    pub const ALL: [Self; 10] = [
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
    ];

    /// Returns the class of time that is not idle; `reason` is that of [`BlameEntryKind::Unattributed`].
    #[must_use]
    pub fn from_kind(kind: BlameEntryKind, reason: Option<Reason>) -> Self {
        match kind {
            BlameEntryKind::Work => Self::Work,
            BlameEntryKind::CpuQueue => Self::CpuQueue,
            BlameEntryKind::Throttled => Self::Throttled,
            BlameEntryKind::Timer => Self::Timer,
            BlameEntryKind::Disk => Self::Disk,
            BlameEntryKind::Network => Self::Network,
            BlameEntryKind::Device => Self::Device,
            BlameEntryKind::Unattributed if reason.is_some_and(Reason::is_cause) => Self::HeldBack,
            BlameEntryKind::Unattributed => Self::Unattributed,
        }
    }

    /// Returns which of the three sums time of the class counts for. Idle time counts for none: it may
    /// be of any kind.
    #[must_use]
    pub fn group(self) -> Option<BlameGroup> {
        match self {
            Self::Work | Self::CpuQueue => Some(BlameGroup::Attributed),
            Self::Throttled | Self::Timer | Self::Disk | Self::Network | Self::Device => {
                Some(BlameGroup::External)
            }
            Self::HeldBack | Self::Unattributed => Some(BlameGroup::Unattributed),
            Self::Idle => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BlameClass, BlameEntryKind, BlameGroup, Reason};

    /// What TCP held back is known, and who was stopped too, though no thread is to blame.
    #[test]
    fn a_reason_that_is_a_cause_is_not_shown_as_unknown() {
        for &reason in Reason::ALL {
            let class = BlameClass::from_kind(BlameEntryKind::Unattributed, Some(reason));
            let is_known = matches!(reason, Reason::TcpTimer | Reason::Stopped);
            assert_eq!(class == BlameClass::HeldBack, is_known, "{reason:?}");
            assert_eq!(class.group(), Some(BlameGroup::Unattributed), "{reason:?}");
        }
    }
}
