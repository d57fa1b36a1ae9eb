//! How requests become spans, and where they are sent.

use std::time::Duration;

use clap::Args;
use offwake_analysis::spans::{SampleShare, SpanLimits};
use offwake_recording::units::Nanos;

use crate::{
    otlp::{Collector, Delivery},
    values::{parse_collector, parse_duration, parse_wait},
};

/// Requests as spans.
#[derive(Debug, Args)]
#[command(next_help_heading = "Spans")]
pub struct SpanArguments {
    /// Collector to send spans to, such as Jaeger or Tempo: http://HOST:PORT[/v1/traces]
    #[arg(long, value_name = "URL", value_parser = parse_collector)]
    pub otlp: Option<Collector>,

    /// How long the collector may take for one batch of spans
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "10s", requires = "otlp")]
    pub otlp_timeout: Duration,

    /// Spans per batch
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u16).range(1..), requires = "otlp")]
    pub otlp_batch: u16,

    /// How many hops to follow a request
    #[arg(long, value_name = "N", default_value_t = SpanLimits::default().depth)]
    pub span_depth: u16,

    /// Longest wait to follow
    #[arg(long, value_name = "TIME", value_parser = parse_wait, default_value = "60s")]
    pub span_lifetime: Nanos,

    /// Most children that one span can have
    #[arg(long, value_name = "N", default_value_t = SpanLimits::default().fan_out)]
    pub span_fan_out: u32,

    /// Most spans in all
    #[arg(long, value_name = "N", default_value_t = SpanLimits::default().max_spans)]
    pub max_spans: u32,

    /// Shortest wait that becomes a span: 1ms, or 50 for 50 us. A wait for the answer to a request
    /// always becomes one
    #[arg(long, value_name = "TIME", value_parser = parse_wait, default_value = "10us")]
    pub span_min: Nanos,

    /// Share of the traces to keep: 0.1, or 1/10
    #[arg(long, value_name = "SHARE", default_value_t = SampleShare::ALL)]
    pub span_sample: SampleShare,
}

impl SpanArguments {
    /// How spans are sent, if they are to be.
    pub fn delivery(&self) -> Option<Delivery> {
        let (batch, timeout) = (usize::from(self.otlp_batch), self.otlp_timeout);
        self.otlp.clone().map(|collector| Delivery { collector, batch, timeout })
    }

    /// How far requests are followed.
    pub fn limits(&self) -> SpanLimits {
        SpanLimits {
            depth: self.span_depth,
            lifetime: self.span_lifetime,
            fan_out: self.span_fan_out,
            max_spans: self.max_spans,
            shortest: self.span_min,
            sample: self.span_sample,
        }
    }
}
