//! How a report with very many threads is limited.

use std::collections::BTreeMap;

use offwake_analysis::{
    blame::{Blame, ChainLimits, Reason},
    filter::Filter,
    report::{BlameEntry, EntryLimits, Overview, Report, summary},
    timeline::Timeline,
};
use offwake_recording::{Recording, units::Nanos};
use proptest::prelude::*;

use crate::{
    draw::{edit, live, recording},
    simulator::{self, Migration, scenario},
};

/// Hops of all blame, as the documents say.
const MAX_HOPS: usize = 200_000;

/// Threads that pass a baton on. Each waits for the one before it, which waited for the one before that …
///
/// ```text
/// 100  #..........#####
/// 101  ##..........####
/// 102  ###..........###
/// ```
fn ring(threads: usize) -> Recording {
    let mut recording = recording(2 * threads + 1);
    for (tid, place) in (100..).zip(0..threads) {
        let life =
            ["#".repeat(place + 1), ".".repeat(threads - 1), "#".repeat(threads + 1 - place)];
        live(&mut recording, tid, &life.concat(), tid - 1);
    }
    edit(&mut recording, |waits| waits.iter_mut().for_each(|wait| wait.in_target = true));
    recording.thread_events.iter_mut().for_each(|thread_event| thread_event.in_target = true);
    recording.sort();
    recording
}

/// Passes what makes the report of a recording within limits to `check`.
fn with_report_maker(recording: &Recording, check: impl FnOnce(&dyn Fn(EntryLimits) -> Report)) {
    let timeline = Timeline::build(recording);
    let blame = Blame::new(recording, &timeline, ChainLimits::default());
    let overview = Overview::new(&blame, &Filter::default());
    check(&|limits| overview.complete(&blame, limits));
}

fn within_hops(hops: usize) -> EntryLimits {
    EntryLimits { hops, ..EntryLimits::NONE }
}

fn is_summed_up(part: &&BlameEntry) -> bool {
    part.reason == Some(Reason::ReportLimit)
}

fn hops(report: &Report) -> usize {
    let blame = report.waits.iter().flat_map(|wait| &wait.blame);
    blame.filter(|part| !is_summed_up(part)).map(|part| part.chain.len()).sum()
}

/// Whatever the limit is, blame adds up, what is summed up is counted, and its wakers are known too.
fn check(report: &Report, limit: usize) {
    assert!(hops(report) <= limit, "{} of {limit}", hops(report));
    let blame = || report.waits.iter().flat_map(|wait| &wait.blame);
    let summed_up: Nanos = blame().filter(is_summed_up).map(|part| part.ns).sum();
    let filter = &report.filter;
    assert_eq!((filter.limited_count > 0, filter.limited_ns), (summed_up.0 > 0, summed_up));
    assert!(blame().filter(is_summed_up).all(|part| part.chain.len() == 1 && part.depth == 1));
    for wait in &report.waits {
        assert_eq!(wait.blame.iter().map(|part| part.ns).sum::<Nanos>(), wait.blocked_ns);
        assert!(wait.blame.is_sorted_by(|one, next| one.ns >= next.ns));
    }
}

#[test]
fn blame_of_very_many_threads_has_a_limit_and_adds_up() {
    with_report_maker(&ring(2_000), |report| {
        check_very_many_threads(&report(EntryLimits::NONE), &report(EntryLimits::OF_PICTURES));
    });
}

fn check_very_many_threads(whole: &Report, report: &Report) {
    assert!(hops(whole) > MAX_HOPS);
    assert_eq!((whole.filter.limited_count, whole.warnings()), (0, Vec::new()));
    check(report, MAX_HOPS);
    assert!(hops(report) > MAX_HOPS / 20);
    for wait in &report.waits {
        let longest = wait.blame.iter().filter(is_summed_up).map(|part| part.ns).max();
        assert!(
            longest.is_none_or(|summed_up| summed_up + summed_up < wait.blocked_ns),
            "{wait:?}"
        );
    }
    // What is known is known: the ledgers have it.
    assert_eq!(report.threads, whole.threads);
    // Findings have everything, so that it is no warning; the details say it.
    assert_eq!(report.warnings(), Vec::<String>::new());
    let mut said = Vec::new();
    summary::write_details(report, &mut said).unwrap();
    let said = String::from_utf8(said).unwrap();
    let note = format!("{} small parts of the blame", report.filter.limited_count);
    assert!(said.contains(&note), "{said}");
}

