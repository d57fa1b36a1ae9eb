//! A recording and everything that is found out about it: each part is built once, when somebody
//! asks for it.
//!
//! ```text
//! AnalysisInput   Recording ──▶ Timeline ◀── TargetSelection
//!                     └─────┬──────┘
//! Analysis                Blame ──▶ Overview ──▶ Report ──▶ Lanes
//!                           └─────▶ Spans
//! ```
//!
//! [`Blame`] borrows the recording and its timeline, so that those two have an owner of their own.

use std::{
    fmt, io,
    sync::{Arc, OnceLock},
};

use offwake_recording::{Recording, stream};

use crate::{
    blame::{Blame, BlamePart, ChainLimits, Chains},
    filter::Filter,
    markers,
    report::{
        EntryLimits, Overview, Report,
        flame::View,
        html::{LanePlan, Lanes},
    },
    requests::{BandRange, RequestAnalysis},
    selection::{SelectionError, TargetSelection},
    spans::{self, SpanInput, SpanLimits, Spans, otlp::Exporter},
    timeline::{Timeline, WaitIndex},
};

/// The bytes that a recording was read from or written as.
pub trait EncodedRecording: Send + Sync {
    /// Writes them to `out`.
    ///
    /// # Errors
    ///
    /// Those of `out`, and of whatever holds the bytes.
    fn copy_to(&self, out: &mut dyn io::Write) -> io::Result<()>;
}

impl EncodedRecording for Vec<u8> {
    fn copy_to(&self, out: &mut dyn io::Write) -> io::Result<()> {
        out.write_all(self)
    }
}

/// What an [`Analysis`] is made from.
#[derive(Default)]
pub struct AnalysisInput {
    recording: Recording,
    timeline: OnceLock<Timeline>,
    encoded: Option<Box<dyn EncodedRecording>>,
}

impl fmt::Debug for AnalysisInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let meta = &self.recording.meta;
        f.debug_struct("AnalysisInput").field("meta", meta).finish_non_exhaustive()
    }
}

impl AnalysisInput {
    /// A recording that has no bytes yet: they are encoded when an output asks for them.
    #[must_use]
    pub fn new(recording: Recording) -> Self {
        Self { recording, timeline: OnceLock::new(), encoded: None }
    }

    /// A recording with the bytes that it was read from or written as.
    #[must_use]
    pub fn with_encoded(recording: Recording, encoded: Box<dyn EncodedRecording>) -> Self {
        Self { encoded: Some(encoded), ..Self::new(recording) }
    }

    /// Makes the selected threads the target, in place of the recording's own. The recording stays as
    /// it is.
    ///
    /// # Errors
    ///
    /// If no thread is selected.
    pub fn with_target(mut self, selection: &TargetSelection) -> Result<Self, SelectionError> {
        if !selection.is_open() {
            let mut timeline = Timeline::build(&self.recording);
            timeline.set_target(selection.select(&self.recording, &timeline)?);
            self.timeline = OnceLock::from(timeline);
        }
        Ok(self)
    }

    /// The recording.
    #[must_use]
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// What every thread was doing.
    #[must_use]
    pub fn timeline(&self) -> &Timeline {
        self.timeline.get_or_init(|| Timeline::build(&self.recording))
    }

    /// Writes the recording: its own bytes where it has them, encoded anew otherwise.
    ///
    /// # Errors
    ///
    /// Those of `out`, and of whatever holds the bytes.
    pub fn write_recording(&self, out: &mut dyn io::Write) -> io::Result<()> {
        match &self.encoded {
            Some(encoded) => encoded.copy_to(out),
            None => stream::write(&self.recording, out),
        }
    }
}

/// How much of what is known files have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// What has room in a file of usable size; the least important is summed up, and counted.
    #[default]
    Bounded,
    /// Everything, whatever the size.
    Full,
}

/// What is to be found out, and how it is shown.
#[derive(Clone, Debug, Default)]
pub struct AnalysisOptions {
    /// Which waits are shown.
    pub filter: Filter,
    /// What flame graphs and folded stacks show of them.
    pub view: View,
    /// How far blame is followed.
    pub limits: ChainLimits,
    /// How far requests are followed.
    pub span_limits: SpanLimits,
    /// How much files have.
    pub extent: Extent,
}

/// Everything that outputs are made from.
pub struct Analysis<'i> {
    input: &'i AnalysisInput,
    options: AnalysisOptions,
    blame: OnceLock<Blame<'i>>,
    overview: OnceLock<Overview>,
    report: OnceLock<Report>,
    /// What the report has room for when it is built.
    limits: EntryLimits,
    lanes: OnceLock<Lanes>,
    spans: OnceLock<Spans>,
    requests: OnceLock<RequestAnalysis>,
}

