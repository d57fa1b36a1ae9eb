//! Which waiting became longer or shorter.

use std::collections::BTreeMap;

use super::{Diff, Rates, Times};
use crate::report::{Report, flame::View, text, worst::Leaf};

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

/// All of them, those that became longer by most first.
pub(in crate::report) fn changes<'r>(diff: &Diff<'r>) -> Vec<Change<'r>> {
    let mut sums = BTreeMap::<(&str, &'static str, Leaf<'r>), Times>::new();
    for (side, path) in diff.paths(&View::default()) {
        let culprit = Leaf::of_whatever_holder(path.blame);
        let key = (path.wait.comm.as_str(), path.wait.cause.name(), culprit);
        *sums.entry(key).or_default() += Times::of(side, path.blame.ns);
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

impl Diff<'_> {
    /// Everything that is shown of both.
    pub(in crate::report) fn all(&self) -> Rates {
        let mut all = Times::default();
        for (side, path) in self.paths(&View::default()) {
            all += Times::of(side, path.blame.ns);
        }
        self.rates(all)
    }

    /// Each side with its name.
    pub(in crate::report) fn sides(&self) -> [(&'static str, &Report); 2] {
        [("before", self.before), ("after", self.after)]
    }
}
