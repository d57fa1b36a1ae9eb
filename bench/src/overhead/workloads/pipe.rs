//! The pipe benchmark of perf on one CPU: the worst case, as it does nothing but switch.

use std::process::{Child, Command, Stdio};

use anyhow::Context as _;

use super::Workload;
use xtask::command;

const OPERATIONS: u32 = 300_000;

/// Two processes on CPU 0 that pass a byte to and fro.
pub struct Pipe;

impl Workload for Pipe {
    fn run(&mut self) -> anyhow::Result<f64> {
        run_pipe(OPERATIONS)
    }
}

/// Runs it; seconds for each operation, which is two switches.
///
/// # Errors
///
/// When perf can't.
pub fn run_pipe(operations: u32) -> anyhow::Result<f64> {
    let mut perf = Command::new("taskset");
    perf.args(["-c", "0", "perf", "bench", "-f", "simple", "sched", "pipe", "-l"]);
    let said = command::output(perf.arg(operations.to_string())).context("perf bench failed")?;
    let seconds: f64 = said.parse().with_context(|| format!("perf bench said {said:?}"))?;
    Ok(seconds / f64::from(operations))
}

/// The same with two threads of one process, running until this is dropped: one process is ended
/// for certain.
pub struct EndlessPipe(Child);

impl EndlessPipe {
    /// Starts it on one CPU.
    ///
    /// # Errors
    ///
    /// When perf can't be started.
    pub fn start(cpu: usize) -> anyhow::Result<Self> {
        let mut perf = Command::new("taskset");
        perf.args(["-c", &cpu.to_string(), "perf", "bench", "sched", "pipe", "--threaded"]);
        // More than it can do in the time.
        perf.args(["-l", "1000000000"]).stdin(Stdio::null()).stdout(Stdio::null());
        Ok(Self(perf.spawn().context("cannot run perf bench")?))
    }
}

impl Drop for EndlessPipe {
    fn drop(&mut self) {
        // An error means that it has ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
