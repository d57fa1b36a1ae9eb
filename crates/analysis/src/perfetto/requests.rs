//! Requests: each span a slice on a track below its thread's, with arrows between threads.

use std::{collections::HashMap, io};

use crate::{
    spans::{Span, SpanId, TraceId},
    timeline::ThreadIndex,
};

use super::{
    TraceInput, largest_left_out,
    nested_slices::NestedSlices,
    packets::Packets,
    tracks::{self, Argument, Arrow, Mark, Tracks},
};

/// Writes requests, and returns how many there was no room for: the shortest.
pub(super) fn write(
    trace: TraceInput<'_>,
    tracks: &mut Tracks<'_>,
    next_track: &mut u32,
    packets: &mut Packets<'_>,
) -> io::Result<u64> {
    let timeline = trace.blame.timeline();
    let arrows = span_arrows(&trace.spans.spans);
    let mut by_thread: Vec<(ThreadIndex, usize, &Span)> = (trace.spans.spans.iter().enumerate())
        .filter_map(|(n, span)| Some((timeline.find_thread(span.tid, span.started_at)?, n, span)))
        .collect();
    let length = |span: &Span| span.ended_at.since(span.started_at);
    let mut lengths: Vec<_> = by_thread.iter().map(|&(.., span)| length(span)).collect();
    let all = by_thread.len();
    if let Some(longest) = largest_left_out(&mut lengths, trace.limits.requests) {
        by_thread.retain(|&(.., span)| length(span) > longest);
    }
    let left_out = (all - by_thread.len()) as u64;
    by_thread.sort_by_key(|&(thread, n, span)| {
        (thread, span.started_at, std::cmp::Reverse(span.ended_at), n)
    });
    for of_thread in by_thread.chunk_by(|a, b| a.0 == b.0) {
        let mut lanes = NestedSlices::new("requests");
        for &(thread, n, span) in of_thread {
            let times = (span.started_at, span.ended_at);
            let Some(track) = lanes.find_track(thread, times, (tracks, next_track), packets)?
            else {
                continue;
            };
            let arrows = arrows.get(n).cloned().unwrap_or_default();
            tracks::begin(track, span.started_at, span_mark(span, arrows), packets)?;
        }
        lanes.close_all(packets)?;
    }
    Ok(left_out)
}

fn span_mark(span: &Span, arrows: Vec<Arrow>) -> Mark<'_> {
    let mut arguments = vec![
        ("kind", Argument::Text(span.kind.name())),
        ("status", Argument::Text(span.status.name())),
    ];
    arguments.extend(span.cause.map(|cause| ("cause", Argument::Text(cause.name()))));
    arguments.extend(span.waited_on.as_deref().map(|on| ("waited_on", Argument::Text(on))));
    arguments.extend(
        (span.waiting_on).map(|on| ("waiting_on_tid", Argument::Number(u64::from(on.tid.0)))),
    );
    Mark { category: "request", name: span.name.to_string(), arguments, arrows }
}

/// Returns the arrows of each span, by its index: from the span that it is a part of or linked
/// with, if that is another thread's, and to the spans that are parts of it.
fn span_arrows(spans: &[Span]) -> Vec<Vec<Arrow>> {
    let places: HashMap<(TraceId, SpanId), usize> =
        spans.iter().enumerate().map(|(n, span)| ((span.trace_id, span.span_id), n)).collect();
    let mut arrows = vec![Vec::new(); spans.len()];
    // Those of wakes are numbered from 1, in 32 bits.
    let mut next = 1_u64 << 40;
    for (n, span) in spans.iter().enumerate() {
        let parent = span.parent_span_id.map(|parent| (span.trace_id, parent));
        let linked = span.links.iter().map(|link| (link.trace_id, link.span_id));
        for origin in parent.into_iter().chain(linked) {
            let Some(&from) = places.get(&origin) else { continue };
            // An arrow leads on in time.
            let begins = |n: usize| spans.get(n).map(|span| (span.started_at, n));
            if spans.get(from).is_none_or(|from| from.tid == span.tid) || begins(from) > begins(n) {
                continue;
            }
            if let Some(of_origin) = arrows.get_mut(from) {
                of_origin.push(Arrow::From(next));
            }
            if let Some(own) = arrows.get_mut(n) {
                own.push(Arrow::To(next));
            }
            next += 1;
        }
    }
    arrows
}
