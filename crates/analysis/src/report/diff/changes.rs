//! The waits that became longer or shorter.

use std::collections::BTreeMap;

use super::{Diff, Rates, Times};
use crate::report::{text, worst::Leaf};

/// Waits of threads of one name on one cause, as far as they were spent on one thing.
pub(in crate::report) struct Change<'r> {
    comm: &'r str,
    cause: &'static str,
    culprit: Leaf<'r>,
    pub(in crate::report) rates: Rates,
}

impl Change<'_> {
    pub(in crate::report) fn difference(&self) -> i128 {
        i128::from(self.rates.after.0) - i128::from(self.rates.before.0)
    }

    /// `web: futex, work of db`
    pub(in crate::report) fn words(&self) -> String {
        let comm = text::terminal(self.comm);
        format!("{comm}: {}, {}", self.cause, self.culprit.words_without_ids())
    }
}

/// Returns all changes, those that became longer by most first.
pub(in crate::report) fn changes<'r>(diff: &Diff<'r>) -> Vec<Change<'r>> {
    let mut sums = BTreeMap::<(&str, &'static str, Leaf<'r>), Times>::new();
    for (side, wait, part) in diff.shown() {
        let key = (wait.comm.as_str(), wait.cause.name(), Leaf::of_whatever_holder(part));
        *sums.entry(key).or_default() += Times::of(side, part.ns);
    }
    let mut changes: Vec<_> = (sums.into_iter())
        .map(|((comm, cause, culprit), times)| Change {
            comm,
            cause,
            culprit,
            rates: diff.rates(times),
        })
        .collect();
    changes.sort_by_key(|change| -change.difference());
    changes
}
