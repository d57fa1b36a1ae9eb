//! Requests and replies as spans.

mod endings;
mod every_recording;
mod golden;
mod limits;
mod requests;
mod sides;

use std::collections::{BTreeMap, BTreeSet};

use offwake_analysis::{
    blame::{Blame, ChainLimits},
    filter::Filter,
    spans::{self, SampleShare, Span, SpanId, SpanInput, SpanKind, SpanLimits, Spans},
    timeline::Timeline,
};
use offwake_recording::{
    Recording, TaskState, Wait, Wake, WakeContext,
    units::{Nanos, Tid, Timestamp},
};

use crate::draw::{TICK, at, edit, live, recording, wake_by};

pub const EXIT_GROUP: u32 = 231;

pub fn find_with(recording: &Recording, filter: &Filter, limits: SpanLimits) -> Spans {
    let timeline = Timeline::build(recording);
    let blame = Blame::new(recording, &timeline, ChainLimits::default());
    let evidence = SpanInput {
        recording,
        timeline: &timeline,
        wake_source: &|wait| blame.wake_source(wait),
        cause: &|wait| blame.cause(wait),
    };
    spans::find_spans(evidence, filter, limits)
}

pub fn find(recording: &mut Recording) -> Spans {
    recording.sort();
    find_with(recording, &Filter::default(), SpanLimits::default())
}

/// The spans as an outline: `client 7 2..11 on 8: self 1`, in ticks. What is no `ok` says so, and so
/// do links.
pub fn outline(spans: &Spans) -> Vec<String> {
    let by_id: BTreeMap<_, _> =
        spans.spans.iter().map(|span| ((span.trace_id, span.span_id), span)).collect();
    let mut lines = Vec::new();
    for root in spans.spans.iter().filter(|span| span.parent_span_id.is_none()) {
        let mut left = vec![(root, 0)];
        while let Some((span, depth)) = left.pop() {
            lines.push(format!("{}{}", "  ".repeat(depth), line(span)));
            let children = span.children.iter().map(|id| by_id[&(span.trace_id, *id)]);
            left.extend(children.rev().map(|child| (child, depth + 1)));
        }
    }
    lines
}

pub fn line(span: &Span) -> String {
    let kind = match span.kind {
        SpanKind::Client => "client",
        SpanKind::Server => "server",
        SpanKind::Internal => "internal",
    };
    let tick = |moment: Timestamp| moment.since(at(0)).0 / TICK;
    let mut line = format!(
        "{kind} {} {}..{}: self {}",
        span.tid,
        tick(span.started_at),
        tick(span.ended_at),
        span.self_time().0 / TICK
    );
    if let Some(on) = span.waiting_on {
        line += &format!(", on {}", on.tid);
    }
    if span.status.name() != "ok" {
        line += &format!(", {}", span.status.name());
    }
    for number in [span.status.exit_code(), span.status.signal()].into_iter().flatten() {
        line += &format!(" {number}");
    }
    for link in &span.links {
        line += &format!(", {:?}", link.kind);
    }
    line
}

/// Says who ended a thread's wait of this number.
pub fn ended_by(recording: &mut Recording, tid: u32, seq: u32, waker: u32) {
    edit_wait(recording, tid, seq, |wait| {
        wait.wake = wait.wake.map(|wake| wake_by(waker, wake.at));
    });
}

/// Changes a thread's wait of this number.
pub fn edit_wait(recording: &mut Recording, tid: u32, seq: u32, change: impl FnOnce(&mut Wait)) {
    let of_thread = |wait: &&mut Wait| (wait.tid, wait.seq) == (Tid(tid), seq);
    edit(recording, |waits| change(waits.iter_mut().find(of_thread).expect("a wait")));
}

/// Changes what ended it.
pub fn edit_wake(recording: &mut Recording, tid: u32, seq: u32, change: impl FnOnce(&mut Wake)) {
    edit_wait(recording, tid, seq, |wait| change(wait.wake.as_mut().expect("woken")));
}

/// 7 asks 60, who asks 61, who waits for its disk or whatever.
pub fn nested() -> Recording {
    let mut r = recording(16);
    //                     |         |
    live(&mut r, 7, "###.........####", 60);
    live(&mut r, 60, "..##.....r##....", 7);
    live(&mut r, 61, "...##..##.......", 60);
    ended_by(&mut r, 60, 2, 61);
    edit_wait(&mut r, 61, 2, |disk| disk.state = TaskState(2));
    edit_wake(&mut r, 61, 2, |wake| wake.context = WakeContext::Softirq(4));
    r
}

/// 7 asks 60 again and again; 60 asks 61 several times for each.
pub fn busy() -> Recording {
    let mut r = recording(400);
    let (mut asks, mut serves, mut helps) = (String::new(), String::new(), String::new());
    for _ in 0..20 {
        asks += "##................##";
        serves += ".##..##..##..#####..";
        helps += "..###.###.###.......";
    }
    live(&mut r, 7, &asks, 60);
    live(&mut r, 60, &serves, 61);
    live(&mut r, 61, &helps, 60);
    for n in 0..20 {
        ended_by(&mut r, 60, n * 4 + 1, 7);
    }
    r.sort();
    r
}

pub const OPEN: SpanLimits = SpanLimits {
    depth: 16,
    lifetime: Nanos(u64::MAX),
    fan_out: u32::MAX,
    max_spans: u32::MAX,
    shortest: Nanos(0),
    sample: SampleShare::ALL,
};

/// Checks what holds for all spans, whatever they are made from.
pub fn check(recording: &Recording, spans: &Spans) {
    let window = recording.meta.window;
    let by_id: BTreeMap<_, _> =
        spans.spans.iter().enumerate().map(|(n, span)| (span.span_id, (n, span))).collect();
    assert_eq!(by_id.len(), spans.spans.len(), "ids are unique");
    assert!(spans.spans.len() <= spans.limits.max_spans as usize);
    let roots = spans.spans.iter().filter(|span| span.parent_span_id.is_none());
    let traces: BTreeSet<_> = roots.clone().map(|span| span.trace_id).collect();
    assert_eq!(traces.len(), roots.count(), "a trace has one beginning");
    for (n, span) in spans.spans.iter().enumerate() {
        assert!(window.start <= span.started_at && span.started_at <= span.ended_at);
        assert!(span.ended_at <= window.end);
        assert_eq!(span.self_time() + span.wait_time(), span.ended_at.since(span.started_at));
        assert!(span.children.len() <= spans.limits.fan_out as usize);
        if let Some(parent) = span.parent_span_id {
            let (before, parent) = by_id[&parent];
            assert!(before < n, "a parent comes first, so that there is no cycle");
            assert_eq!(parent.trace_id, span.trace_id);
            assert!(parent.children.contains(&span.span_id));
            assert!(parent.started_at <= span.started_at && span.ended_at <= parent.ended_at);
        }
        let children: BTreeSet<SpanId> = span.children.iter().copied().collect();
        assert_eq!(children.len(), span.children.len());
        for child in children {
            assert_eq!(by_id[&child].1.parent_span_id, Some(span.span_id));
        }
        for link in &span.links {
            assert_eq!(by_id[&link.span_id].1.trace_id, link.trace_id);
        }
        match span.kind {
            SpanKind::Client => assert!(span.waiting_on.is_some() && span.cause.is_some()),
            SpanKind::Server => assert!(span.cause.is_none() && span.parent_span_id.is_some()),
            SpanKind::Internal => {}
        }
    }
}
