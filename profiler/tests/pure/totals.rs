//! Sums over stretches that follow one another come to what the whole recording says.

use std::collections::BTreeMap;

use offwake::capture::flight_recorder::{FrameTables, RetainedSlices, Retention};
use offwake_analysis::{
    filter::Filter,
    report::{LedgerEntry, Report},
    top::{Figures, RequestSearch, Since, TopAnalysis, Totals, Wanted},
};
use offwake_recording::{
    Recording,
    stream::Encoder,
    units::{Nanos, Tid},
};
use proptest::prelude::*;

use crate::{
    draw::{TICK, live, recording, ticks},
    properties::{LENGTH, World, world},
    retained_ranges::{append, cuts, slices, stretch, until},
};

const MEMORY: usize = 1 << 30;

/// What a flight recorder's stretches come to, looked at after each cut.
fn totals(
    whole: impl Fn(usize) -> Recording,
    length: usize,
    cuts: &[usize],
    kept_ticks: u64,
    summed_ticks: u64,
) -> Totals {
    let mut kept = RetainedSlices::new(Retention::Time(ticks(kept_ticks)), MEMORY);
    let mut encoder = Encoder::new().unwrap();
    let mut analyst = TopAnalysis::new(ticks(2 * summed_ticks), MEMORY);
    let wanted = Wanted { since: Since::Start, requests: RequestSearch::Skip };
    let mut cuts = cuts.to_vec();
    cuts.push(length + 1);
    let slices = slices(&whole(length), &cuts);
    let mut totals = Totals::default();
    for (n, slice) in slices.iter().enumerate() {
        append(&mut kept, &mut encoder, slice);
        let part = whole(cuts[n].min(length));
        let mut bytes = Vec::new();
        let frozen = kept.snapshot(stretch(&part, slice.number + 1));
        frozen.write(&FrameTables::default(), &mut bytes).unwrap();
        totals = (*analyst.analyse(bytes, wanted).unwrap().totals).clone();
    }
    totals
}

fn report(recording: &Recording) -> Report {
    let timeline = offwake_analysis::timeline::Timeline::build(recording);
    let limits = offwake_analysis::blame::ChainLimits::default();
    Report::new(
        &offwake_analysis::blame::Blame::new(recording, &timeline, limits),
        &Filter::default(),
    )
}

/// Wall, on-CPU, runnable and blocked time of each thread.
fn lives(figures: &Figures) -> BTreeMap<Tid, [Nanos; 4]> {
    let mut lives = BTreeMap::<Tid, LedgerEntry>::new();
    for (key, account) in figures.threads.iter() {
        lives.entry(key.tid).or_default().add(&account.ledger);
    }
    let parts = |ledger: LedgerEntry| {
        [ledger.wall_ns, ledger.on_cpu_ns, ledger.runnable_ns, ledger.blocked_ns]
    };
    lives.into_iter().map(|(tid, ledger)| (tid, parts(ledger))).collect()
}

fn check(world: &World, cuts: &[usize], kept: u64, summed: u64) -> Result<(), TestCaseError> {
    let totals = totals(|length| until(world, length), LENGTH, cuts, kept, summed);
    let whole = Figures::from_report(&report(&until(world, LENGTH)));
    prop_assert_eq!(totals.figures.length + totals.missed, whole.length);
    let sum = totals.figures.ledger();
    let parts = sum.attributed_ns + sum.external_ns + sum.unattributed_ns;
    prop_assert_eq!(sum.blocked_ns, parts);
    prop_assert_eq!(sum.wall_ns, sum.on_cpu_ns + sum.runnable_ns + sum.blocked_ns);
    let shown: Nanos = totals.figures.waits.iter().map(|(_, waited)| waited.blocked).sum();
    prop_assert_eq!(shown, sum.blocked_ns);
    if totals.missed == Nanos(0) {
        prop_assert_eq!(lives(&totals.figures), lives(&whole));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_time_is_counted_twice_or_lost(
        world in world(), cuts in cuts(), summed in 1..LENGTH as u64,
    ) {
        check(&world, &cuts, 2 * LENGTH as u64, summed)?;
    }

    #[test]
    fn what_left_the_window_too_soon_is_said_to_be_missing(
        world in world(), mut cuts in cuts(), kept in 2..10_u64,
    ) {
        // The first picture is of the very beginning.
        cuts.insert(0, 1);
        cuts.dedup();
        check(&world, &cuts, kept, LENGTH as u64)?;
    }
}

/// One wait, cut in two: each nanosecond of it is in one of the sums.
#[test]
fn a_wait_that_spans_two_stretches_is_cut_where_they_meet() {
    let life = "##..................####";
    let whole = |length: usize| {
        let mut recording = recording(length);
        live(&mut recording, 7, &life[..length], 8);
        recording
    };
    let totals = totals(whole, life.len(), &[10], 100, 1);
    let (_, waited) = totals.figures.waits.iter().next().unwrap();
    assert_eq!((totals.figures.waits.len(), waited.count), (1, 2));
    assert_eq!(waited.blocked, Nanos(18 * TICK));
    // Nobody had ended it when the first stretch was summed.
    assert_eq!(waited.still_blocked, Nanos(8 * TICK));
}
