//! The programs, built, and a directory for what they write.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

use super::checked::CheckedReport;
use crate::{
    effort::Effort,
    load_count::LoadCount,
    running::{Running, Stop},
};
use xtask::{build, command, root::RootAccess, workloads, workspace};

/// How whole the chains of a report are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlameDepth {
    /// Chains as long as they are by default.
    Whole,
    /// One hop: the ledgers close all the same, and it takes a fraction of the time.
    Shallow,
}

/// What is run, and where.
pub struct ReliabilitySetup {
    pub effort: Effort,
    offwake: PathBuf,
    load: PathBuf,
    directory: TempDir,
}

impl ReliabilitySetup {
    /// Builds what is needed. `offwake`, if given, is run instead of one that is built here.
    ///
    /// # Errors
    ///
    /// When something can't be built, or this is not root.
    pub fn prepare(effort: Effort, offwake: Option<PathBuf>) -> anyhow::Result<Self> {
        ensure!(RootAccess::obtain_for("recording")? == RootAccess::Already, "run this as root");
        let offwake = match offwake {
            Some(offwake) => offwake,
            None => {
                build::build()?;
                workspace::offwake_binary()?
            }
        };
        let load = workloads::build_for_benchmarks()?.load;
        // Beside what is built, which is on a disk: recordings of minutes have gigabytes.
        let directory = tempfile::tempdir_in(workspace::target()).context("no directory")?;
        Ok(Self { effort, offwake, load, directory })
    }

    /// A file of this run.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts a load of the tests' package.
    ///
    /// # Errors
    ///
    /// When it can't be started.
    pub fn load(&self, name: &str, number: u32) -> anyhow::Result<Running> {
        let mut command = Command::new(&self.load);
        Running::start(command.arg(name).arg(number.to_string()), Stop::EndOfInput)
    }

    /// Starts one that stays on a CPU, in a session of its own. Where a session's threads switch without
    /// end on several CPUs, Linux 6.18.44 gives others no CPU for seconds, whoever records
    /// (docs/reliability.md).
    ///
    /// # Errors
    ///
    /// When it can't be started.
    pub fn load_on(&self, cpu: usize, name: &str, number: u32) -> anyhow::Result<Running> {
        let mut command = Command::new("setsid");
        command.args(["taskset", "-c"]).arg(cpu.to_string()).arg(&self.load);
        Running::start(command.arg(name).arg(number.to_string()), Stop::EndOfInput)
    }

    /// Records a target until told to stop. The window is open when this returns.
    ///
    /// # Errors
    ///
    /// When offwake can't.
    pub fn record(&self, target: &[&str], into: &Path) -> anyhow::Result<Running> {
        let mut command = Command::new(&self.offwake);
        command.args(["record", "--quiet"]).args(target).arg("--output").arg(into);
        // It says `ready` when it is started, and ends when its input does.
        Running::start(command.args(["--", "cat"]), Stop::EndOfInput)
    }

    /// What a recording says, its ledgers checked.
    ///
    /// # Errors
    ///
    /// When it can't be read, or something in it can't be.
    pub fn report(&self, recording: &Path, blame: BlameDepth) -> anyhow::Result<CheckedReport> {
        let json = self.file("report.json");
        let mut report = Command::new(&self.offwake);
        report.args(["report", "--quiet"]).arg(recording).arg("--output").arg(&json);
        if blame == BlameDepth::Shallow {
            report.args(["--max-depth", "1", "--max-nodes", "1"]);
        }
        command::run_quietly(report.stdout(Stdio::null()))?;
        let checked = CheckedReport::read(&json)?;
        fs::remove_file(&json)?;
        Ok(checked)
    }
}

/// Stops loads, all at once. Switches a second of all of them.
///
/// # Errors
///
/// When one fails.
pub fn stop_all(mut loads: Vec<Running>) -> anyhow::Result<f64> {
    for load in &mut loads {
        load.ask_to_stop()?;
    }
    let mut rate = 0.0;
    for load in loads {
        rate += LoadCount::read(&load.end()?)?.rate();
    }
    Ok(rate)
}
