//! From a recording's bytes to the outputs that were asked for.

use std::path::Path;

use clap::CommandFactory as _;
use offwake::{
    blame::{Blame, Limits},
    export::{self, Export, Table},
    perfetto::{self, Trace},
    recording::{ClosedBy, Recording},
    report::{BlameGroup, Filter, IdleWaits, Kinds, Report, flame::View, html},
    spans::{
        self, Evidence, SpanLimits, Spans,
        otlp::{ExportClock, Exporter},
    },
    timeline::{Timeline, WaitIndex},
};

use crate::{
    Outcome,
    cli::{Cli, Hide, ReportArguments},
    console::{Progress, Terminal},
    formats::{OutputFormat, SpanFormat},
    otlp::Delivery,
    output::{Content, Destination, Output, Unfinished},
};

/// What is to be shown, and where: found to be possible.
pub struct Reporting {
    outputs: Vec<Output>,
    filter: Filter,
    view: View,
    limits: Limits,
    span_limits: SpanLimits,
    delivery: Option<Delivery>,
}

/// A recording and what was found in it.
pub struct Analysis {
    /// The recording.
    pub recording: Recording,
    timeline: Timeline,
    report: Report,
    /// Drawn only where they are asked for.
    lanes: Option<html::Lanes>,
    /// Found only where they are asked for.
    spans: Option<Spans>,
}

impl Analysis {
    fn write_waits(
        &self,
        reporting: &Reporting,
        out: &mut (dyn std::io::Write + Send),
    ) -> std::io::Result<()> {
        let blame = Blame::new(&self.recording, &self.timeline, reporting.limits);
        let export = Export::new(&blame);
        let waits = export.waits(&reporting.filter);
        export::parquet::write(&export, Table::Waits, &waits, out).map(drop)
    }

    fn write_html(&self, out: &mut dyn std::io::Write) -> std::io::Result<()> {
        match &self.lanes {
            Some(lanes) => html::write(&self.report, lanes, out),
            None => Ok(()),
        }
    }

    fn write_perfetto(
        &self,
        reporting: &Reporting,
        out: &mut dyn std::io::Write,
    ) -> std::io::Result<()> {
        let Some(spans) = &self.spans else { return Ok(()) };
        let blame = Blame::new(&self.recording, &self.timeline, reporting.limits);
        perfetto::write(Trace { blame: &blame, filter: &reporting.filter, spans }, out)
    }

    fn write_spans(&self, format: SpanFormat, out: &mut dyn std::io::Write) -> std::io::Result<()> {
        match (&self.spans, format) {
            (Some(spans), SpanFormat::Json) => spans::json::write(&self.recording, spans, out),
            (Some(spans), SpanFormat::Otlp) => self.exporter(spans).write(out),
            (None, _) => Ok(()),
        }
    }

    fn exporter<'a>(&'a self, spans: &'a Spans) -> Exporter<'a> {
        Exporter::new(&self.recording, &self.timeline, spans)
    }
}

impl Reporting {
    /// Checks what can be checked.
    pub fn prepare(arguments: &ReportArguments) -> anyhow::Result<Self> {
        Ok(Self {
            outputs: outputs(arguments)?,
            filter: filter(arguments),
            view: arguments.pictures.view(),
            limits: limits(arguments),
            span_limits: arguments.spans.limits(),
            delivery: arguments.spans.delivery(),
        })
    }

    /// Finds out all that is to be found.
    pub fn analyse(&self, recording: Recording) -> Analysis {
        let timeline = Timeline::build(&recording);
        let blame = Blame::new(&recording, &timeline, self.limits);
        let report = Report::new(&blame, &self.filter);
        let lanes = self.wants_html().then(|| html::Lanes::new(&blame, &report));
        let spans = self.wants_spans().then(|| {
            let evidence = Evidence {
                recording: &recording,
                timeline: &timeline,
                ender: &|wait: WaitIndex| blame.ender(wait),
                cause: &|wait: WaitIndex| blame.cause(wait),
            };
            spans::find(evidence, &self.filter, self.span_limits)
        });
        Analysis { recording, timeline, report, lanes, spans }
    }

    fn wants_html(&self) -> bool {
        self.outputs.iter().any(|output| output.format == OutputFormat::Html)
    }

    /// Whether the recording itself is among the outputs.
    pub fn wants_recording(&self) -> bool {
        self.outputs.iter().any(|output| output.format == OutputFormat::Recording)
    }

    /// The report alone.
    pub fn report(&self, recording: &Recording) -> Report {
        let timeline = Timeline::build(recording);
        Report::new(&Blame::new(recording, &timeline, self.limits), &self.filter)
    }

    /// What is written, and where.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// How flame graphs look at it.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Where people read: standard output, unless it is taken.
    pub fn terminal(&self) -> Terminal {
        let takes_standard_output =
            self.outputs.iter().any(|output| output.destination == Destination::StandardOutput);
        if takes_standard_output { Terminal::remarks_aside() } else { Terminal::remarks() }
    }