/// What has no room is summed up before it is made, to the same as after it.
#[test]
fn any_limit_will_do() {
    with_report_maker(&ring(30), |report| {
        let whole = report(EntryLimits::NONE);
        let all = hops(&whole);
        for limit in 0..all {
            let report = report(within_hops(limit));
            check(&report, limit);
            assert!(report.filter.limited_count > 0);
            assert_eq!(report, whole.clone().limit_hops(limit));
        }
        assert_eq!(report(within_hops(all)), whole);
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blame_of_any_run_is_summed_up_to_the_same_before_as_after_it_is_made(
        scenario in scenario(Migration::On), loss in simulator::loss(), limit in 0..60_usize,
    ) {
        let recording = loss.apply(&simulator::run(&scenario).recording);
        with_report_maker(&recording, |report| {
            let limited = report(within_hops(limit));
            check(&limited, limit);
            assert_eq!(limited, report(EntryLimits::NONE).limit_hops(limit));
        });
    }
}

/// Whatever the limits are, the entries of a thread add up as before, and what is summed up is counted.
#[test]
fn entries_that_are_summed_up_change_no_sum() {
    with_report_maker(&ring(12), |report| check_sums(&report(EntryLimits::NONE), report));
}

fn check_sums(whole: &Report, limited: &dyn Fn(EntryLimits) -> Report) {
    let sums = |report: &Report| {
        let mut sums = BTreeMap::<_, (u64, Nanos, Nanos)>::new();
        for wait in &report.waits {
            let sum = sums.entry((wait.tid, wait.cause)).or_default();
            *sum = (sum.0 + wait.count, sum.1 + wait.blocked_ns, sum.2 + wait.idle_ns);
        }
        sums
    };
    for entries in 0..whole.waits.len() {
        for part_bytes in [0, 2_000, usize::MAX] {
            let report = limited(EntryLimits { entries, part_bytes, ..EntryLimits::NONE });
            assert_eq!(sums(&report), sums(whole));
            let summed_up = || report.waits.iter().filter(|wait| wait.summed_up > 0);
            let filter = &report.filter;
            assert_eq!(report.waits.len() - summed_up().count(), entries);
            assert_eq!(summed_up().map(|wait| wait.summed_up).sum::<u64>(), filter.limited_waits);
            let time: Nanos = summed_up().map(|wait| wait.blocked_ns).sum();
            assert_eq!(time, filter.limited_waits_ns);
            let kept = || report.waits.iter().filter(|wait| wait.summed_up == 0);
            let longest_small = summed_up().map(|wait| wait.longest_ns).max().unwrap_or_default();
            assert!(kept().all(|wait| wait.blocked_ns >= longest_small));
            for wait in &report.waits {
                let blamed: Nanos = wait.blame.iter().map(|part| part.ns).sum();
                assert_eq!(blamed, wait.blocked_ns);
            }
            let rests: Nanos = (report.waits.iter().flat_map(|wait| &wait.blame))
                .filter(is_summed_up)
                .map(|part| part.ns)
                .sum();
            assert_eq!(rests, filter.limited_ns);
            assert_eq!(report.wakes.len() as u64 + filter.limited_wakes, whole.wakes.len() as u64);
            let wakes: Nanos = report.wakes.iter().map(|wake| wake.blocked_ns).sum();
            let all: Nanos = whole.wakes.iter().map(|wake| wake.blocked_ns).sum();
            assert_eq!(wakes + filter.limited_wakes_ns, all);
        }
    }
    let enough = EntryLimits { entries: whole.waits.len(), ..EntryLimits::NONE };
    assert_eq!(limited(enough), *whole);
}
