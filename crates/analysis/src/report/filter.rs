//! Which waits are shown. The ledger always has all of them.

use std::collections::BTreeSet;

use super::BlameGroup;
use crate::blame::Duty;
use offwake_recording::{ThreadKind, Waiter, units::Nanos};

/// Whose waits are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kinds {
    /// Everybody's.
    #[default]
    All,
    /// Those of threads that run a program.
    User,
    /// Those of kernel threads.
    Kernel,
}

/// Which waits are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The shortest: blocked for at least this long inside the window.
    pub min: Option<Nanos>,
    /// The longest.
    pub max: Option<Nanos>,
    /// Whose.
    pub kinds: Kinds,
    /// Letters of the task states, as `ps` has them; none for every state.
    pub states: Option<Vec<char>>,
    /// Those for which a thread has nothing to do.
    pub idle: IdleWaits,
    /// Parts of the shown waits' blame that pictures leave out. Where blame is to add up, it stays.
    pub hidden: BTreeSet<BlameGroup>,
}

/// Whether waits for the next request are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleWaits {
    /// As all others.
    #[default]
    Shown,
    /// They are not.
    Hidden,
}

impl Filter {
    /// Whether it leaves nothing out.
    #[must_use]
    pub fn is_open(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a wait, blocked for so long, is shown.
    #[must_use]
    pub fn keeps(&self, wait: &Waiter, blocked: Nanos, duty: Duty) -> bool {
        self.min.is_none_or(|min| blocked >= min)
            && self.max.is_none_or(|max| blocked <= max)
            && match self.kinds {
                Kinds::All => true,
                Kinds::User => wait.kind != ThreadKind::Kernel,
                Kinds::Kernel => wait.kind == ThreadKind::Kernel,
            }
            && !(self.idle == IdleWaits::Hidden && duty == Duty::Idle)
            && (self.states.as_ref()).is_none_or(|states| states.contains(&wait.state.letter()))
    }
}
