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

/// What the benchmarks run besides offwake.
pub struct BenchPrograms {
    /// `tests/src/loads`.
    pub load: PathBuf,
    /// Loads plain BPF programs.
    pub yardsticks: PathBuf,
}

/// Builds what the benchmarks run.
///
/// # Errors
///
/// When it does not compile.
pub fn for_benchmarks() -> anyhow::Result<BenchPrograms> {
    let (load, yardsticks) = ("offwake-load", "offwake-yardsticks");
    command::quietly(cargo("build").args(["--release", "--bin", load, "--bin", yardsticks]))
        .context("cannot build what the benchmarks run")?;
    let release = folder().join("release");
    Ok(BenchPrograms { load: release.join(load), yardsticks: release.join(yardsticks) })
}

/// Builds the program on tokio, as others would: without frame pointers.
///
/// # Errors
///
/// When it does not compile.
pub fn on_tokio() -> anyhow::Result<PathBuf> {
    let name = "tokio-program";
    command::quietly(command::cargo().args(["build", "--release", "--package", name]))
        .context("cannot build the program on tokio")?;
    // Beside what else a release build leaves behind.
    Ok(workspace::offwake()?.with_file_name(name))
}

fn folder() -> PathBuf {
    workspace::target().join("workloads")
}
