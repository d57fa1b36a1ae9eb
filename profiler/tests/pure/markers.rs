//! What programs mark in their own code: ranges, and what they add to chains.

use offwake_analysis::{
    blame::{Blame, ChainLimits},
    filter::Filter,
    markers::{Markers, RangeBegin, RangeEnd, UnpairedMarkers},
    report::{Report, flame},
    timeline::Timeline,
};
use offwake_recording::{
    Marker, MarkerKind, Recording, ThreadEventReason,
    units::{Nanos, Tgid, Tid, Timestamp},
};
use proptest::{collection::vec, prelude::*};

use crate::draw::{TICK, at, live, recording, thread_event};

/// Adds markers of a thread: `(10, "+a")` begins the range `a` at tick 10, `-a` ends it, `!a` is an
/// instant.
fn mark(recording: &mut Recording, tid: u32, markers: &[(usize, &str)]) {
    mark_in(recording, (tid, tid), markers);
}

fn mark_in(recording: &mut Recording, (tgid, tid): (u32, u32), markers: &[(usize, &str)]) {
    for &(tick, text) in markers {
        let kind = match text.as_bytes()[0] {
            b'+' => MarkerKind::Begin,
            b'-' => MarkerKind::End,
            _ => MarkerKind::Instant,
        };
        recording.markers.push(Marker {
            at: at(tick),
            tid: Tid(tid),
            tgid: Tgid(tgid),
            kind,
            track: "T".into(),
            name: text[1..].into(),
        });
    }
    recording.sort();
}

/// A thread that is blocked but for its first and last ticks.
fn alone(ticks: usize, markers: &[(usize, &str)]) -> Recording {
    let mut r = recording(ticks);
    live(&mut r, 7, &format!("#{}#", ".".repeat(ticks - 2)), 0);
    mark(&mut r, 7, markers);
    r
}

fn pair(recording: &Recording) -> (Vec<String>, UnpairedMarkers) {
    let markers = Markers::new(recording, &Timeline::build(recording));
    let tick = |at: Timestamp| (at.0 - self::at(0).0) / TICK;
    let ranges = markers.ranges().iter().map(|range| {
        let begin = if range.begin == RangeBegin::Marked { '[' } else { '<' };
        let end = match range.end {
            RangeEnd::Marked => ']',
            RangeEnd::ByOtherThread => '~',
            RangeEnd::NotSeen => '>',
        };
        let name = markers.name(range.name).1;
        format!("{name} {begin}{}..{}{end}", tick(range.from), tick(range.to))
    });
    (ranges.collect(), markers.unpaired())
}

#[test]
fn begins_and_ends_are_paired_by_name() {
    let (ranges, unpaired) = pair(&alone(
        100,
        &[(10, "+a"), (20, "+b"), (30, "-b"), (35, "!x"), (40, "-a"), (50, "+a"), (60, "-a")],
    ));
    assert_eq!(ranges, ["a [10..40]", "b [20..30]", "a [50..60]"]);
    assert_eq!(unpaired, UnpairedMarkers::default());
    // They may overlap, and a function may call itself.
    let (ranges, _) = pair(&alone(100, &[(10, "+a"), (20, "+b"), (30, "-a"), (40, "-b")]));
    assert_eq!(ranges, ["a [10..30]", "b [20..40]"]);
    let (ranges, _) = pair(&alone(100, &[(10, "+a"), (20, "+a"), (30, "-a"), (40, "-a")]));
    assert_eq!(ranges, ["a [10..40]", "a [20..30]"]);
}

#[test]
fn what_is_open_at_the_edges_of_the_window_goes_up_to_them() {
    let (ranges, unpaired) = pair(&alone(100, &[(10, "-a"), (20, "+b")]));
    assert_eq!(ranges, ["a <0..10]", "b [20..100>"]);
    assert_eq!((unpaired.ends_of_earlier_begins, unpaired.begins_without_end), (1, 1));
    // A marker from just before the window.
    let mut r = alone(100, &[(30, "-a")]);
    r.meta.window.start = at(5);
    mark(&mut r, 7, &[(2, "+a")]);
    assert_eq!(pair(&r).0, ["a <5..30]"]);
    // One that was over by then.
    let mut r = alone(100, &[(3, "-a"), (30, "-a")]);
    r.meta.window.start = at(5);
    assert_eq!(pair(&r).0, ["a <5..30]"]);
}

