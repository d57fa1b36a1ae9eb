//! `cargo xtask bench`: the benchmarks, which are a package of their own.

use std::{env, ffi::OsString, os::unix::process::CommandExt as _, process::ExitCode};

use anyhow::Context as _;
use xtask::{command, workspace};

/// Builds the package of the benchmarks and becomes its program, so that signals, help and the exit
/// status are its own.
///
/// # Errors
///
/// When cargo can't be started.
pub fn bench(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let mut cargo = command::cargo();
    // Paths among the arguments are relative to where the user is.
    cargo.current_dir(env::current_dir().context("cannot tell the current directory")?);
    cargo.args(["run", "--quiet", "--package", "offwake-bench", "--manifest-path"]);
    cargo.arg(workspace::root().join("Cargo.toml")).arg("--").args(arguments);
    Err(cargo.exec()).context("cannot run the benchmarks")
}
