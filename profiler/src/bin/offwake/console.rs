//! What is said to people beside the outputs: remarks, colours, and how far a long job is.

use std::{
    io::{self, IsTerminal as _, Write as _},
    sync::OnceLock,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use offwake::report::{Report, summary};

use crate::output::forgive_closed;

/// How much is said, and in which colours: for every command.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Terminal")]
pub struct ConsoleArguments {
    /// Say nothing but what failed or is missing: no summary, no progress
    #[arg(short, long, global = true)]
    quiet: bool,

    #[command(flatten)]
    color: colorchoice_clap::Color,
}

/// Whether more is said than what failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Talk {
    Usual,
    Quiet,
}

/// Set once, before anything is said.
static TALK: OnceLock<Talk> = OnceLock::new();

impl ConsoleArguments {
    /// Has them hold for the rest of the run.
    pub fn settle(self) {
        self.color.write_global();
        TALK.get_or_init(|| if self.quiet { Talk::Quiet } else { Talk::Usual });
    }
}

fn is_quiet() -> bool {
    TALK.get() == Some(&Talk::Quiet)
}

/// Lines for people: names in them come from other programs and may hold control characters, which
/// are the report's to escape. Colours go to terminals alone, as `--color` and `NO_COLOR` have it.
pub struct Terminal {
    out: Box<dyn io::Write>,
}

impl Terminal {
    /// To standard output, for what was asked for.
    pub fn standard_output() -> Self {
        Self { out: Box::new(anstream::stdout()) }
    }

    /// To standard output, unless nothing is to be said.
    pub fn remarks() -> Self {
        if is_quiet() { Self { out: Box::new(io::sink()) } } else { Self::standard_output() }
    }

    /// The same to standard error: where standard output is taken by a report.
    pub fn remarks_aside() -> Self {
        if is_quiet() {
            Self { out: Box::new(io::sink()) }
        } else {
            Self { out: Box::new(anstream::stderr()) }
        }
    }

    /// Prints one line.
    pub fn line(&mut self, text: &str) -> anyhow::Result<()> {
        forgive_closed(writeln!(self.out, "{text}")).context("cannot write to standard output")
    }

    /// Prints the report's summary.
    pub fn summary(&mut self, report: &Report) -> anyhow::Result<()> {
        self.print(&|out| summary::write_in_colors(report, out))
    }

    /// Prints what `render` writes.
    pub fn print(
        &mut self,
        render: &dyn Fn(&mut dyn io::Write) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let written = render(&mut self.out);
        forgive_closed(written.and_then(|()| self.out.flush()))
            .context("cannot write to standard output")
    }
}

/// A line on standard error that says what is being done, where that is a terminal. Gone when it is
/// dropped.
pub struct Progress(ProgressBar);

/// How often it is drawn anew.
const TICK: Duration = Duration::from_millis(200);

impl Progress {
    /// Of something that takes as long as it takes.
    pub fn of(what: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, draw_target());
        bar.enable_steady_tick(TICK);
        let progress = Self(bar);
        progress.now(what);
        progress
    }

    /// Of a recording.
    pub fn of_recording(what: &str, duration: Option<Duration>) -> Recording {
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
        bar.set_message(format!("Recording {what}"));
        Recording { bar: Self(bar), begun: Instant::now() }
    }

    /// Says what is done from here on.
    pub fn now(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    /// Says how much of it is done.
    pub fn done(&self, done: usize, all: usize) {
        self.0.set_length(all as u64);
        self.0.set_position(done as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// How far a recording is.
pub struct Recording {
    bar: Progress,
    begun: Instant,
}

impl Recording {
    /// Time has passed.
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
