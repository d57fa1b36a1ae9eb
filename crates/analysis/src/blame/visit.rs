//! Walks all waits of a recording in parallel.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use crate::timeline::WaitIndex;

use super::{Blame, Chains, HopDetail, Ledger, WalkedWait, Walker};

/// With one, one of two CPUs had nothing to do for half of the walk along pgbench's waits.
const RANGES_PER_THREAD: u32 = 4;

impl Blame<'_> {
    /// Walks all waits for which `is_wanted` returns true, on all CPUs, and passes each with its
    /// blame to `visit`. `detail` says what hops tell.
    ///
    /// The waits are divided into a few ranges for each thread, and whoever is free goes on with one that
    /// nobody has: of two halves, one can take twice as long as the other. Each range has a visitor of
    /// its own, made with `make`, which visits its waits in their order. The visitors come back in the order
    /// of their ranges, each with the chains that the parts it saw refer to.
    pub fn visit_waits<'b, V: Send>(
        &'b self,
        detail: HopDetail<'b>,
        make: impl Fn() -> V + Sync,
        is_wanted: impl Fn(WaitIndex) -> bool + Sync,
        visit: impl Fn(&mut V, WaitIndex, WalkedWait<'_>) + Sync,
    ) -> Vec<(V, Chains)> {
        let waits = u32::try_from(self.recording.waits.len()).unwrap_or(u32::MAX);
        let threads = u32::try_from(rayon::current_num_threads()).unwrap_or(1);
        let ranges = threads.saturating_mul(RANGES_PER_THREAD).max(1);
        let stretch = waits.div_ceil(ranges).max(1);
        (0..ranges)
            .into_par_iter()
            .with_max_len(1)
            .map(|n| {
                let mut visitor = make();
                let mut walker = self.walker_with_detail(detail);
                let first = n.saturating_mul(stretch).min(waits);
                let stretch = first..first.saturating_add(stretch).min(waits);
                for wait in stretch.map(WaitIndex).filter(|&wait| is_wanted(wait)) {
                    visit(&mut visitor, wait, walker.walk(wait));
                }
                (visitor, walker.into_chains())
            })
            .collect()
    }

    /// Walks groups of waits on all CPUs: each thread makes a visitor of its own with `make`, and visits
    /// one group after another, in their order, whoever is free first. The visitors come back with the
    /// chains that the parts they saw refer to.
    pub(crate) fn visit_groups<'b, G: Sync, V: Send>(
        &'b self,
        detail: HopDetail<'b>,
        groups: &[G],
        make: impl Fn() -> V + Sync,
        visit: impl Fn(&mut V, &G, &mut Walker<'b>) + Sync,
    ) -> Vec<(V, Chains)> {
        let next = AtomicUsize::new(0);
        (0..rayon::current_num_threads().clamp(1, groups.len().max(1)))
            .into_par_iter()
            .with_max_len(1)
            .map(|_| {
                let mut visitor = make();
                let mut walker = self.walker_with_detail(detail);
                while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
                    visit(&mut visitor, group, &mut walker);
                }
                (visitor, walker.into_chains())
            })
            .collect()
    }

    /// Returns every thread's ledger, by [`crate::timeline::ThreadIndex`].
    #[must_use]
    pub fn ledgers(&self) -> Vec<Ledger> {
        let threads = &self.timeline.threads;
        let mut ledgers: Vec<Ledger> = threads.iter().map(Ledger::for_thread).collect();
        let surveyed = self.visit_waits(
            HopDetail::Sleeps(&[]),
            || vec![Ledger::default(); threads.len()],
            |_| true,
            |ledgers, wait, walked| {
                let place = self.timeline.blocked_interval(wait);
                if let Some(ledger) = place.and_then(|at| ledgers.get_mut(at.thread.0 as usize)) {
                    walked.sums().for_each(|sum| ledger.add_blame(sum));
                }
            },
        );
        for (more, _) in &surveyed {
            ledgers.iter_mut().zip(more).for_each(|(ledger, more)| ledger.add(more));
        }
        ledgers
    }
}
