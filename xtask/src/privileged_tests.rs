//! The tests that run offwake on the running kernel, and what becomes of one that fails.
//!
//! They judge how a scheduler treats real threads, on machines that others use as well. A test that
//! fails is run once more after the others. If it passes then, the run passes and names the test as
//! flaky. What is wrong each time fails twice.

use std::{env, process::ExitStatus, time::Duration};

use anyhow::{bail, ensure};

use xtask::{command, python, root::RootAccess, workloads, workspace};

/// How long the privileged tests may take: twice what they do on two cores, 50 minutes on two slow ones. A test that hangs then fails
/// the run with its output shown.
const LIMIT: Duration = Duration::from_secs(60 * 60);

/// Where more tests fail than this, the machine is not to blame, and none is run again.
pub const MOST_RUN_AGAIN: usize = 6;

/// Runs all of them, and once more those that fail.
///
/// # Errors
///
/// When a test fails twice, when many fail, or when they can't be run.
pub fn run() -> anyhow::Result<()> {
    workloads::build_tokio_program()?;
    let first = run_named(&[])?;
    if first.status.success() {
        return Ok(());
    }
    let failed = first.failed;
    // A program of the tests that dies, or does not compile, names no test that could be run again.
    if failed.is_empty() || first.unfinished > 0 {
        let (status, unfinished) = (first.status, first.unfinished);
        bail!("the privileged tests failed ({status}; {unfinished} of their programs died)");
    }
    if failed.len() > MOST_RUN_AGAIN {
        bail!("{} privileged tests failed: {}", failed.len(), failed.join(", "));
    }
    eprintln!("xtask: run again, since they failed: {}", failed.join(", "));
    let second = run_named(&failed)?;
    ensure!(second.status.success(), "privileged tests failed twice: {}", second.failed.join(", "));
    eprintln!("xtask: FLAKY: these failed once, and passed when run again: {}", failed.join(", "));
    Ok(())
}

/// How a run of the tests ended.
struct Ended {
    status: ExitStatus,
    /// The names of the tests that failed.
    failed: Vec<String>,
    /// The programs that began and gave no result.
    unfinished: usize,
}

impl Ended {
    fn from_output(status: ExitStatus, output: &str) -> Self {
        let failed = output.lines().filter_map(parse_failed).map(str::to_owned).collect();
        let count = |is_it: fn(&str) -> bool| output.lines().filter(|line| is_it(line)).count();
        let begun = count(|line| line.starts_with("running ") && line.contains(" test"));
        let ended = count(|line| line.starts_with("test result: "));
        Self { status, failed, unfinished: begun.saturating_sub(ended) }
    }
}

/// Runs the tests of these names, or all. Compiled as the user, run as root: cargo itself stays
/// unprivileged.
fn run_named(names: &[String]) -> anyhow::Result<Ended> {
    let offwake = workspace::offwake_binary()?;
    let mut cargo = workloads::cargo_for_tests("test");
    // One failure must not hide others: a run takes long.
    cargo.arg("--no-fail-fast");
    let python = python::interpreter();
    cargo.env("OFFWAKE_BIN", &offwake).env("OFFWAKE_PYTHON", &python);
    if RootAccess::obtain_for("the privileged tests")? == RootAccess::Sudo {
        // Sudo drops the environment; what the tests read is handed on by name.
        let mut runner = vec!["sudo".to_owned(), "env".to_owned()];
        runner.push(format!("OFFWAKE_BIN={}", offwake.display()));
        runner.push(format!("OFFWAKE_PYTHON={}", python.display()));
        for name in ["CARGO_TARGET_DIR", "RUST_BACKTRACE"] {
            if let Some(value) = env::var_os(name) {
                runner.push(format!("{name}={}", value.to_string_lossy()));
            }
        }
        // Debug strings of Rust are strings of TOML for any path that people use.
        cargo.arg("--config").arg(format!("target.'cfg(all())'.runner={runner:?}"));
    }
    if !names.is_empty() {
        cargo.args(["--", "--exact"]).args(names);
    }
    let (status, output) = command::run_within(LIMIT, &mut cargo)?;
    Ok(Ended::from_output(status, &output))
}

/// The name of the test that a line of its program's output says has failed.
fn parse_failed(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn a_program_that_dies_is_not_forgotten_for_a_test_that_failed() {
        let output = "running 2 tests\ntest a ... FAILED\ntest b ... ok\n\
            test result: FAILED. 1 passed; 1 failed\nrunning 1 test\n";
        let ended = Ended::from_output(ExitStatus::from_raw(256), output);
        assert_eq!((ended.failed, ended.unfinished), (vec!["a".to_owned()], 1));
    }

    #[test]
    fn a_line_names_the_test_that_failed() {
        assert_eq!(parse_failed("test waits::a_pipe ... FAILED"), Some("waits::a_pipe"));
        assert_eq!(parse_failed("test waits::a_pipe ... ok"), None);
        assert_eq!(parse_failed("test result: FAILED. 10 passed; 1 failed; 0 ignored"), None);
    }
}
