//! How far requests are followed, and that it is told.

use std::collections::BTreeSet;

use offwake_analysis::{
    filter::Filter,
    spans::{LeftOut, SpanKind, SpanLimits, Spans},
};
use offwake_recording::units::Nanos;

use super::{OPEN, busy, find, find_with, nested};
use crate::draw::{at, live, recording, ticks, wait, wake_by};

fn limited(limits: SpanLimits) -> Spans {
    find_with(&busy(), &Filter::default(), limits)
}

fn with_parent(spans: &Spans) -> usize {
    spans.spans.iter().filter(|span| span.parent_span_id.is_some()).count()
}

#[test]
fn every_limit_holds_and_is_counted() {
    let all = limited(OPEN);
    assert_eq!(all.left_out, LeftOut::default());
    // Twenty requests, each a client and a server that asked three times.
    assert_eq!((all.spans.len(), with_parent(&all)), (20 * 8, 20 * 7));

    assert_eq!(all.left_out.warning(), None);

    let shallow = limited(SpanLimits { depth: 1, ..OPEN });
    assert_eq!(shallow.spans.len(), 20 * 5);
    assert_eq!(shallow.left_out, LeftOut { depth: 20 * 3, ..LeftOut::default() });
    let said = shallow.left_out.warning().expect("a warning");
    assert!(said.contains("60 (--span-depth)"), "{said}");
    let flat = limited(SpanLimits { depth: 0, ..OPEN });
    assert_eq!(flat.left_out, LeftOut { depth: 20, ..LeftOut::default() });
    assert_eq!(flat.spans.len(), 20);

    // The server's own requests become the first of their traces.
    let short_lived = limited(SpanLimits { lifetime: ticks(4), ..OPEN });
    assert_eq!(short_lived.left_out, LeftOut { lifetime: 20, ..LeftOut::default() });
    assert_eq!(short_lived.spans.len(), 20);

    let narrow = limited(SpanLimits { fan_out: 2, ..OPEN });
    assert_eq!(narrow.spans.len(), 20 * 6);
    assert_eq!(narrow.left_out, LeftOut { fan_out: 20, ..LeftOut::default() });

    for max_spans in [0, 1, 2, 3, 4, 10, 159] {
        let few = limited(SpanLimits { max_spans, ..OPEN });
        let ids: BTreeSet<_> = few.spans.iter().map(|span| span.span_id).collect();
        for (few, all) in few.spans.iter().zip(&all.spans) {
            // But for the children that found no room.
            let mut span = all.clone();
            span.children.retain(|id| ids.contains(id));
            assert_eq!(*few, span);
        }
        assert_eq!(few.spans.len(), max_spans as usize);
        assert!(few.left_out.max_spans > 0);
    }

    let filter = Filter { min: Some(ticks(17)), ..Filter::default() };
    let filtered = find_with(&busy(), &filter, OPEN);
    assert_eq!(filtered.left_out, LeftOut { filtered: 20, ..LeftOut::default() });
    assert_eq!(filtered.spans, []);
}

#[test]
fn a_short_wait_for_nobody_in_particular_is_no_span() {
    let mut r = nested();
    r.sort();
    let limits = SpanLimits { shortest: ticks(3), ..OPEN };
    let spans = find_with(&r, &Filter::default(), limits);
    assert!(spans.spans.iter().all(|span| span.kind != SpanKind::Internal), "{spans:?}");
    // Requests are shown, however short they are.
    assert_eq!(spans.spans.len(), 4);
    let limits = SpanLimits { shortest: ticks(2), ..OPEN };
    assert_eq!(find_with(&r, &Filter::default(), limits).spans.len(), 5);
}

#[test]
fn the_sample_is_the_same_each_time_and_about_the_share() {
    let mut r = recording(3_000);
    live(&mut r, 7, &"#..".repeat(1_000), 60);
    live(&mut r, 60, &".##".repeat(1_000), 7);
    r.sort();
    let kept = |share: &str| {
        let sample = share.parse().expect("a share");
        let spans = find_with(&r, &Filter::default(), SpanLimits { sample, ..OPEN });
        let roots = spans.spans.iter().filter(|span| span.parent_span_id.is_none());
        let traces: BTreeSet<_> = roots.map(|span| span.trace_id).collect();
        (traces, spans.left_out.sampled)
    };
    let (all, none_left_out) = kept("1");
    assert_eq!(none_left_out, 0);
    let (tenth, left_out) = kept("1/10");
    assert_eq!(tenth.len() as u64 + left_out, all.len() as u64);
    assert!((60..140).contains(&tenth.len()), "{}", tenth.len());
    assert_eq!(kept("0.1").0, tenth);
    // A smaller sample is a part of a larger one, so that traces of several hosts meet.
    let (half, _) = kept("0.5");
    assert!(tenth.is_subset(&half) && half.is_subset(&all));
    assert_eq!(kept("0").0.len(), 0);
}

#[test]
fn a_wait_has_the_same_name_in_every_stretch_that_is_recorded() {
    let mut r = nested();
    r.meta.boot_id = "b00t".to_owned();
    let spans = find(&mut r);
    let mut later = r.clone();
    later.meta.window.start = at(1);
    assert_eq!(find(&mut later).spans[0].trace_id, spans.spans[0].trace_id);
    r.meta.boot_id = "another".to_owned();
    assert_ne!(find(&mut r).spans[0].trace_id, spans.spans[0].trace_id);
}

#[test]
fn many_waits_in_many_spans_are_not_walked_again_and_again() {
    const WAITS: usize = 100_000;
    let mut r = recording(2 * WAITS + 10);
    // Hundreds of threads wait for one that waits a hundred thousand times meanwhile.
    for tid in 100..400 {
        let mut long = wait(tid, 1, at(1), at(2 * WAITS));
        (long.wake, long.in_target) = (Some(wake_by(60, at(2 * WAITS))), true);
        r.waits.push(&long);
    }
    live(&mut r, 60, &("#.".repeat(WAITS) + "##########"), 61);
    r.sort();
    let limits = SpanLimits { lifetime: Nanos(u64::MAX), ..SpanLimits::default() };
    let spans = find_with(&r, &Filter::default(), limits);
    assert!(spans.spans.len() <= limits.max_spans as usize);
    assert!(spans.spans.iter().all(|span| span.children.len() <= limits.fan_out as usize));
    assert!(spans.left_out.fan_out >= (WAITS - limits.fan_out as usize) as u64);
    assert!(spans.left_out.max_spans > 0);
}
