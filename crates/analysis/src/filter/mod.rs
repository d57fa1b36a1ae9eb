//! Which waits are shown. The ledger always has all of them.

mod condition;
mod request_waits;
mod tag_condition;

use std::{collections::BTreeSet, sync::Arc};

use offwake_recording::{Recording, ThreadKind, WaitRow, Waiter, units::Nanos};

use crate::{
    blame::{BlameGroup, IdleState},
    tags::ThreadTags,
    timeline::WaitIndex,
};

use condition::ConditionChecker;
use tag_condition::TagConditions;

pub use condition::{NotACondition, WaitCondition, WaitField};
pub use request_waits::RequestWaits;

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
    /// Conditions on what the waits were. A wait is shown that meets one on each field that there are
    /// conditions on.
    pub conditions: Vec<WaitCondition>,
    /// Whether waits of threads that have nothing to do are shown.
    pub idle: IdleWaits,
    /// The waits of some requests, if no others are shown.
    pub requests: Option<Arc<RequestWaits>>,
    /// Parts of the shown waits' blame that pictures leave out. Where blame is to add up, it stays.
    pub hidden: BTreeSet<BlameGroup>,
    /// A label of the program's own by whose values waits are told apart.
    pub told_apart_by: Option<Arc<str>>,
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
    /// Applies the filter to a recording.
    #[must_use]
    pub fn for_recording<'a>(&'a self, recording: &'a Recording) -> WaitFilter<'a> {
        let of_waits: Vec<_> = self.conditions.iter().filter_map(WaitCondition::as_wait).collect();
        let meets_conditions = (!of_waits.is_empty()).then(|| {
            let mut checker = ConditionChecker::new(recording, of_waits);
            let waits = &recording.waits;
            let mut known = vec![None; waits.patterns().len()];
            for (row, n) in waits.rows().iter().zip(0..) {
                let Some(known) = known.get_mut(row.pattern.index()) else { continue };
                if known.is_none() {
                    *known = waits.get(n).map(|wait| checker.meets_all(&wait));
                }
            }
            known.into_iter().map(|known| known == Some(true)).collect()
        });
        let tags = TagConditions::new(&self.conditions, || ThreadTags::new(recording));
        WaitFilter { filter: self, recording, meets_conditions, tags }
    }
}

/// A filter, and what of it was found out about the waits of one recording.
#[derive(Debug)]
pub struct WaitFilter<'a> {
    filter: &'a Filter,
    recording: &'a Recording,
    /// Whether waits meet the conditions, by the index of their pattern; none without conditions.
    meets_conditions: Option<Vec<bool>>,
    /// Conditions on what the thread said that it was doing, which differs from wait to wait.
    tags: Option<TagConditions<'a>>,
}

impl WaitFilter<'_> {
    /// Returns whether a wait is shown, which was blocked for this long.
    #[must_use]
    pub fn keeps(
        &self,
        index: WaitIndex,
        wait: &WaitRow,
        blocked: Nanos,
        idle_state: IdleState,
    ) -> bool {
        let filter = self.filter;
        let waiter: &Waiter = self.recording.waits.waiter(wait);
        filter.requests.as_ref().is_none_or(|requests| requests.contains(index))
            && filter.min.is_none_or(|min| blocked >= min)
            && filter.max.is_none_or(|max| blocked <= max)
            && match filter.kinds {
                ThreadKinds::All => true,
                ThreadKinds::User => waiter.kind != ThreadKind::Kernel,
                ThreadKinds::Kernel => waiter.kind == ThreadKind::Kernel,
            }
            && !(filter.idle == IdleWaits::Hidden && idle_state == IdleState::Idle)
            && (filter.states.as_ref()).is_none_or(|states| states.contains(&waiter.state.letter()))
            && (self.meets_conditions.as_ref())
                .is_none_or(|known| known.get(wait.pattern.index()) == Some(&true))
            && (self.tags.as_ref()).is_none_or(|tags| tags.meets_all(&self.recording.waits, wait))
    }
}
