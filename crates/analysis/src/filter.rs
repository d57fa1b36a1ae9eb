//! Which waits are shown. The ledger always has all of them.

use std::collections::BTreeSet;

use offwake_recording::{ThreadKind, Waiter, units::Nanos};

use crate::blame::{BlameGroup, IdleState};

/// The kinds of threads whose waits are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThreadKinds {
    /// All threads.
    #[default]
    All,
    /// Threads that run a program.
    User,
    /// Kernel threads.
    Kernel,
}

/// Selects the waits that are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The shortest wait that is shown, by its blocked time inside the window.
    pub min: Option<Nanos>,
    /// The longest wait that is shown.
    pub max: Option<Nanos>,
    /// The kinds of threads whose waits are shown.
    pub kinds: ThreadKinds,
    /// Letters of the task states, as `ps` has them; none for every state.
    pub states: Option<Vec<char>>,
    /// Whether waits of threads that have nothing to do are shown.
    pub idle: IdleWaits,
    /// Parts of the shown waits' blame that pictures leave out. Where blame is to add up, it stays.
    pub hidden: BTreeSet<BlameGroup>,
}

/// Whether waits for the next request are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleWaits {
    /// Idle waits are shown as all others.
    #[default]
    Shown,
    /// Idle waits are left out.
    Hidden,
}

impl Filter {
    /// Returns whether the filter leaves nothing out.
    #[must_use]
    pub fn is_open(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether a wait that was blocked for this long is shown.
    #[must_use]
    pub fn keeps(&self, wait: &Waiter, blocked: Nanos, idle_state: IdleState) -> bool {
        self.min.is_none_or(|min| blocked >= min)
            && self.max.is_none_or(|max| blocked <= max)
            && match self.kinds {
                ThreadKinds::All => true,
                ThreadKinds::User => wait.kind != ThreadKind::Kernel,
                ThreadKinds::Kernel => wait.kind == ThreadKind::Kernel,
            }
            && !(self.idle == IdleWaits::Hidden && idle_state == IdleState::Idle)
            && (self.states.as_ref()).is_none_or(|states| states.contains(&wait.state.letter()))
    }
}
