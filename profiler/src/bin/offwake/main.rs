//! The command line.

mod arrival;
mod caller;
mod cli;
mod console;
mod diff;
mod doctor;
mod export;
mod flight;
mod formats;
mod input;
mod manual;
mod name_arguments;
mod otlp;
mod output;
mod profile;
mod record;
mod remote;
mod report;
mod reporting;
mod rings;
mod session;
mod span_arguments;
mod stack_arguments;
mod top;
mod values;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::Parser as _;
use offwake::{parser, symbols, unwind};

/// How a run ended, as an exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    Failed,
    NothingRecorded,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        // 2 is a usage error, and clap's own.
        Self::from(match outcome {
            Outcome::Done => 0,
            Outcome::Failed => 1,
            Outcome::NothingRecorded => 3,
        })
    }
}

fn main() -> ExitCode {
    if let Some(done) = parser::run_if_asked(symbols::answer, unwind::answer) {
        return done;
    }
    let cli::Cli { console, command } = cli::Cli::parse();
    console.settle();
    let outcome = caller::become_caller().and_then(|()| match command {
        cli::Command::Profile(arguments) => profile::run(&arguments),
        cli::Command::Record(arguments) => record::run(&arguments),
        cli::Command::Report(arguments) => report::run(&arguments),
        cli::Command::Export(arguments) => export::run(&arguments),
        cli::Command::Top(arguments) => top::run(&arguments),
        cli::Command::Doctor => doctor::run(),
        cli::Command::Completions(arguments) => manual::completions(&arguments),
        cli::Command::Man(arguments) => manual::pages(&arguments),
    });
    outcome
        .unwrap_or_else(|error| {
            // The terminal may be gone: there is nobody to tell then.
            let _gone =
                writeln!(io::stderr(), "offwake: {}", output::on_one_line(&format!("{error:#}")));
            if error.is::<arrival::NeverCame>() {
                Outcome::NothingRecorded
            } else {
                Outcome::Failed
            }
        })
        .into()
}
