//! The pipe benchmark of perf: two threads that wake each other as fast as they can.

use std::process::{Child, Command, Stdio};

use anyhow::Context as _;

use crate::{apt, command};

/// Makes sure that perf is there.
///
/// # Errors
///
/// When it is not, and can't be installed.
pub fn want_perf() -> anyhow::Result<()> {
    match command::find("perf") {
        Some(_) => Ok(()),
        None => apt::install(&["linux-perf".to_owned()]),
    }
}

/// The benchmark, running until this is dropped.
pub struct PipeBenchmark {
    child: Child,
}

impl PipeBenchmark {
    /// Starts it, on one CPU if one is given.
    ///
    /// # Errors
    ///
    /// When perf can't be started.
    pub fn start(cpu: Option<usize>) -> anyhow::Result<Self> {
        let mut command = match cpu {
            Some(cpu) => {
                let mut command = Command::new("taskset");
                command.args(["-c", &cpu.to_string(), "perf"]);
                command
            }
            None => Command::new("perf"),
        };
        // More than it can do in the time: it is ended.
        command.args(["bench", "sched", "pipe", "-T", "-l", "1000000000"]);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot run perf bench")?;
        Ok(Self { child })
    }
}

impl Drop for PipeBenchmark {
    fn drop(&mut self) {
        // An error means that it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
