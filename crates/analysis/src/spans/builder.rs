//! Builds spans from requests and what was done for them.
//!
//! ```text
//! trace  client A   |-------------------------------------|
//!        server B     |---------------------------------|     a part of the client's span
//!        client B        |------------------|                 B asked C meanwhile
//!        server C          |--------------|
//!        internal B                            |-------|      B waited for its disk
//! ```
//!
//! Where B was not asked by A, A's span is a wait of its own, and linked with B's in another trace.
//! Each span is visited once; its children are found by a binary search.

use std::sync::Arc;

use offwake_recording::units::{Nanos, Timestamp};

use crate::{
    blame::WakeSource,
    filter::Filter,
    tags::ThreadTags,
    timeline::{ThreadIndex, WaitIndex},
};

use super::{
    LeftOut, LinkKind, Span, SpanId, SpanInput, SpanKind, SpanLimits, SpanLink, SpanStatus, Spans,
    TraceId, exchange::Leg, findings::Findings, names::SpanNames, roots::find_roots,
};

/// Finds the spans of a recording.
///
/// A trace begins with a request of one of the target's threads, or with its wait for what another
/// thread did unasked; and with a request that one of the target's threads was asked on a connection
/// that the asker made. The filter says which of these are kept.
#[must_use]
pub fn find_spans(evidence: SpanInput<'_>, filter: &Filter, limits: SpanLimits) -> Spans {
    let findings = Findings::new(evidence, limits.shortest);
    let mut left_out = LeftOut::default();
    let roots = find_roots(&findings, filter, limits.lifetime, &mut left_out);
    let finder = SpanBuilder {
        evidence,
        findings,
        limits,
        names: SpanNames::new(evidence),
        has_span: vec![false; evidence.wait_count()],
        spans: Vec::new(),
        left_out,
        tags: ThreadTags::new(evidence.recording),
    };
    finder.build(&roots)
}

struct SpanBuilder<'a> {
    evidence: SpanInput<'a>,
    findings: Findings<'a>,
    limits: SpanLimits,
    names: SpanNames<'a>,
    /// Whether a wait has a span already, by [`WaitIndex`].
    has_span: Vec<bool>,
    spans: Vec<Span>,
    left_out: LeftOut,
    tags: ThreadTags<'a>,
}

/// A span that was built, and its index among all spans.
#[derive(Clone, Copy)]
struct SpanRef {
    index: usize,
    trace: TraceId,
    id: SpanId,
}

/// What a thread did in a span, still to be walked for the span's children.
#[derive(Clone, Copy)]
struct Activity {
    parent: SpanRef,
    thread: ThreadIndex,
    from: Timestamp,
    /// What ends at this moment or later is not a part of it.
    before: Timestamp,
    /// Hops from the wait that the trace begins with.
    depth: u16,
}

/// What a new span is a part of.
#[derive(Clone, Copy)]
enum SpanParent {
    /// The span begins a trace.
    Root(TraceId),
    /// The span is a part of this one, which began then.
    Parent(SpanRef, Timestamp),
}

/// What a new span is made from.
struct SpanDraft {
    kind: SpanKind,
    thread: ThreadIndex,
    from: Timestamp,
    to: Timestamp,
    name: Arc<str>,
    status: SpanStatus,
    /// The wait, if it is one.
    wait: Option<WaitIndex>,
}

