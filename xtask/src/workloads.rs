//! Programs to look at: the workloads of the tests. They are compiled with
//! frame pointers, by which the kernel walks their stacks, and in a target directory of their own:
//! other flags would make cargo build everything else anew.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};

use crate::{command, workspace};

/// A cargo for the package `offwake-tests`.
pub fn cargo_for_tests(task: &str) -> Command {
    let mut cargo = cargo_with_frame_pointers(task);
    cargo.args(["--package", "offwake-tests"]);
    cargo
}

/// A cargo that compiles with frame pointers, into a target directory of its own.
pub fn cargo_with_frame_pointers(task: &str) -> Command {
    let mut cargo = command::cargo();
    cargo
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("RUSTFLAGS", "-Cforce-frame-pointers=yes")
        // Where tests are optimized, half of the compiler's time would go into this: 65 of 127 s for the analysis.
        .env("CARGO_PROFILE_DEV_LTO", "off")
        .args([task, "--target-dir"])
        .arg(target_folder());
    cargo
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
pub fn build_for_benchmarks() -> anyhow::Result<BenchPrograms> {
    let (load, yardsticks) = ("offwake-load", "offwake-yardsticks");
    command::run_quietly(cargo_for_tests("build").args([
        "--release",
        "--bin",
        load,
        "--bin",
        yardsticks,
    ]))
    .context("cannot build what the benchmarks run")?;
    let release = target_folder().join("release");
    Ok(BenchPrograms { load: release.join(load), yardsticks: release.join(yardsticks) })
}

/// Builds the workloads of the tests, and says where the program is that is all of them.
///
/// # Errors
///
/// When it does not compile.
pub fn build_test_workloads() -> anyhow::Result<PathBuf> {
    command::run_quietly(cargo_for_tests("build").args(["--release", "--bin", WORKLOAD]))
        .context("cannot build the workloads of the tests")?;
    Ok(target_folder().join("release").join(WORKLOAD))
}

/// Builds the program that runs the incidents, and says where it is.
///
/// # Errors
///
/// When it does not compile.
pub fn build_incidents() -> anyhow::Result<PathBuf> {
    let name = "offwake-incidents";
    command::run_quietly(cargo_for_tests("build").args(["--release", "--bin", name]))
        .context("cannot build the incidents")?;
    Ok(target_folder().join("release").join(name))
}

/// Builds programs of the tests that run on the running kernel, and says where they are, by name. The
/// program of the workloads, which they start, is among them.
///
/// # Errors
///
/// When one does not compile, or there is none of that name.
pub fn build_live_tests(names: &BTreeSet<&str>) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let mut cargo = cargo_for_tests("test");
    cargo.args(["--no-run", "--message-format=json-render-diagnostics"]);
    for name in names {
        cargo.args(["--test", name]);
    }
    cargo.stderr(Stdio::inherit());
    let output = cargo.output().context("cannot run cargo")?;
    ensure!(output.status.success(), "cannot build the tests");
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut programs: BTreeMap<_, _> = messages.lines().filter_map(parse_executable).collect();
    programs.retain(|name, _| names.contains(name.as_str()) || name == WORKLOAD);
    ensure!(programs.len() == names.len() + 1, "only these were built: {programs:?}");
    Ok(programs)
}

/// The program that a message of cargo's is about, if it is about one.
pub fn parse_executable(message: &str) -> Option<(String, PathBuf)> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let name = message["target"]["name"].as_str()?;
    Some((name.to_owned(), PathBuf::from(message["executable"].as_str()?)))
}

const WORKLOAD: &str = "offwake-workload";

/// Builds the program on tokio, as others would: without frame pointers.
///
/// # Errors
///
/// When it does not compile.
pub fn build_tokio_program() -> anyhow::Result<PathBuf> {
    let name = "tokio-program";
    command::run_quietly(command::cargo().args(["build", "--release", "--package", name]))
        .context("cannot build the program on tokio")?;
    // Beside what else a release build leaves behind.
    Ok(workspace::offwake_binary()?.with_file_name(name))
}

fn target_folder() -> PathBuf {
    workspace::target().join("workloads")
}
