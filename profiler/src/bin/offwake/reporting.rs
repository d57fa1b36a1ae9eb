//! From a recording to the outputs that were asked for.

use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use offwake_analysis::{
    analysis::{Analysis, AnalysisInput, AnalysisOptions},
    filter::WaitCondition,
    formats::{self, OutputFormat, Written},
    report::{LedgerEntry, Report},
    requests::BandRange,
    selection::SelectionError,
    spans::otlp::ExportClock,
    text,
};
use offwake_recording::{ClosedBy, TraceId};

use crate::{
    cli::usage_error,
    console::{Progress, Terminal, is_verbose},
    otlp::Delivery,
    outcome::Outcome,
    output::{Destination, Output, on_one_line},
    report_arguments::ReportArguments,
    terminal_thread::print_error,
};

/// The outputs that were asked for, each of which can be written where it should be.
pub struct Reporting {
    outputs: Vec<Output>,
    options: AnalysisOptions,
    delivery: Option<Delivery>,
    requests: RequestDetail,
    band: Option<BandRange>,
}

/// What the summary ends with about requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestDetail {
    /// A few lines, if there are many requests.
    Summary,
    /// All that is known.
    Table,
}

impl Reporting {
    /// Checks what can be checked.
    pub fn prepare(arguments: &ReportArguments) -> anyhow::Result<Self> {
        let options = arguments
            .options()
            .unwrap_or_else(|conflict| usage_error(ErrorKind::ArgumentConflict, conflict));
        Ok(Self {
            outputs: outputs(&arguments.outputs, arguments.format)?,
            options,
            delivery: arguments.spans.delivery(),
            band: arguments.band,
            requests: if arguments.requests {
                RequestDetail::Table
            } else {
                RequestDetail::Summary
            },
        })
    }

    /// Shows the waits for a trace alone.
    pub fn show_only_trace(&mut self, trace: TraceId) {
        self.options.filter.conditions.push(WaitCondition::on_trace(trace));
    }

    /// Analyses a recording as far as every run shows it.
    pub fn analyse<'i>(&self, input: &'i AnalysisInput) -> Analysis<'i> {
        let mut analysis = Analysis::new(input, self.options.clone());
        if let Some(band) = self.band {
            analysis.restrict_to_band(band);
        }
        analysis.overview();
        analysis
    }

    /// Whether the recording itself is among the outputs.
    pub fn needs_encoded_recording(&self) -> bool {
        self.outputs.iter().any(|output| output.format.needs_encoded_recording())
    }

    /// The outputs.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// What the outputs are made with.
    pub fn options(&self) -> &AnalysisOptions {
        &self.options
    }

    /// The terminal for messages: standard output, unless an output takes that.
    pub fn terminal(&self) -> Terminal {
        let takes_standard_output =
            self.outputs.iter().any(|it| matches!(it.destination, Destination::StandardOutput));
        if takes_standard_output { Terminal::messages_on_stderr() } else { Terminal::messages() }
    }

    /// Writes the summary and every output, and sends spans.
    pub fn write(&self, mut analysis: Analysis<'_>) -> anyhow::Result<Outcome> {
        let overview = analysis.overview();
        let report = overview.report();
        if self.band.is_some()
            && let Some(reason) = analysis.requests().summary().why_none()
        {
            print_error(&format!("--band: no requests: {reason}"));
            return Ok(Outcome::NothingRecorded);
        }
        if let Some(reason) = nothing_recorded(report, overview.kept_waits()) {
            for warning in report.warnings() {
                print_error(&warning);
            }
            print_error(&format!("nothing was recorded: {reason}"));
            return Ok(Outcome::NothingRecorded);
        }
        let mut terminal = self.terminal();
        terminal.summary(if is_verbose() { analysis.report() } else { report })?;
        terminal.print(&|out| match self.requests {
            RequestDetail::Summary => analysis.requests().summary().write_summary(out),
            RequestDetail::Table => {
                writeln!(out)?;
                analysis.requests().summary().write_text(out)
            }
        })?;
        if !self.outputs.is_empty() {
            analysis.limit_report();
        }
        for output in &self.outputs {
            let progress = Progress::start("writing");
            let mut written = Written::Everything;
            output.write(|out| {
                written = output.format.write(&analysis, out)?;
                Ok(())
            })?;
            drop(progress);
            terminal.wrote(output)?;
            if let Written::Limited(what) = written {
                let name = on_one_line(&output.destination.to_string());
                print_error(&format!("{name} {what}: --full writes everything"));
            }
        }
        if let Some(warning) = analysis.built_spans().and_then(|spans| spans.left_out.warning()) {
            print_error(&warning);
        }
        if let Some(delivery) = &self.delivery {
            let exporter = analysis.otlp_exporter();
            if exporter.clock() == ExportClock::Monotonic {
                print_error("the wall's clock was not read: the spans' times are since boot");
            }
            let sent = delivery.send(&exporter)?;
            terminal.line(&format!("sent {sent} spans to {}", delivery.collector))?;
        }
        // The process ends: to free a report's hundred thousands of small pieces would take 50 ms.
        std::mem::forget(analysis);
        Ok(Outcome::Done)
    }
}

fn outputs(
    paths: &[PathBuf],
    standard_output: Option<&'static dyn OutputFormat>,
) -> anyhow::Result<Vec<Output>> {
    let output = |path: &PathBuf| {
        if path == Path::new("-") {
            let format = standard_output.unwrap_or_else(|| {
                usage_error(
                    ErrorKind::MissingRequiredArgument,
                    "`-o -` has no extension: name the format with --format",
                )
            });
            return Ok(Output { destination: Destination::StandardOutput, format });
        }
        let destination = Destination::from_path(path)?;
        Ok(Output { destination, format: formats::from_path(path)? })
    };
    paths.iter().map(output).collect()
}

/// The reason why there is nothing to show, if there is nothing. It is safe for a terminal.
pub fn nothing_recorded(report: &Report, kept_waits: u64) -> Option<String> {
    // A recording can say anything there.
    let target = text::terminal(&report.meta.target);
    if report.threads.is_empty() {
        return Some(format!("no thread of the target ({target}) was seen in the window"));
    }
    if kept_waits > 0 {
        return None;
    }
    if report.meta.closed_by == ClosedBy::Memory.name() {
        return Some("the memory for records was used up at once; raise --max-memory".to_owned());
    }
    if report.filter.left_out_ns.0 > 0 {
        return Some(format!(
            "no wait passes the filters; they left out {} of waiting",
            report.filter.left_out_ns
        ));
    }
    // A target that only computed, or was kept waiting for a CPU, has a ledger to show.
    let is_known = |ledger: &LedgerEntry| ledger.on_cpu_ns.0 > 0 || ledger.runnable_ns.0 > 0;
    if report.threads.iter().any(|thread| is_known(&thread.ledger)) {
        return None;
    }
    Some(format!(
        "{} threads of the target ({target}) were seen, and nothing is known of what they did",
        report.threads.len()
    ))
}

/// Prints why there is no target.
pub fn nothing_selected(recording: &Path, why: &SelectionError) -> Outcome {
    let name = on_one_line(&recording.display().to_string());
    print_error(&format!("nothing to report of {name}: {why}"));
    Outcome::NothingRecorded
}
