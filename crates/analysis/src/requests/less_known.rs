//! Joins a culprit with what is the same one, of which more was seen at another time.
//!
//! Frames can be missing for a while. Then one sleeper has two names, and each of them alone seems to matter less:
//!
//! ```text
//! 165 ms   cron_tx.py sleeps in call_payment_api
//! 10.4 ms  cron_tx.py sleeps
//! ```

use std::collections::{HashMap, HashSet};

use offwake_recording::units::Nanos;

use crate::timeline::ThreadIndex;

use super::profiles::{CulpritId, Profiles};

/// How long a culprit took, and whose time it was.
#[derive(Default)]
struct CulpritSum {
    time: Nanos,
    threads: HashSet<ThreadIndex>,
}

/// Returns which culprits are others of which more is known: of the same threads, which did the same for longer, if
/// they are the only such ones. Culprits are named by the first ones alike.
pub(super) fn find_better_known(profiles: &Profiles) -> HashMap<CulpritId, CulpritId> {
    let pairs = find_pairs(profiles);
    if pairs.is_empty() {
        return HashMap::new();
    }
    let mut sums: HashMap<CulpritId, CulpritSum> = HashMap::new();
    for &(less, more) in &pairs {
        sums.entry(less).or_default();
        sums.entry(more).or_default();
    }
    for part in profiles.all_parts() {
        if let Some(sum) = sums.get_mut(&profiles.first_alike(part.culprit)) {
            sum.time += part.time.time;
            sum.threads.insert(part.time.thread);
        }
    }
    let sums = |less: &CulpritId, more: &CulpritId| sums.get(less).zip(sums.get(more));
    let mut found: HashMap<CulpritId, Option<CulpritId>> = HashMap::new();
    for (less, more) in pairs {
        let is_of_same_threads =
            |(less, more): (&CulpritSum, &CulpritSum)| !less.threads.is_disjoint(&more.threads);
        if sums(&less, &more).is_some_and(is_of_same_threads) {
            found.entry(less).and_modify(|known| *known = None).or_insert(Some(more));
        }
    }
    let is_part_of = |(less, more): (&CulpritSum, &CulpritSum)| {
        less.time < more.time && less.threads.is_subset(&more.threads)
    };
    found.retain(|less, more| more.is_some_and(|more| sums(less, &more).is_some_and(is_part_of)));
    found.into_iter().filter_map(|(less, more)| Some((less, more?))).collect()
}

/// Returns the culprits that are the same as another but for what is known of them, each with that one.
fn find_pairs(profiles: &Profiles) -> Vec<(CulpritId, CulpritId)> {
    let ids: Vec<CulpritId> = profiles.distinct_culprits().collect();
    let is_less_known = |&(less, more): &(CulpritId, CulpritId)| {
        let culprit = |id| profiles.culprit(id).map(|known| &known.culprit);
        let both = culprit(less).zip(culprit(more));
        both.is_some_and(|(less, more)| less.is_less_known_than(more))
    };
    let pairs = ids.iter().flat_map(|&less| ids.iter().map(move |&more| (less, more)));
    pairs.filter(is_less_known).collect()
}
