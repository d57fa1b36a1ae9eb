//! `offwake report`: every output from a recording, without root.

use offwake::symbols::{self, NameSources, RecordedIn, Resymbolized};
use offwake_analysis::analysis::AnalysisInput;
use offwake_recording::Recording;

use crate::{
    cli::ReportCommand,
    console::Progress,
    diff,
    input::{OpenInput, drop_rights},
    name_arguments::print_fetched,
    outcome::Outcome,
    reporting::{Reporting, nothing_selected},
    terminal_thread::print_error,
};

/// Writes every output from a recording.
pub fn run(arguments: &ReportCommand) -> anyhow::Result<Outcome> {
    let mut reporting = Reporting::prepare(&arguments.report)?;
    if let Some(trace) = arguments.selection.trace {
        reporting.show_only_trace(trace);
    }
    let names = arguments.names.sources()?;
    if let Some(later) = &arguments.diff {
        return diff::run(arguments, later, &reporting);
    }
    let input = OpenInput::open(&arguments.recording)?;
    drop_rights();
    let input = input.fetch(arguments.max_memory)?;
    let progress = Progress::start("reading");
    let mut recording = input.read(arguments.max_memory)?;
    if arguments.names.resymbolize {
        progress.set_message("naming frames");
        resymbolize(&mut recording, &names, &progress);
        print_fetched(&names);
    }
    if !arguments.names.lines {
        recording.stacks.leave_out_lines_of_files();
    }
    progress.set_message("finding out who was waited for");
    let input = if arguments.names.resymbolize {
        AnalysisInput::new(recording)
    } else {
        AnalysisInput::with_encoded(recording, Box::new(input))
    };
    let input = match input.with_target(&arguments.selection.selection()) {
        Ok(input) => input,
        Err(why) => {
            drop(progress);
            return Ok(nothing_selected(&arguments.recording, &why));
        }
    };
    if let Some(bands) = &arguments.diff_bands {
        drop(progress);
        return diff::run_bands(&input, bands.0, &reporting);
    }
    let analysis = reporting.analyse(&input);
    drop(progress);
    reporting.write(analysis)
}

/// Names all frames again. Prints on standard error what came of it: what is missing there is
/// missing in the report.
fn resymbolize(recording: &mut Recording, sources: &NameSources, progress: &Progress) {
    let this_boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let recorded_in = match this_boot {
        Ok(boot_id) if boot_id.trim() == recording.meta.boot_id => RecordedIn::ThisBoot,
        _ => RecordedIn::AnotherBoot,
    };
    let table = &mut recording.stacks;
    let done = symbols::resymbolize(table, sources, recorded_in, &mut |done, all| {
        progress.set_position(done, all)
    });
    recording.stacks.trim_tracing_frames();
    let Resymbolized {
        modules_found,
        modules_without_build_id,
        modules_without_file,
        modules_of_another_build,
        modules_without_code,
        kernel_was_booted_since,
        frames_named,
        diagnostics,
    } = done;
    recording.loss.add_diagnostics(&diagnostics);
    print_error(&format!("named {frames_named} frames of {modules_found} modules again"));
    let unnamed = [
        (modules_without_file, "no file was found"),
        (modules_of_another_build, "there are only files of another build"),
        (
            modules_without_code,
            "there is a debug file that needs the file it was made from beside it",
        ),
        (modules_without_build_id, "no build id was recorded"),
    ];
    for (count, why) in unnamed.into_iter().filter(|(count, _)| *count > 0) {
        print_error(&format!("{count} modules keep their names: {why}"));
    }
    if kernel_was_booted_since {
        print_error("the kernel's names stay: it was booted since, and lies elsewhere now");
    }
}