impl fmt::Debug for Analysis<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { input, options, .. } = self;
        f.debug_struct("Analysis")
            .field("input", input)
            .field("options", options)
            .finish_non_exhaustive()
    }
}

impl<'i> Analysis<'i> {
    /// Nothing is built yet.
    #[must_use]
    pub fn new(input: &'i AnalysisInput, options: AnalysisOptions) -> Self {
        Self {
            input,
            options,
            blame: OnceLock::new(),
            overview: OnceLock::new(),
            report: OnceLock::new(),
            limits: EntryLimits::NONE,
            lanes: OnceLock::new(),
            spans: OnceLock::new(),
            requests: OnceLock::new(),
        }
    }

    /// The recording, its timeline and its bytes.
    #[must_use]
    pub fn input(&self) -> &'i AnalysisInput {
        self.input
    }

    /// What is to be found out.
    #[must_use]
    pub fn options(&self) -> &AnalysisOptions {
        &self.options
    }

    /// What each wait's time was spent on.
    #[must_use]
    pub fn blame(&self) -> &Blame<'i> {
        let Self { input, options, .. } = self;
        self.blame.get_or_init(|| Blame::new(input.recording(), input.timeline(), options.limits))
    }

    /// The report: with all blame, until [`Self::limit_report`] limits it.
    pub fn report(&self) -> &Report {
        self.report.get_or_init(|| self.build_report())
    }

    /// The report alone.
    #[must_use]
    pub fn into_report(mut self) -> Report {
        self.report.take().unwrap_or_else(|| self.build_report())
    }

    /// Limits the report to [`Report::MAX_HOPS`]: people are shown a summary of all of it, files have a
    /// size, unless [`Extent::Full`] is wanted.
    pub fn limit_report(&mut self) {
        if self.options.extent == Extent::Full {
            return;
        }
        self.limits = EntryLimits::OF_PICTURES;
        if let Some(report) = self.report.take() {
            self.report = OnceLock::from(report.limit_hops(self.limits.hops));
        }
    }

    /// The report without its entries: what a screen begins with.
    pub fn overview(&self) -> &Overview {
        self.overview.get_or_init(|| Overview::new(self.blame(), &self.options.filter))
    }

    fn build_report(&self) -> Report {
        self.overview().complete(self.blame(), self.limits)
    }

    /// Builds a report with the entries that a file has room for which lists them one by one.
    pub fn build_limited_report(&self) -> Report {
        self.overview().complete(self.blame(), EntryLimits::OF_LISTS)
    }

    /// The lives of the target's threads, as the page draws them. If there is no report yet, it is built
    /// of the same walk.
    pub fn lanes(&self) -> &Lanes {
        self.lanes.get_or_init(|| {
            let plan = LanePlan::new(self.blame(), &self.overview().report().threads);
            self.report.get_or_init(|| {
                let watch = |wait, parts: &[BlamePart], chains: &Chains| {
                    plan.add_parts(wait, parts, chains);
                };
                self.overview().complete_and_watch(self.blame(), self.limits, &watch)
            });
            plan.into_lanes(self.blame())
        })
    }

    /// Requests as spans.
    pub fn spans(&self) -> &Spans {
        self.spans.get_or_init(|| {
            let blame = self.blame();
            let evidence = SpanInput {
                recording: blame.recording(),
                timeline: blame.timeline(),
                wake_source: &|wait: WaitIndex| blame.wake_source(wait),
                cause: &|wait: WaitIndex| blame.cause(wait),
            };
            let mut spans =
                spans::find_spans(evidence, &self.options.filter, self.options.span_limits);
            markers::label_spans(blame.markers(), blame.timeline(), &mut spans.spans);
            spans
        })
    }

    /// The requests that the target made or served, and what they took.
    pub fn requests(&self) -> &RequestAnalysis {
        self.requests.get_or_init(|| RequestAnalysis::find(self.blame()))
    }

    /// Shows the waits of requests of this band alone, in everything that is not built yet. Returns how many requests
    /// these are.
    pub fn restrict_to_band(&mut self, band: BandRange) -> u64 {
        let (count, waits) = self.requests().waits_in_band(self.blame(), band);
        self.options.filter.requests = Some(Arc::new(waits));
        count
    }

    /// The spans, if anything has asked for them.
    #[must_use]
    pub fn built_spans(&self) -> Option<&Spans> {
        self.spans.get()
    }

    /// Spans as OpenTelemetry has them.
    #[must_use]
    pub fn otlp_exporter(&self) -> Exporter<'_> {
        let labels = self.requests().labels(self.blame());
        Exporter::new(self.input.recording(), self.input.timeline(), self.spans())
            .with_request_labels(labels)
    }
}