    fn wants_spans(&self) -> bool {
        let is_spans = |output: &Output| {
            matches!(output.format, OutputFormat::Spans(_) | OutputFormat::Perfetto)
        };
        self.delivery.is_some() || self.outputs.iter().any(is_spans)
    }

    /// Writes the summary and every output. `bytes` writes those of the recording itself.
    pub fn write(
        &self,
        analysis: Analysis,
        bytes: &dyn Fn(&Recording, &mut dyn std::io::Write) -> std::io::Result<()>,
        unfinished: &Unfinished,
    ) -> anyhow::Result<Outcome> {
        let report = &analysis.report;
        if let Some(reason) = nothing_recorded(report) {
            for warning in report.warnings() {
                eprintln!("offwake: {warning}");
            }
            eprintln!("offwake: nothing was recorded: {reason}");
            return Ok(Outcome::NothingRecorded);
        }
        let mut terminal = self.terminal();
        terminal.summary(report)?;
        let analysis = Analysis { report: analysis.report.within(Report::ROOM), ..analysis };
        let report = &analysis.report;
        let waits = |out: &mut (dyn std::io::Write + Send)| analysis.write_waits(self, out);
        let html = |out: &mut dyn std::io::Write| analysis.write_html(out);
        let spans = |format, out: &mut dyn std::io::Write| analysis.write_spans(format, out);
        let perfetto = |out: &mut dyn std::io::Write| analysis.write_perfetto(self, out);
        let recording = |out: &mut dyn std::io::Write| bytes(&analysis.recording, out);
        for output in &self.outputs {
            let content = Content {
                report,
                view: &self.view,
                html: &html,
                waits: &waits,
                spans: &spans,
                perfetto: &perfetto,
                recording: &recording,
            };
            let progress = Progress::of("writing");
            output.write(&content, unfinished)?;
            drop(progress);
            if let Destination::File(path) = &output.destination {
                terminal.line(&format!("wrote {}", path.display()))?;
            }
        }
        if let Some(warning) = analysis.spans.as_ref().and_then(|spans| spans.left_out.warning()) {
            eprintln!("offwake: {warning}");
        }
        if let (Some(delivery), Some(spans)) = (&self.delivery, &analysis.spans) {
            let exporter = analysis.exporter(spans);
            if exporter.clock() == ExportClock::Monotonic {
                eprintln!(
                    "offwake: the wall's clock was not read: the spans' times are since boot"
                );
            }
            let sent = delivery.send(&exporter)?;
            terminal.line(&format!("sent {sent} spans to {}", delivery.collector))?;
        }
        Ok(Outcome::Done)
    }
}

fn outputs(arguments: &ReportArguments) -> anyhow::Result<Vec<Output>> {
    let mut outputs = Vec::new();
    for path in &arguments.outputs {
        outputs.push(if path == Path::new("-") {
            let Some(format) = arguments.format else {
                Cli::command()
                    .error(
                        clap::error::ErrorKind::MissingRequiredArgument,
                        "`-o -` has no extension: name the format with --format",
                    )
                    .exit()
            };
            Output { destination: Destination::StandardOutput, format }
        } else {
            Output { destination: Destination::of(path)?, format: OutputFormat::from_path(path)? }
        });
    }
    Ok(outputs)
}

fn filter(arguments: &ReportArguments) -> Filter {
    Filter {
        min: arguments.min_wait,
        max: arguments.max_wait,
        kinds: if arguments.user_only {
            Kinds::User
        } else if arguments.kernel_only {
            Kinds::Kernel
        } else {
            Kinds::All
        },
        states: arguments.state.clone().map(|states| states.0),
        idle: if arguments.hide.contains(&Hide::Idle) {
            IdleWaits::Hidden
        } else {
            IdleWaits::Shown
        },
        hidden: (arguments.hide.iter())
            .filter_map(|hide| match hide {
                Hide::Idle => None,
                Hide::External => Some(BlameGroup::External),
                Hide::Unattributed => Some(BlameGroup::Unattributed),
            })
            .collect(),
    }
}

fn limits(arguments: &ReportArguments) -> Limits {
    Limits {
        depth: arguments.max_depth,
        fan_out: arguments.max_fan_out,
        nodes: arguments.max_nodes,
    }
}

/// Why there is nothing to show, if there is not.
pub fn nothing_recorded(report: &Report) -> Option<String> {
    let target = &report.meta.target;
    if report.threads.is_empty() {
        return Some(format!("no thread of the target ({target}) was seen in the window"));
    }
    if !report.waits.is_empty() {
        return None;
    }
    if report.meta.closed_by == ClosedBy::Memory.name() {
        return Some("the memory for records was used up at once; raise --max-memory".to_owned());
    }
    Some(if report.filter.left_out_ns.0 > 0 {
        format!(
            "no wait passes the filters; they left out {} of waiting",
            report.filter.left_out_ns
        )
    } else {
        format!(
            "{} threads of the target ({target}) were seen, and none of them waited",
            report.threads.len()
        )
    })
}
