//! What people are shown beside the outputs: messages, colours, and the progress of a long job.

use std::{
    io::{self, IsTerminal as _, Write as _},
    sync::OnceLock,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::{ArgAction, Args};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use offwake_analysis::{
    report::{Report, summary},
    text,
};

use crate::output::{Destination, Output, ignore_broken_pipe};

/// How much is printed, and in which colours: for every command.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Terminal")]
pub struct ConsoleArguments {
    /// Print only what failed or is missing: no summary, no progress
    #[arg(short, long, global = true)]
    quiet: bool,

    /// Print everything: each thread's ledger and waits, containers, losses, and what recording
    /// cost. While recording, -vv also logs what the loader and the BPF programs report
    #[arg(short, long, global = true, action = ArgAction::Count, conflicts_with = "quiet")]
    verbose: u8,

    #[command(flatten)]
    color: colorchoice_clap::Color,
}

/// Whether more is printed than what failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verbosity {
    Normal,
    Quiet,
    Verbose,
    /// As [`Self::Verbose`], with the log for those who look for a fault in offwake itself.
    Logging,
}

/// Set once, before anything is printed.
static VERBOSITY: OnceLock<Verbosity> = OnceLock::new();

impl ConsoleArguments {
    /// Makes them hold for the rest of the run.
    pub fn apply(self) {
        self.color.write_global();
        VERBOSITY.get_or_init(|| match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (false, 0) => Verbosity::Normal,
            (false, 1) => Verbosity::Verbose,
            (false, _) => Verbosity::Logging,
        });
    }
}

fn is_quiet() -> bool {
    VERBOSITY.get() == Some(&Verbosity::Quiet)
}

/// Returns whether everything is to be said.
pub fn is_verbose() -> bool {
    matches!(VERBOSITY.get(), Some(Verbosity::Verbose | Verbosity::Logging))
}

/// Returns whether the log is to be printed.
pub fn is_logging() -> bool {
    VERBOSITY.get() == Some(&Verbosity::Logging)
}

/// Lines for people: names in them come from other programs and may hold control characters, which
/// are the report's to escape. Colours go to terminals alone, as `--color` and `NO_COLOR` have it.
pub struct Terminal {
    out: Box<dyn io::Write>,
}

impl Terminal {
    /// Standard output, for what was asked for.
    pub fn standard_output() -> Self {
        Self { out: Box::new(anstream::stdout()) }
    }

    /// Standard output, or nothing with `--quiet`.
    pub fn messages() -> Self {
        if is_quiet() { Self { out: Box::new(io::sink()) } } else { Self::standard_output() }
    }

    /// Standard error, or nothing with `--quiet`: where an output takes standard output.
    pub fn messages_on_stderr() -> Self {
        if is_quiet() {
            Self { out: Box::new(io::sink()) }
        } else {
            Self { out: Box::new(anstream::stderr()) }
        }
    }

    /// Prints one line.
    pub fn line(&mut self, text: &str) -> anyhow::Result<()> {
        ignore_broken_pipe(writeln!(self.out, "{text}")).context("cannot write to standard output")
    }

    /// Prints that an output was written, if that made a file.
    pub fn wrote(&mut self, output: &Output) -> anyhow::Result<()> {
        match &output.destination {
            Destination::File(path) => self.line(&format!("wrote {}", path.display())),
            Destination::Special { .. } | Destination::StandardOutput => Ok(()),
        }
    }

    /// Prints what holds the target up, and everything else with `--verbose`.
    pub fn summary(&mut self, report: &Report) -> anyhow::Result<()> {
        self.print(&|out| {
            summary::write_in_colors(report, out)?;
            if is_verbose() {
                writeln!(out)?;
                summary::write_details_in_colors(report, out)?;
            }
            Ok(())
        })
    }

    /// Prints what `render` writes.
    pub fn print(
        &mut self,
        render: &dyn Fn(&mut dyn io::Write) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let written = render(&mut self.out);
        ignore_broken_pipe(written.and_then(|()| self.out.flush()))
            .context("cannot write to standard output")
    }
}

/// A line on standard error that tells what is being done, where that is a terminal. Dropping it
/// removes the line.
pub struct Progress(ProgressBar);

/// Time between two drawings of the line.
const TICK_INTERVAL: Duration = Duration::from_millis(200);

impl Progress {
    /// Begins a job of unknown length.
    pub fn start(what: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, draw_target());
        bar.enable_steady_tick(TICK_INTERVAL);
        let progress = Self(bar);
        progress.set_message(what);
        progress
    }

    /// Begins a recording.
    pub fn start_recording(what: &str, duration: Option<Duration>) -> RecordingProgress {
        let bar = ProgressBar::with_draw_target(duration.map(millis), draw_target());
        let template = match duration {
            Some(_) => "{msg}  {bar:30} {elapsed}; Ctrl-C ends it sooner",
            None => "{spinner} {msg}  {elapsed}; Ctrl-C ends it",
        };
        // The templates are constants that the tests have drawn.
        bar.set_style(
            ProgressStyle::with_template(template)
                .unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        // The names of containers are in it.
        bar.set_message(format!("Recording {}", text::terminal(what)));
        RecordingProgress { bar: Self(bar), begun: Instant::now() }
    }

    /// Shows what is done from here on.
    pub fn set_message(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    /// Shows how much of the job is done.
    pub fn set_position(&self, done: usize, all: usize) {
        self.0.set_length(all as u64);
        self.0.set_position(done as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// The progress of a recording.
pub struct RecordingProgress {
    bar: Progress,
    begun: Instant,
}

impl RecordingProgress {
    /// Draws the time that has passed.
    pub fn tick(&self) {
        self.bar.0.set_position(millis(self.begun.elapsed()));
        self.bar.0.tick();
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn draw_target() -> ProgressDrawTarget {
    if is_quiet() || !io::stderr().is_terminal() {
        return ProgressDrawTarget::hidden();
    }
    ProgressDrawTarget::stderr()
}
