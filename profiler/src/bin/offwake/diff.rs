//! `offwake report --diff`: two recordings compared.

use std::path::Path;

use clap::CommandFactory as _;
use offwake::report::{Format, Report, diff, diff::Diff, svg};

use crate::{
    Outcome,
    cli::{Cli, ReportCommand},
    formats::OutputFormat,
    input::Input,
    output::{Destination, Unfinished},
    reporting::{Reporting, nothing_recorded},
};

/// Compares.
pub fn run(
    arguments: &ReportCommand,
    later: &Path,
    reporting: &Reporting,
) -> anyhow::Result<Outcome> {
    let comparable = [OutputFormat::Report(Format::Svg), OutputFormat::Report(Format::Folded)];
    if reporting.outputs().iter().any(|output| !comparable.contains(&output.format)) {
        usage("--diff writes .svg and .folded alone");
    }
    if later == Path::new("-") && arguments.recording == later {
        usage("standard input holds one recording: give the other one as a file");
    }
    let report = |path: &Path| -> anyhow::Result<Report> {
        let mut recording = Input::open(path, arguments.max_memory)?.read(arguments.max_memory)?;
        if !arguments.names.lines {
            recording.stacks.leave_out_lines_of_files();
        }
        Ok(reporting.report(&recording))
    };
    let (before, after) = (report(&arguments.recording)?, report(later)?);
    if let (Some(_), Some(reason)) = (nothing_recorded(&before), nothing_recorded(&after)) {
        eprintln!("offwake: nothing was recorded: {reason}");
        return Ok(Outcome::NothingRecorded);
    }
    let diff = Diff { before: &before, after: &after };
    let mut terminal = reporting.terminal();
    terminal.print(&|out| diff::summary::write(&diff, out))?;
    let (before, after) = (before.within(Report::ROOM), after.within(Report::ROOM));
    let diff = Diff { before: &before, after: &after };
    for output in reporting.outputs() {
        output.write_with(
            &|mut out| match output.format {
                OutputFormat::Report(Format::Svg) => {
                    svg::write_diff(&diff, reporting.view(), &mut out)
                }
                _ => diff.write_folded(reporting.view(), &mut out),
            },
            &Unfinished::default(),
        )?;
        if let Destination::File(path) = &output.destination {
            terminal.line(&format!("wrote {}", path.display()))?;
        }
    }
    Ok(Outcome::Done)
}

fn usage(wrong: &str) -> ! {
    Cli::command().error(clap::error::ErrorKind::ArgumentConflict, wrong).exit()
}
