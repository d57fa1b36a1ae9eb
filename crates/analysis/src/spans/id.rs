//! Ids of spans and traces: hashes of what they are, so that the same recording gives the same ids,
//! and two excerpts of one run give the same wait the same id.

use std::fmt;

use offwake_recording::units::{Tid, Timestamp};
use serde::{Serialize, Serializer};
use twox_hash::XxHash3_128;

/// Names a trace: 16 bytes, not all of them 0
/// ([`trace.proto`](https://github.com/open-telemetry/opentelemetry-proto/blob/v1.9.0/opentelemetry/proto/trace/v1/trace.proto)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId(u128);

/// Identifies a span within its trace: 8 bytes, not all of them 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId(u64);

impl TraceId {
    /// Returns the trace that begins with a wait, identified by the boot, the thread, and when it
    /// left the CPU.
    pub(super) fn from_wait(boot_id: &str, tid: Tid, off: Timestamp) -> Self {
        let numbers = [u64::from(tid.0), off.0].map(u64::to_le_bytes).concat();
        Self::hash([b"wait".as_slice(), boot_id.as_bytes(), &numbers].concat())
    }

    /// Returns the trace of the activity that a span is linked with.
    pub(super) fn for_link(trace: Self, span: SpanId) -> Self {
        Self::hash([b"link".as_slice(), &trace.0.to_le_bytes(), &span.0.to_le_bytes()].concat())
    }

    /// The trace of a program's own.
    pub(super) fn from_program(id: offwake_recording::TraceId) -> Self {
        Self(u128::from_be_bytes(id.0))
    }

    fn hash(bytes: Vec<u8>) -> Self {
        Self(XxHash3_128::oneshot(&bytes).max(1))
    }

    /// The 56 bits by which traces are sampled: those that W3C calls random
    /// (<https://www.w3.org/TR/trace-context-2/#randomness-of-trace-id>).
    pub(super) fn randomness(self) -> u64 {
        (self.0 & ((1 << 56) - 1)) as u64
    }
}

impl SpanId {
    /// The span of a program's own.
    pub(super) fn from_program(id: offwake_recording::SpanId) -> Self {
        Self(u64::from_be_bytes(id.0))
    }

    /// Returns the child with this number of a span; number 0 without a parent is the trace's root.
    pub(super) fn for_child(trace: TraceId, parent: Option<Self>, number: usize) -> Self {
        let parent = parent.map_or(0, |parent| parent.0);
        let numbers = [parent, number as u64].map(u64::to_le_bytes).concat();
        let hash = XxHash3_128::oneshot(&[trace.0.to_le_bytes().as_slice(), &numbers].concat());
        Self((hash as u64).max(1))
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// 16 hexadecimal digits.
impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for TraceId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for SpanId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