#[test]
fn an_end_of_nothing_is_no_range() {
    // The program ends what it does not begin: the first end says no more than the second.
    let (ranges, unpaired) = pair(&alone(100, &[(10, "-a"), (20, "-a"), (30, "-a")]));
    assert!(ranges.is_empty(), "{ranges:?}");
    assert_eq!((unpaired.ends_without_begin, unpaired.ends_of_earlier_begins), (3, 0));
    // Of a range that has just ended.
    let (ranges, unpaired) = pair(&alone(100, &[(10, "+a"), (20, "-a"), (30, "-a")]));
    assert_eq!((ranges, unpaired.ends_without_begin), (vec!["a [10..20]".to_owned()], 1));
    // Of a thread that was created in the window: its begin would have been seen.
    let mut r = recording(100);
    live(&mut r, 8, &format!("{}#{}#", " ".repeat(40), ".".repeat(58)), 7);
    live(&mut r, 7, &"#".repeat(100), 0);
    mark(&mut r, 8, &[(50, "-a")]);
    assert!(pair(&r).0.is_empty(), "{:?}", pair(&r));
}

#[test]
fn a_range_that_nobody_ended_ends_where_it_begins_again() {
    let (ranges, unpaired) = pair(&alone(100, &[(10, "+a"), (30, "+a"), (50, "+a"), (60, "-a")]));
    assert_eq!(ranges, ["a [10..30>", "a [30..50>", "a [50..60]"]);
    assert_eq!(unpaired.begins_without_end, 2);
}

#[test]
fn an_exec_ends_all_ranges_of_its_process() {
    let created = Timestamp(7 * TICK);
    let mut r = alone(100, &[(10, "+a"), (60, "-b")]);
    r.thread_events.push(thread_event(7, ThreadEventReason::Exec, at(40), created));
    r.sort();
    assert_eq!(pair(&r).0, ["a [10..40>"]);
}

#[test]
fn a_range_that_another_thread_ended_is_on_no_chain() {
    let mut r = recording(100);
    for tid in [7, 8] {
        live(&mut r, tid, &format!("#{}#", ".".repeat(98)), 0);
    }
    mark_in(&mut r, (7, 7), &[(10, "+a")]);
    mark_in(&mut r, (7, 8), &[(30, "-a")]);
    let (ranges, unpaired) = pair(&r);
    assert_eq!((ranges, unpaired.ended_by_other_threads), (vec!["a [10..30~".to_owned()], 1));
    let timeline = Timeline::build(&r);
    let markers = Markers::new(&r, &timeline);
    let thread = timeline.find_thread(Tid(7), at(20)).unwrap();
    assert!(markers.path_texts(markers.path_at(thread, at(20))).is_empty());
}

/// One thread's request began before the window; the other thread has requests of its own.
#[test]
fn the_threads_of_a_pool_do_not_end_each_others_ranges() {
    let mut r = recording(100);
    for tid in [7, 8] {
        live(&mut r, tid, &format!("#{}#", ".".repeat(98)), 0);
    }
    mark_in(&mut r, (7, 7), &[(10, "-a"), (40, "+a"), (50, "-a")]);
    mark_in(&mut r, (7, 8), &[(5, "+a"), (20, "-a"), (30, "+a")]);
    let (ranges, unpaired) = pair(&r);
    assert_eq!(ranges, ["a <0..10]", "a [40..50]", "a [5..20]", "a [30..100>"]);
    assert_eq!(unpaired.ended_by_other_threads, 0);
}

#[test]
fn where_markers_were_lost_nothing_is_concluded_from_one_half() {
    let mut r = alone(100, &[(10, "-a"), (20, "+b"), (30, "+c"), (40, "-c")]);
    r.loss.counters.insert("ring_full_marker".to_owned(), 3);
    let (ranges, unpaired) = pair(&r);
    assert_eq!(ranges, ["c [30..40]"]);
    assert_eq!(unpaired.lost, 3);
}

