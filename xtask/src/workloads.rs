//! Programs to look at: the demo service, and the workloads of the tests. They are compiled with
//! frame pointers, by which the kernel walks their stacks, and in a target directory of their own:
//! other flags would make cargo build everything else anew.

use std::{path::PathBuf, process::Command};

use anyhow::Context as _;

use crate::{command, workspace};

/// A cargo for the package `offwake-tests`.
pub fn cargo(task: &str) -> Command {
    let mut cargo = command::cargo();
    cargo
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("RUSTFLAGS", "-Cforce-frame-pointers=yes")
        .args([task, "--package", "offwake-tests", "--target-dir"])
        .arg(folder());
    cargo
}

/// Builds the demo service and says where it is.
///
/// # Errors
///
/// When it does not compile.
pub fn demo() -> anyhow::Result<PathBuf> {
    command::quietly(cargo("build").args(["--release", "--bin", "offwake-demo"]))
        .context("cannot build the demo service")?;
    Ok(folder().join("release/offwake-demo"))
}

/// Builds the loads of the benchmarks and says where their program is.
///
/// # Errors
///
/// When they do not compile.
pub fn load() -> anyhow::Result<PathBuf> {
    command::quietly(cargo("build").args(["--release", "--bin", "offwake-load"]))
        .context("cannot build the loads")?;
    Ok(folder().join("release/offwake-load"))
}

fn folder() -> PathBuf {
    workspace::target().join("workloads")
}
