//! A report as far as screens begin with it.

use offwake_recording::units::Nanos;
use rayon::prelude::*;

use crate::{
    blame::{Blame, BlameEntryKind, BlameGroup, Ledger, WalkedWait},
    filter::{Filter, WaitFilter},
    findings::{
        FindingInput, Findings, PathSums, TargetWait, WaitMeanings, WaitTrees, find_findings,
        part_by_part,
    },
    timeline::WaitIndex,
    wait_sums::{FilteredWait, WatchWait, filter_wait, is_of_target},
};

use super::{
    EntryLimits, Report,
    wait_entries::{self, Entries},
};

/// A report as far as screens begin with it.
///
/// A machine's ten seconds have a few thousand findings' worth of numbers, and millions of parts of blame,
/// each with texts: who looks at the first screen alone does not wait for those.
#[derive(Debug)]
pub struct Overview {
    report: Report,
    filter: Filter,
    kept_waits: u64,
}

impl Overview {
    /// Adds up everything. The filter selects the waits; the ledgers always cover all of them.
    #[must_use]
    pub fn new(blame: &Blame<'_>, filter: &Filter) -> Self {
        let sums = OverviewSums::new(blame, filter);
        let kept_waits = sums.kept_waits;
        Self {
            report: Report::without_entries(blame, filter, sums),
            filter: filter.clone(),
            kept_waits,
        }
    }

    /// Like [`Self::new`], but adds every part of blame to the findings by itself, which takes much longer:
    /// tests compare the two.
    #[doc(hidden)]
    #[must_use]
    pub fn new_part_by_part(blame: &Blame<'_>, filter: &Filter) -> Self {
        let mut overview = Self::new(blame, filter);
        let meanings = WaitMeanings::new(blame);
        let trees = part_by_part::add_up(blame, filter, &meanings);
        let ledgers = blame.ledgers();
        overview.report.findings =
            find_findings(FindingInput { meanings, trees, ledgers: &ledgers });
        overview
    }

    /// The report without its waits and wakes.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// How many waits the filter kept.
    #[must_use]
    pub fn kept_waits(&self) -> u64 {
        self.kept_waits
    }

    /// Makes the report, of the same blame, with the entries that have room.
    #[must_use]
    pub fn complete(&self, blame: &Blame<'_>, limits: EntryLimits) -> Report {
        self.complete_and_watch(blame, limits, &|_, _, _| {})
    }

    /// Makes the same report, and shows `watch` each of the target's waits while they are walked.
    pub(crate) fn complete_and_watch(
        &self,
        blame: &Blame<'_>,
        limits: EntryLimits,
        watch: WatchWait<'_>,
    ) -> Report {
        let Entries { waits, wakes, limited } =
            wait_entries::make_entries(blame, &self.filter, limits, watch);
        let filter = limited.fill_in(&self.report.filter);
        Report { waits, wakes, filter, ..self.report.clone() }
    }
}

/// The target's waits, added up as far as an overview tells them apart.
pub(super) struct OverviewSums {
    pub(super) left_out_count: u64,
    pub(super) left_out: Nanos,
    /// The ledgers of the target's threads, by [`crate::timeline::ThreadIndex`].
    pub(super) ledgers: Vec<Ledger>,
    pub(super) findings: Findings,
    kept_waits: u64,
    group_times: [Nanos; BlameGroup::ALL.len()],
}

impl OverviewSums {
    fn new(blame: &Blame<'_>, filter: &Filter) -> Self {
        let filter = filter.for_recording(blame.recording());
        let meanings = WaitMeanings::new(blame);
        let threads = &blame.timeline().threads;
        let visited = blame.visit_waits(
            meanings.hop_detail(),
            || RangeSums::new(threads.len()),
            |wait| is_of_target(blame, wait),
            |sums, wait, walked| sums.add(&meanings, (blame, &filter), wait, walked),
        );
        let finished: Vec<_> = (visited.into_par_iter())
            .map(|(sums, chains)| {
                drop(chains);
                sums.finish(&meanings)
            })
            .collect();
        let mut finished = finished.into_iter();
        let (mut sums, mut trees) =
            finished.next().unwrap_or_else(|| RangeSums::new(threads.len()).finish(&meanings));
        for (later, later_trees) in finished {
            sums.append(&later);
            trees.append(later_trees);
        }
        let RangeSums { kept_waits, left_out_count, left_out, mut ledgers, group_times, .. } = sums;
        (ledgers.par_iter_mut().zip(threads))
            .for_each(|(ledger, thread)| ledger.add(&Ledger::for_thread(thread)));
        let findings = find_findings(FindingInput { meanings, trees, ledgers: &ledgers });
        Self { left_out_count, left_out, ledgers, findings, kept_waits, group_times }
    }

    /// Returns the time of the shown waits that is put down to this group of kinds of blame.
    pub(super) fn group_time(&self, group: BlameGroup) -> Nanos {
        self.group_times[group as usize]
    }
}

/// The sums of a range of waits.
struct RangeSums {
    kept_waits: u64,
    left_out_count: u64,
    left_out: Nanos,
    ledgers: Vec<Ledger>,
    group_times: [Nanos; BlameGroup::ALL.len()],
    paths: PathSums,
}

impl RangeSums {
    fn new(threads: usize) -> Self {
        Self {
            kept_waits: 0,
            left_out_count: 0,
            left_out: Nanos(0),
            ledgers: vec![Ledger::default(); threads],
            group_times: Default::default(),
            paths: PathSums::default(),
        }
    }

    fn add(
        &mut self,
        meanings: &WaitMeanings<'_>,
        (blame, filter): (&Blame<'_>, &WaitFilter<'_>),
        index: WaitIndex,
        walked: WalkedWait<'_>,
    ) {
        let place = blame.timeline().blocked_interval(index);
        if let Some(ledger) = place.and_then(|at| self.ledgers.get_mut(at.thread.0 as usize)) {
            walked.sums().for_each(|sum| ledger.add_blame(sum));
        }
        match filter_wait(blame, filter, index, walked.sums()) {
            None => {}
            Some(FilteredWait::LeftOut(blocked)) => {
                self.left_out_count += 1;
                self.left_out += blocked;
            }
            Some(FilteredWait::Kept(kept)) => {
                self.kept_waits += 1;
                for sum in walked.sums() {
                    let (kind, _) = BlameEntryKind::from_blame(sum.kind);
                    self.group_times[kind.group() as usize] += sum.time;
                }
                let wait = TargetWait { index, waiter: kept.waiter, blocked: kept.blocked };
                self.paths.add(meanings, wait, walked);
            }
        }
    }

    /// Makes trees of the paths.
    fn finish(mut self, meanings: &WaitMeanings<'_>) -> (Self, WaitTrees) {
        let trees = std::mem::take(&mut self.paths).into_trees(meanings);
        (self, trees)
    }

    /// Adds the sums of later waits.
    fn append(&mut self, later: &Self) {
        self.kept_waits += later.kept_waits;
        self.left_out_count += later.left_out_count;
        self.left_out += later.left_out;
        for (ledger, more) in self.ledgers.iter_mut().zip(&later.ledgers) {
            ledger.add(more);
        }
        for (time, &more) in self.group_times.iter_mut().zip(&later.group_times) {
            *time += more;
        }
    }
}
