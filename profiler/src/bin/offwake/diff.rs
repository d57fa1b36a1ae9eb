//! `offwake report --diff` and `--diff-bands`: two recordings compared, or two bands of requests of one.

use std::path::Path;

use clap::error::ErrorKind;
use offwake_analysis::{
    analysis::{Analysis, AnalysisInput, Extent},
    formats::DiffFormat,
    report::{
        Report, diff,
        diff::{Diff, RatePer},
    },
    requests::BandRange,
    selection::SelectionError,
};

use crate::{
    cli::{ReportCommand, usage_error},
    input::{OpenInput, drop_rights},
    outcome::Outcome,
    output::Output,
    reporting::{Reporting, nothing_recorded, nothing_selected},
    terminal_thread::print_error,
};

/// Compares two recordings.
pub fn run(
    arguments: &ReportCommand,
    later: &Path,
    reporting: &Reporting,
) -> anyhow::Result<Outcome> {
    let outputs = comparable_outputs(reporting, "--diff");
    if later == Path::new("-") && arguments.recording == later {
        usage_error(
            ErrorKind::ArgumentConflict,
            "standard input holds one recording: give the other one as a file",
        );
    }
    let selection = arguments.selection.selection();
    let (before, after) = (OpenInput::open(&arguments.recording)?, OpenInput::open(later)?);
    drop_rights();
    let report = |input: OpenInput| -> anyhow::Result<Result<Report, SelectionError>> {
        let mut recording = input.fetch(arguments.max_memory)?.read(arguments.max_memory)?;
        if !arguments.names.lines {
            recording.stacks.leave_out_lines_of_files();
        }
        Ok(AnalysisInput::new(recording)
            .with_target(&selection)
            .map(|input| Analysis::new(&input, reporting.options().clone()).into_report()))
    };
    let (before, after) = match (report(before)?, report(after)?) {
        (Ok(before), Ok(after)) => (before, after),
        (Err(why), _) => return Ok(nothing_selected(&arguments.recording, &why)),
        (_, Err(why)) => return Ok(nothing_selected(later, &why)),
    };
    let reason = |report: &Report| nothing_recorded(report, report.waits.len() as u64);
    if let (Some(_), Some(reason)) = (reason(&before), reason(&after)) {
        print_error(&format!("nothing was recorded: {reason}"));
        return Ok(Outcome::NothingRecorded);
    }
    write(reporting, (before, after), RatePer::Second, &outputs)
}

/// Compares two bands of requests of a recording.
pub fn run_bands(
    input: &AnalysisInput,
    [before, after]: [BandRange; 2],
    reporting: &Reporting,
) -> anyhow::Result<Outcome> {
    let outputs = comparable_outputs(reporting, "--diff-bands");
    let report = |band| {
        let mut analysis = Analysis::new(input, reporting.options().clone());
        let requests = analysis.restrict_to_band(band);
        (requests, analysis)
    };
    let ((fast, before), (slow, after)) = (report(before), report(after));
    if let Some(reason) = before.requests().summary().why_none() {
        print_error(&format!("--diff-bands: no requests: {reason}"));
        return Ok(Outcome::NothingRecorded);
    }
    let per = RatePer::Request { before: fast, after: slow };
    write(reporting, (before.into_report(), after.into_report()), per, &outputs)
}

/// Returns the outputs, all of which can be of a comparison.
fn comparable_outputs<'r>(
    reporting: &'r Reporting,
    option: &str,
) -> Vec<(&'r Output, &'r dyn DiffFormat)> {
    let comparable = |output: &'r Output| Some((output, output.format.as_diff_format()?));
    let outputs = reporting.outputs().iter().map(comparable).collect::<Option<Vec<_>>>();
    outputs.unwrap_or_else(|| {
        usage_error(ErrorKind::ArgumentConflict, &format!("{option} writes .svg and .folded alone"))
    })
}

fn write(
    reporting: &Reporting,
    (before, after): (Report, Report),
    per: RatePer,
    outputs: &[(&Output, &dyn DiffFormat)],
) -> anyhow::Result<Outcome> {
    let diff = Diff { before: &before, after: &after, per };
    let mut terminal = reporting.terminal();
    terminal.print(&|out| diff::summary::write(&diff, out))?;
    let (before, after) = match reporting.options().extent {
        Extent::Full => (before, after),
        Extent::Bounded => {
            (before.limit_hops(Report::MAX_HOPS), after.limit_hops(Report::MAX_HOPS))
        }
    };
    let diff = Diff { before: &before, after: &after, per };
    let view = &reporting.options().view;
    for (output, format) in outputs {
        output.write(|out| format.write_diff(&diff, view, out))?;
        terminal.wrote(output)?;
    }
    Ok(Outcome::Done)
}
