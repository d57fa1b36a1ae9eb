//! The pipe benchmark of perf on one CPU: the worst case, as it does nothing but switch.

use std::process::Command;

use anyhow::Context as _;

use super::Workload;
use crate::command;

const OPERATIONS: u32 = 300_000;

/// Two processes on CPU 0 that pass a byte to and fro.
pub struct Pipe;

impl Workload for Pipe {
    fn run(&mut self) -> anyhow::Result<f64> {
        pipe(OPERATIONS)
    }
}

/// Runs it; seconds for each operation, which is two switches.
///
/// # Errors
///
/// When perf can't.
pub fn pipe(operations: u32) -> anyhow::Result<f64> {
    let mut perf = Command::new("taskset");
    perf.args(["-c", "0", "perf", "bench", "-f", "simple", "sched", "pipe", "-l"]);
    let said = command::ask(perf.arg(operations.to_string())).context("perf bench failed")?;
    let seconds: f64 = said.parse().with_context(|| format!("perf bench said {said:?}"))?;
    Ok(seconds / f64::from(operations))
}
