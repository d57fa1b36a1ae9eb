//! Says of spans in which range their threads were.

use offwake_recording::units::{Nanos, Timestamp};

use crate::{spans::Span, timeline::Timeline};

use super::Markers;

/// Gives each span the innermost range that its thread was in at the span's middle: a server's
/// range begins after the request has come, and ends before the answer goes.
pub(crate) fn label_spans(markers: &Markers, timeline: &Timeline, spans: &mut [Span]) {
    if markers.is_empty() {
        return;
    }
    for span in spans {
        let Some(thread) = timeline.find_thread(span.tid, span.started_at) else { continue };
        let half = Nanos(span.ended_at.since(span.started_at).0 / 2);
        let middle = Timestamp(span.started_at.0 + half.0);
        span.marker = markers.path_texts(markers.path_at(thread, middle)).pop();
    }
}
