//! `cargo xtask`: builds, runs and tests offwake. What CI runs is what you run.

#![expect(dead_code, reason = "run and test come next")]

mod apt;
mod build;
mod command;
mod kernel_half;
mod root;
mod source_digest;
mod toolchain;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Builds, runs and tests offwake.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build both halves, fetching a toolchain for BPF if there is none
    Build,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Build => build::build(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
