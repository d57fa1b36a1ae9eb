//! How far requests are followed, and what that leaves out.

use std::{fmt, str::FromStr};

use offwake_recording::units::Nanos;
use serde::{Serialize, Serializer};

use super::TraceId;

/// How far requests are followed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SpanLimits {
    /// Hops from the first wait.
    pub depth: u16,
    /// A longer wait is shown, and not followed.
    #[serde(rename = "lifetime_ns")]
    pub lifetime: Nanos,
    /// Children of one span.
    pub fan_out: u32,
    /// Spans in all.
    pub max_spans: u32,
    /// The shortest wait that is a span of its own where nobody was asked for anything.
    #[serde(rename = "min_ns")]
    pub shortest: Nanos,
    /// The share of the traces that is kept.
    pub sample: SampleShare,
}

impl Default for SpanLimits {
    fn default() -> Self {
        Self {
            depth: 16,
            lifetime: Nanos(60_000_000_000),
            fan_out: 1_000,
            max_spans: 100_000,
            shortest: Nanos(10_000),
            sample: SampleShare::ALL,
        }
    }
}

/// A share of all traces, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleShare(f64);

impl SampleShare {
    /// All traces.
    pub const ALL: Self = Self(1.0);

    /// Returns whether a trace belongs to the share: whether the random part of its id reaches the
    /// threshold
    /// (<https://opentelemetry.io/docs/specs/otel/trace/tracestate-probability-sampling/>).
    pub(super) fn includes(self, trace: TraceId) -> bool {
        const ALL: f64 = (1_u64 << 56) as f64;
        trace.randomness() as f64 >= (1.0 - self.0) * ALL
    }
}

impl fmt::Display for SampleShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for SampleShare {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

/// A text that is no share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a share like 1, 0.1 or 1/10")]
pub struct InvalidSampleShare(String);

/// `0.1` or `1/10`.
impl FromStr for SampleShare {
    type Err = InvalidSampleShare;

    fn from_str(text: &str) -> Result<Self, InvalidSampleShare> {
        let number = |text: &str| text.parse::<f64>().ok();
        let share = match text.split_once('/') {
            Some((part, whole)) => number(part).zip(number(whole)).map(|(part, all)| part / all),
            None => number(text),
        };
        // NaN lies in no range.
        (share.filter(|share| (0.0..=1.0).contains(share)).map(Self))
            .ok_or_else(|| InvalidSampleShare(text.to_owned()))
    }
}

/// Waits that have no span of their own, or were not followed, by reason. A wait that lies in two
/// spans counts in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Shown, and not followed: too many hops deep.
    pub depth: u64,
    /// Shown, and not followed: too long.
    pub lifetime: u64,
    /// Beyond the children that a span may have.
    pub fan_out: u64,
    /// Found when there were as many spans as there may be.
    pub max_spans: u64,
    /// Waits that could begin a trace, but are too short and no requests.
    pub short: u64,
    /// Waits that begin a trace that the sample does not include.
    pub sampled: u64,
    /// Shown, and not followed: what the other thread did was not recorded.
    pub not_recorded: u64,
    /// Waits of a server for its next request.
    pub idle: u64,
    /// Waits that begin a trace, and that the report's filter left out.
    pub filtered: u64,
}

impl LeftOut {
    /// Returns the counters that are not 0, each with its key.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let Self {
            depth,
            lifetime,
            fan_out,
            max_spans,
            short,
            sampled,
            not_recorded,
            idle,
            filtered,
        } = *self;
        [
            ("depth", depth),
            ("lifetime", lifetime),
            ("fan_out", fan_out),
            ("max_spans", max_spans),
            ("short", short),
            ("sampled", sampled),
            ("not_recorded", not_recorded),
            ("idle", idle),
            ("filtered", filtered),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
    }

    /// Describes what a limit left out in one line; none if no limit was reached.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let limits = [
            (self.depth, "--span-depth"),
            (self.lifetime, "--span-lifetime"),
            (self.fan_out, "--span-fan-out"),
            (self.max_spans, "--max-spans"),
        ];
        let reached: Vec<String> = (limits.into_iter())
            .filter(|(count, _)| *count > 0)
            .map(|(count, option)| format!("{count} ({option})"))
            .collect();
        (!reached.is_empty()).then(|| {
            format!("waits that spans were not made of or not followed: {}", reached.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::SampleShare;

    #[test]
    fn shares_are_written_as_numbers_or_fractions() {
        for (text, share) in [("1", 1.0), ("0", 0.0), ("0.25", 0.25), ("1/10", 0.1), ("1/1", 1.0)] {
            assert_eq!(text.parse(), Ok(SampleShare(share)), "{text}");
        }
        for text in ["", "2", "-1", "x", "1/0", "0/0", "3/2", "NaN", "inf", "1/", "50%"] {
            text.parse::<SampleShare>().unwrap_err();
        }
    }
}
