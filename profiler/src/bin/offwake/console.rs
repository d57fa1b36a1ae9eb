//! What people are shown beside the outputs: messages, colours, and the progress of a long job.

use std::{
    io::{self, IsTerminal as _, Write as _},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::{ArgAction, Args};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use offwake_analysis::{
    report::{Report, summary},
    text,
};

use crate::{
    output::{Destination, Output, ignore_broken_pipe},
    terminal_thread,
};

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
pub struct Progress(Option<Arc<ProgressLine>>);

/// What the line tells.
pub struct ProgressLine {
    what: Mutex<String>,
    work: Work,
}

/// How much there is to do.
enum Work {
    /// So many of so many, none if that is not known.
    Counted { done: AtomicU64, all: AtomicU64 },
    /// A recording, which may end by itself.
    Recording { begun: Instant, duration: Option<Duration> },
}

impl Progress {
    /// Begins a job of unknown length.
    pub fn start(what: &str) -> Self {
        let (done, all) = (AtomicU64::new(0), AtomicU64::new(0));
        Self::show(what.to_owned(), Work::Counted { done, all })
    }

    /// Begins a recording.
    pub fn start_recording(what: &str, duration: Option<Duration>) -> Self {
        // The names of containers are in it.
        let what = format!("Recording {}", text::terminal(what));
        Self::show(what, Work::Recording { begun: Instant::now(), duration })
    }

    fn show(what: String, work: Work) -> Self {
        if is_quiet() || !io::stderr().is_terminal() {
            return Self(None);
        }
        let line = Arc::new(ProgressLine { what: Mutex::new(what), work });
        terminal_thread::show_progress(&line);
        Self(Some(line))
    }

    /// Shows what is done from here on.
    pub fn set_message(&self, what: &str) {
        if let Some(line) = &self.0 {
            what.clone_into(&mut line.lock_text());
        }
    }

    /// Shows how much of the job is done.
    pub fn set_position(&self, now_done: usize, of_all: usize) {
        if let Some(Work::Counted { done, all }) = self.0.as_deref().map(|line| &line.work) {
            all.store(of_all as u64, Ordering::Relaxed);
            done.store(now_done as u64, Ordering::Relaxed);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.0.is_some() {
            terminal_thread::hide_progress();
        }
    }
}

impl ProgressLine {
    fn lock_text(&self) -> MutexGuard<'_, String> {
        self.what.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes what is drawn. Only the thread that writes to the terminal may.
    pub fn to_bar(&self) -> ProgressBar {
        let (length, template) = match self.work {
            Work::Counted { .. } => (None, None),
            Work::Recording { duration: Some(duration), .. } => {
                (Some(millis(duration)), Some("{msg}  {bar:30} {elapsed}; Ctrl-C ends it sooner"))
            }
            Work::Recording { duration: None, .. } => {
                (None, Some("{spinner} {msg}  {elapsed}; Ctrl-C ends it"))
            }
        };
        let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
        // The templates are constants that the tests have drawn.
        if let Some(style) = template.and_then(|it| ProgressStyle::with_template(it).ok()) {
            bar.set_style(style);
        }
        bar
    }

    /// Brings what is drawn up to date.
    pub fn update(&self, bar: &ProgressBar) {
        bar.set_message(self.lock_text().clone());
        match &self.work {
            Work::Counted { done, all } => {
                let all = all.load(Ordering::Relaxed);
                if all > 0 {
                    bar.set_length(all);
                    bar.set_position(done.load(Ordering::Relaxed));
                }
            }
            Work::Recording { begun, .. } => bar.set_position(millis(begun.elapsed())),
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