#[test]
fn a_program_that_ends_nothing_is_in_few_ranges_at_once() {
    let names: Vec<String> = (0..200).map(|n| format!("+{n}")).collect();
    let many: Vec<(usize, &str)> = (1..).zip(names.iter().map(String::as_str)).collect();
    let (ranges, unpaired) = pair(&alone(300, &many));
    assert_eq!((ranges.len(), unpaired.too_many_open), (64, 136));
    let again: Vec<(usize, &str)> = (1..290).map(|tick| (tick, "+a")).collect();
    let (ranges, unpaired) = pair(&alone(300, &again));
    assert_eq!((ranges.len(), unpaired.too_many_open), (289, 0));
    assert!(ranges.iter().all(|range| range.ends_with('>')));
}

/// The texts of all paths, and their times.
fn paths(recording: &Recording) -> Vec<(String, Nanos)> {
    let timeline = Timeline::build(recording);
    let blame = Blame::new(recording, &timeline, ChainLimits::default());
    let report = Report::new(&blame, &Filter::default());
    flame::paths(&report, &flame::View::default())
        .map(|path| {
            let names: Vec<&str> = path.frames.iter().map(|frame| &*frame.name).collect();
            (names.join(";"), path.blame.ns)
        })
        .collect()
}

/// 7 waits for 8, which works in two ranges, and waits for the disk in a third.
#[test]
fn frames_say_in_which_ranges_threads_waited_and_worked() {
    let mut r = recording(100);
    live(&mut r, 7, &format!("#{}#", ".".repeat(98)), 60);
    live(&mut r, 60, &format!("{}{}{}", "#".repeat(40), "_".repeat(20), "#".repeat(40)), 0);
    let plain = paths(&r);
    mark(&mut r, 7, &[(0, "+ask"), (99, "-ask")]);
    mark(
        &mut r,
        60,
        &[(0, "+all"), (20, "+one"), (40, "-one"), (40, "+disk"), (60, "-disk"), (80, "-all")],
    );
    let marked = paths(&r);
    let time = |paths: &[(String, Nanos)]| paths.iter().map(|path| path.1).sum::<Nanos>();
    assert_eq!(time(&marked), time(&plain));
    assert!(plain.iter().all(|(text, _)| !text.contains("in T:")), "{plain:#?}");
    assert!(marked.iter().all(|(text, _)| text.starts_with("thread7-7;in T:ask;")), "{marked:#?}");
    let of = |part: &str| -> u64 {
        let found = marked.iter().filter(|(text, _)| text.contains(part));
        found.map(|(_, ns)| ns.0 / TICK).sum()
    };
    // Leaf first behind the separator: the innermost range comes first.
    assert_eq!(of("--;in T:one;in T:all;thread60-60;[work]"), 20, "{marked:#?}");
    assert_eq!(of("--;in T:all;thread60-60;[work]"), 19 + 20, "{marked:#?}");
    assert_eq!(of("--;in T:disk;in T:all;thread60-60;[unattributed"), 20, "{marked:#?}");
    assert_eq!(of("--;thread60-60;[work]"), 19, "{marked:#?}");
}

proptest! {
    /// Whatever a program marks: no range leaves the window or is turned round, and times add up as
    /// without it.
    #[test]
    fn any_markers_add_up(markers in vec((0_usize..100, 0..3_u8, 0..4_u8, 7..9_u32), 0..60)) {
        let mut r = recording(100);
        live(&mut r, 7, &format!("#{}#{}#", ".".repeat(48), ".".repeat(49)), 8);
        live(&mut r, 8, &"#".repeat(100), 0);
        let time: Nanos = paths(&r).iter().map(|path| path.1).sum();
        for (tick, kind, name, tid) in markers {
            let sign = ['+', '-', '!'][usize::from(kind)];
            mark(&mut r, tid, &[(tick, &format!("{sign}{name}"))]);
        }
        let all = paths(&r);
        prop_assert_eq!(all.iter().map(|path| path.1).sum::<Nanos>(), time);
        let found = Markers::new(&r, &Timeline::build(&r));
        let window = r.meta.window;
        for range in found.ranges() {
            prop_assert!(window.start <= range.from && range.from <= range.to);
            prop_assert!(range.to <= window.end);
        }
    }
}