impl SpanBuilder<'_> {
    fn build(mut self, roots: &[WaitIndex]) -> Spans {
        for (n, &root) in roots.iter().enumerate() {
            if self.spans.len() >= self.limits.max_spans as usize {
                self.left_out.max_spans += (roots.len() - n) as u64;
                break;
            }
            if self.has_span.get(root.0 as usize) == Some(&false) {
                self.add_root(root);
            }
        }
        Spans { spans: self.spans, limits: self.limits, left_out: self.left_out }
    }

    fn add_root(&mut self, wait: WaitIndex) {
        let Some(record) = self.evidence.wait(wait) else { return };
        let boot_id = &self.evidence.recording.meta.boot_id;
        let trace = TraceId::from_wait(boot_id, record.tid, record.off);
        if !self.limits.sample.includes(trace) {
            self.left_out.sampled += 1;
            return;
        }
        let mut left = Vec::new();
        self.add_wait(wait, SpanParent::Root(trace), 0, &mut left);
        // Depth first, so that a trace that meets a limit is whole as far as it goes.
        while let Some(doings) = left.pop() {
            let first = left.len();
            self.add_children(doings, &mut left);
            left.get_mut(first..).unwrap_or_default().reverse();
        }
    }

    /// Adds the spans of the waits in a thread's activity.
    fn add_children(&mut self, doings: Activity, left: &mut Vec<Activity>) {
        let Activity { parent, thread, from, before, depth } = doings;
        let inside = self.findings.span_waits.ending_inside(thread, from, before);
        let most = inside.len().min(self.limits.fan_out as usize);
        self.left_out.fan_out += (inside.len() - most) as u64;
        let end = inside.start + most;
        for place in inside.start..end {
            if self.spans.len() >= self.limits.max_spans as usize {
                self.left_out.max_spans += (end - place) as u64;
                return;
            }
            if let Some(&wait) = self.findings.span_waits.waits().get(place) {
                self.add_wait(wait, SpanParent::Parent(parent, from), depth, left);
            }
        }
    }

    /// Adds the span of a wait and those of what was done for it.
    fn add_wait(
        &mut self,
        wait: WaitIndex,
        under: SpanParent,
        depth: u16,
        left: &mut Vec<Activity>,
    ) {
        let Some(place) = self.evidence.interval(wait) else { return };
        let Some(thread) = place.thread else { return };
        let is_request = self.findings.is_request(wait);
        let not_before = match under {
            SpanParent::Root(_) => Timestamp(0),
            SpanParent::Parent(_, from) => from,
        };
        let (kind, name) = if is_request {
            (SpanKind::Client, self.names.request_name(wait))
        } else {
            (SpanKind::Internal, Arc::from((self.evidence.cause)(wait).name()))
        };
        let draft = SpanDraft {
            kind,
            thread,
            from: self.findings.span_start(wait).max(not_before),
            to: place.to,
            name,
            status: self.findings.span_status(wait),
            wait: Some(wait),
        };
        let Some(made) = self.push_span(draft, under) else { return };
        if let Some(shown) = self.has_span.get_mut(wait.0 as usize) {
            *shown = true;
        }
        let parts = self.findings.legs(wait);
        if parts.is_empty() {
            // Of the profiler's own threads, say.
            self.left_out.not_recorded += u64::from(self.evidence.waker_task(wait).is_some());
        } else if depth >= self.limits.depth {
            self.left_out.depth += 1;
        } else if self.findings.pieces.blocked_time(wait) > self.limits.lifetime {
            self.left_out.lifetime += 1;
        } else if is_request {
            self.add_servers(made, wait, &parts, depth, left);
        } else {
            self.add_unasked(made, wait, &parts, depth, left);
        }
    }

    /// Adds the spans of the threads that were asked.
    fn add_servers(
        &mut self,
        client: SpanRef,
        wait: WaitIndex,
        legs: &[Leg],
        depth: u16,
        left: &mut Vec<Activity>,
    ) {
        let Some(client_pid) = self.spans.get(client.index).map(|span| span.pid) else { return };
        let mut before: Option<SpanRef> = None;
        let most = legs.len().min(self.limits.fan_out as usize);
        self.left_out.fan_out += (legs.len() - most) as u64;
        for (n, &leg) in legs.iter().take(most).enumerate() {
            let is_last = n + 1 == legs.len();
            let Some(server) = self.add_server(client, wait, leg, is_last) else { continue };
            let Some(span) = self.spans.get_mut(server.index) else { continue };
            let (from, to) = (span.started_at, span.ended_at);
            if span.pid != client_pid {
                span.links.push(client.link(LinkKind::RequestedBy));
            }
            if let Some(before) = before {
                span.links.push(before.link(LinkKind::HandedOnBy));
            }
            before = Some(server);
            // What is still open at the window's end is a part of what is.
            let is_open = matches!((self.evidence.wake_source)(wait), WakeSource::Unknown(_));
            let before = if is_open { to + Nanos(1) } else { to };
            left.push(Activity {
                parent: server,
                thread: leg.thread,
                from,
                before,
                depth: depth + 1,
            });
        }
    }

    /// Adds the span of one leg. None if nothing is known of it, if it was over before the client's
    /// span begins, or if the limit of spans is reached.
    fn add_server(
        &mut self,
        client: SpanRef,
        wait: WaitIndex,
        leg: Leg,
        is_last: bool,
    ) -> Option<SpanRef> {
        let thread = self.evidence.thread(leg.thread)?;
        if !self.evidence.is_recorded(leg.thread) {
            self.left_out.not_recorded += 1;
            return None;
        }
        let begin = self.spans.get(client.index)?.started_at;
        let (from, to) = (leg.from.max(thread.from).max(begin), leg.to.min(thread.until));
        if from > to {
            return None;
        }
        let status = match self.findings.span_status(wait) {
            _ if !is_last => SpanStatus::Ok,
            SpanStatus::Unfinished => self
                .findings
                .exits
                .exit_status_after(leg.thread, from)
                .unwrap_or(SpanStatus::Unfinished),
            status => status,
        };
        let name = self.names.waker_frame_or_comm(leg.ended, leg.thread, to);
        let kind = SpanKind::Server;
        let draft = SpanDraft { kind, thread: leg.thread, from, to, name, status, wait: None };
        self.push_span(draft, SpanParent::Parent(client, begin))
    }

    /// Adds the span of what ended a wait unasked, in a trace of its own.
    fn add_unasked(
        &mut self,
        waiting: SpanRef,
        wait: WaitIndex,
        parts: &[Leg],
        depth: u16,
        left: &mut Vec<Activity>,
    ) {
        let Some(begin) = self.spans.get(waiting.index).map(|span| span.started_at) else { return };
        for part in parts {
            let Some(thread) = self.evidence.thread(part.thread) else { continue };
            if !self.evidence.is_recorded(part.thread) {
                self.left_out.not_recorded += 1;
                continue;
            }
            let from = part.from.max(thread.from).max(begin).min(part.to);
            let to = part.to;
            let draft = SpanDraft {
                kind: SpanKind::Internal,
                thread: part.thread,
                from,
                to,
                name: self.names.waker_frame_or_comm(part.ended, part.thread, to),
                status: self.findings.exits.waker_exit_status(wait).unwrap_or(SpanStatus::Ok),
                wait: None,
            };
            let trace = TraceId::for_link(waiting.trace, waiting.id);
            let Some(made) = self.push_span(draft, SpanParent::Root(trace)) else { continue };
            if let Some(span) = self.spans.get_mut(waiting.index) {
                span.links.push(made.link(LinkKind::EndedBy));
            }
            let thread = part.thread;
            left.push(Activity { parent: made, thread, from, before: to, depth: depth + 1 });
        }
    }

    fn push_span(&mut self, draft: SpanDraft, under: SpanParent) -> Option<SpanRef> {
        if self.spans.len() >= self.limits.max_spans as usize {
            self.left_out.max_spans += 1;
            return None;
        }
        let thread = self.evidence.thread(draft.thread)?;
        let (trace, parent, number) = match under {
            SpanParent::Root(trace) => (trace, None, 0),
            SpanParent::Parent(parent, _) => {
                let span = self.spans.get(parent.index)?;
                (parent.trace, Some(parent), span.children.len())
            }
        };
        let span_id = SpanId::for_child(trace, parent.map(|parent| parent.id), number);
        if let Some(parent) = parent.and_then(|parent| self.spans.get_mut(parent.index)) {
            parent.children.push(span_id);
        }
        let cause = draft.wait.map(|wait| (self.evidence.cause)(wait));
        let record = draft.wait.and_then(|wait| self.evidence.wait(wait));
        let made = SpanRef { index: self.spans.len(), trace, id: span_id };
        let program = self.tags.find_only_span(thread.tid, draft.from, draft.to);
        let program = program.map(|(trace, span)| SpanLink {
            trace_id: TraceId::from_program(trace),
            span_id: SpanId::from_program(span),
            kind: LinkKind::Program,
        });
        self.spans.push(Span {
            trace_id: trace,
            span_id,
            parent_span_id: parent.map(|parent| parent.id),
            tid: thread.tid,
            pid: thread.tgid,
            comm: self.names.comm(draft.thread, draft.to),
            started_at: draft.from,
            ended_at: draft.to,
            times: thread.track.times_between(draft.from, draft.to),
            waiting_on: draft.wait.and_then(|wait| self.findings.waiting_on(wait)),
            children: Vec::new(),
            kind: draft.kind,
            name: draft.name,
            cause,
            frame: draft.wait.and_then(|wait| self.names.wait_frame(wait)),
            waited_on: record.zip(cause).and_then(|(wait, on)| self.names.waited_on(&wait, on)),
            marker: None,
            status: draft.status,
            links: program.into_iter().collect(),
        });
        Some(made)
    }
}

impl SpanRef {
    fn link(self, kind: LinkKind) -> SpanLink {
        SpanLink { trace_id: self.trace, span_id: self.id, kind }
    }
}
