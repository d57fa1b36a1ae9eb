//! The command line.

mod caller;
mod cli;
mod console;
mod container_start;
mod demo;
mod diff;
mod doctor;
mod export;
mod flight_recorder;
mod input;
mod interrupts;
mod manual;
mod name_arguments;
mod name_services;
mod otlp;
mod outcome;
mod output;
mod profile;
mod record;
mod remote_control;
mod report;
mod report_arguments;
mod reporting;
mod selection_arguments;
mod session;
mod span_arguments;
mod stack_arguments;
mod terminal_thread;
mod top;
mod values;

use std::process::ExitCode;

use anyhow::anyhow;
use clap::Parser as _;
use offwake::{parser, privileges, reader_process, symbols, unwinder_process, writer_process};
use outcome::Outcome;

fn main() -> ExitCode {
    // Before anything is parsed, or any program is run.
    if let Err(error) = privileges::drop_inheritable() {
        return fail(&anyhow!(error).context("cannot drop inheritable capabilities")).into();
    }
    if let Err(error) = name_services::use_built_in() {
        return fail(&error).into();
    }
    let (names, stacks) = (symbols::serve, unwinder_process::serve);
    let (reader, writer) = (reader_process::serve, writer_process::serve);
    if let Some(done) = parser::run_if_requested(names, stacks, reader, writer) {
        return done;
    }
    let cli::Cli { console, command } = cli::Cli::parse();
    console.apply();
    let outcome = caller::become_caller().and_then(|()| match command {
        cli::Command::Profile(arguments) => profile::run(&arguments),
        cli::Command::Record(arguments) => record::run(&arguments),
        cli::Command::Report(arguments) => report::run(&arguments),
        cli::Command::Export(arguments) => export::run(&arguments),
        cli::Command::Top(arguments) => top::run(&arguments),
        cli::Command::Demo(arguments) => demo::run(*arguments),
        cli::Command::DemoService { role } => demo::serve(&role).map(|()| Outcome::Done),
        cli::Command::Doctor => doctor::run(),
        cli::Command::Completions(arguments) => manual::completions(&arguments),
        cli::Command::Man(arguments) => manual::pages(&arguments),
    });
    let outcome = outcome.unwrap_or_else(|error| fail(&error));
    terminal_thread::finish();
    outcome.into()
}

/// Prints why the run failed. Returns how that ends it.
fn fail(error: &anyhow::Error) -> Outcome {
    terminal_thread::print_error(&output::on_one_line(&format!("{error:#}")));
    if error.is::<container_start::NotStarted>() {
        Outcome::NothingRecorded
    } else {
        Outcome::Failed
    }
}
