//! Requests and replies → spans: who asked whom, what was done for it, and what that waited for.
//!
//! ```text
//! Recording + Timeline + who ended each wait → Spans → .spans.json, .otlp.json
//! ```
//!
//! Values in, values out. `docs/spans.md` says what a span is, in words for those who read them.

mod ends;
mod evidence;
mod exchange;
mod findings;
mod follow;
mod id;
pub mod json;
mod lanes;
mod limits;
mod model;
mod naming;
pub mod otlp;
mod pieces;
mod roots;
mod sides;

pub use evidence::Evidence;
pub use follow::find;
pub use id::{SpanId, TraceId};
pub use limits::{LeftOut, NotAShare, Share, SpanLimits};
pub use model::{LinkKind, Span, SpanKind, SpanLink, SpanStatus, Spans};
