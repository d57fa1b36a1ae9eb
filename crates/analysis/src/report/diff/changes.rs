//! The waits that became longer or shorter.

use std::collections::BTreeMap;

use super::{Diff, Rates, SideTimes};
use crate::{report::wait_groups::SpentOn, text};

/// Waits of threads of one name on one cause, as far as they were spent on one thing.
pub(in crate::report) struct Change<'r> {
    comm: &'r str,
    cause: &'static str,
    spent_on: SpentOn<'r>,
    pub(in crate::report) rates: Rates,
}

impl Change<'_> {
    pub(in crate::report) fn difference(&self) -> i128 {
        i128::from(self.rates.after.ns) - i128::from(self.rates.before.ns)
    }

    /// `web: futex, work of db`
    pub(in crate::report) fn describe(&self) -> String {
        let comm = text::terminal(self.comm);
        format!("{comm}: {}, {}", self.cause, self.spent_on.describe_without_ids())
    }
}

/// Returns all changes, those that became longer by most first.
pub(in crate::report) fn changes<'r>(diff: &Diff<'r>) -> Vec<Change<'r>> {
    let mut sums = BTreeMap::<(&str, &'static str, SpentOn<'r>), SideTimes>::new();
    for (side, wait, part) in diff.shown_parts() {
        let key = (wait.comm.as_str(), wait.cause.name(), SpentOn::without_holder(part));
        *sums.entry(key).or_default() += SideTimes::on_side(side, part.ns);
    }
    let mut changes: Vec<_> = (sums.into_iter())
        .map(|((comm, cause, culprit), times)| Change {
            comm,
            cause,
            spent_on: culprit,
            rates: diff.rates(times),
        })
        .collect();
    changes.sort_by_key(|change| -change.difference());
    changes
}
