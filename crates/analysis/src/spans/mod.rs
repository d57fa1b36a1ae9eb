//! Requests and replies → spans: who asked whom, what was done for it, and what that waited for.
//!
//! ```text
//! Recording + Timeline + who ended each wait → Spans → .spans.json, .otlp.json
//! ```
//!
//! Values in, values out. `docs/spans.md` says what a span is, in words for those who read them.

mod asked;
mod builder;
mod exchange;
mod exits;
mod findings;
mod id;
mod input;
pub mod json;
mod limits;
mod model;
mod names;
pub mod otlp;
mod pieces;
mod roots;
mod thread_waits;

pub(crate) use asked::{
    AskedRequest, AskedRequests, Hands, LoopAnswer, RequestStart, Roles, find_asked_requests,
    waits_for_several,
};
pub use builder::find_spans;
pub use id::{SpanId, TraceId};
pub use input::SpanInput;
pub use limits::{InvalidSampleShare, LeftOut, SampleShare, SpanLimits};
pub use model::{LinkKind, Span, SpanKind, SpanLink, SpanStatus, Spans};
