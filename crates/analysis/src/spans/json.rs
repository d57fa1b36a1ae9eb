//! Spans as JSON, schema `offwake.spans/1`: see `docs/spans.md`.

use std::io;

use offwake_recording::{
    Recording,
    units::{Nanos, Tgid, Tid, Timestamp},
};
use serde::Serialize;

use crate::{blame::cause::Cause, report};

use super::{Span, SpanId, SpanKind, SpanLink, Spans, TraceId};

/// Writes all spans, one on a line.
///
/// # Errors
///
/// Those of `out`.
pub fn write(recording: &Recording, spans: &Spans, out: &mut dyn io::Write) -> io::Result<()> {
    out.write_all(b"{\n\"schema\": \"offwake.spans/1\",\n\"window\": ")?;
    serde_json::to_writer(&mut *out, &report::window_entry(recording))?;
    out.write_all(b",\n\"limits\": ")?;
    serde_json::to_writer(&mut *out, &spans.limits)?;
    out.write_all(b",\n\"left_out\": ")?;
    serde_json::to_writer(&mut *out, &spans.left_out)?;
    out.write_all(b",\n\"spans\": [")?;
    for (n, span) in spans.spans.iter().enumerate() {
        out.write_all(if n == 0 { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut *out, &SpanEntry::new(span))?;
    }
    out.write_all(b"\n]\n}\n")
}

/// A span as it is written.
#[derive(Serialize)]
struct SpanEntry<'a> {
    trace_id: TraceId,
    span_id: SpanId,
    parent_span_id: Option<SpanId>,
    kind: SpanKind,
    name: &'a str,
    status: &'static str,
    exit_code: Option<u8>,
    signal: Option<u8>,
    pid: Tgid,
    tid: Tid,
    comm: &'a str,
    started_at: Timestamp,
    ended_at: Timestamp,
    self_us: u64,
    wait_us: u64,
    runnable_us: u64,
    lost_us: u64,
    waiting_on_pid: Option<Tgid>,
    waiting_on_tid: Option<Tid>,
    cause: Option<Cause>,
    frame: Option<&'a str>,
    waited_on: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    marker: Option<&'a str>,
    children: &'a [SpanId],
    links: &'a [SpanLink],
}

impl<'a> SpanEntry<'a> {
    fn new(span: &'a Span) -> Self {
        Self {
            trace_id: span.trace_id,
            span_id: span.span_id,
            parent_span_id: span.parent_span_id,
            kind: span.kind,
            name: &span.name,
            status: span.status.name(),
            exit_code: span.status.exit_code(),
            signal: span.status.signal(),
            pid: span.pid,
            tid: span.tid,
            comm: &span.comm,
            started_at: span.started_at,
            ended_at: span.ended_at,
            self_us: whole_micros(span.self_time()),
            wait_us: whole_micros(span.wait_time()),
            runnable_us: whole_micros(span.times.runnable),
            lost_us: whole_micros(span.times.lost),
            waiting_on_pid: span.waiting_on.map(|thread| thread.tgid),
            waiting_on_tid: span.waiting_on.map(|thread| thread.tid),
            cause: span.cause,
            frame: span.frame.as_deref(),
            waited_on: span.waited_on.as_deref(),
            marker: span.marker.as_deref(),
            children: &span.children,
            links: &span.links,
        }
    }
}

/// Returns whole microseconds, the only unit that the format has for these times.
pub(super) fn whole_micros(time: Nanos) -> u64 {
    time.0 / 1_000
}
