//! What all measurements share: the programs that are run, and how much effort is made.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use tempfile::TempDir;

use crate::{
    effort::Effort,
    running::{Running, Stop},
};
use xtask::{
    apt, build, command, kernel_half,
    root::RootAccess,
    workloads::{self, BenchPrograms},
    workspace,
};

/// Debian's packages that every run needs: the programs that are slowed down, and what counts.
const PACKAGES: [&str; 5] = ["bpftool", "linux-perf", "postgresql", "redis-server", "redis-tools"];

/// How stacks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stacks {
    Off,
    Exact,
    Cached,
}

impl Stacks {
    pub const ALL: [Self; 3] = [Self::Off, Self::Exact, Self::Cached];

    /// The mode's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Exact => "exact",
            Self::Cached => "cached",
        }
    }

    /// The row of a table.
    pub fn title(self) -> String {
        format!("offwake --stacks {}", self.name())
    }
}

/// The programs, built, and a directory for what they write.
pub struct OverheadSetup {
    pub effort: Effort,
    offwake: PathBuf,
    has_limit: bool,
    programs: BenchPrograms,
    /// The object with the plain BPF programs.
    yardsticks: PathBuf,
    modes: Vec<Stacks>,
    directory: TempDir,
}

impl OverheadSetup {
    /// Builds and installs what is needed. `offwake`, if given, is measured instead of one that is
    /// built here.
    ///
    /// # Errors
    ///
    /// When something can't be had, or this is not root.
    pub fn prepare(effort: Effort, offwake: Option<PathBuf>) -> anyhow::Result<Self> {
        // Sudo for each command would not do: the kernel's counts are for root alone to read.
        ensure!(
            RootAccess::obtain_for("measuring")? == RootAccess::Already,
            "this reads what the kernel shows to root alone: run it as root"
        );
        apt::install(&PACKAGES.map(str::to_owned))?;
        let offwake = match offwake {
            Some(offwake) => offwake,
            None => {
                build::build()?;
                workspace::offwake_binary()?
            }
        };
        let yardsticks = kernel_half::build_yardsticks()?;
        let modes = Stacks::ALL.into_iter().filter(|mode| supports_mode(&offwake, *mode)).collect();
        let programs = workloads::build_for_benchmarks()?;
        let directory = tempfile::tempdir().context("cannot make a directory")?;
        let has_limit = supports_limit(&offwake);
        Ok(Self { effort, offwake, has_limit, programs, yardsticks, modes, directory })
    }

    /// The ways of taking stacks that this offwake knows.
    pub fn modes(&self) -> &[Stacks] {
        &self.modes
    }

    /// The one that it is meant to be used with.
    pub fn default_mode(&self) -> Stacks {
        if self.modes.contains(&Stacks::Cached) { Stacks::Cached } else { Stacks::Exact }
    }

    /// A file of this run.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A directory of this run, for programs that want one.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Records the whole machine until told to stop. The window is open when this returns.
    ///
    /// # Errors
    ///
    /// When offwake can't.
    pub fn record(&self, stacks: Stacks, into: &Path) -> anyhow::Result<Running> {
        let mut command = self.recorder("record", stacks, into);
        // It says `ready` when it is started, and ends when its input does.
        Running::start(command.args(["--", "cat"]), Stop::EndOfInput)
    }

    /// The same with a limit to what it may cost.
    ///
    /// # Errors
    ///
    /// When offwake can't.
    pub fn record_within(&self, limit: &str, into: &Path) -> anyhow::Result<Running> {
        let mut command = Command::new(&self.offwake);
        command.args(["record", "--quiet", "--all", "--max-overhead", limit, "--output"]).arg(into);
        Running::start(command.args(["--", "cat"]), Stop::EndOfInput)
    }

    /// `offwake record` or `profile` of the whole machine.
    pub fn recorder(&self, task: &str, stacks: Stacks, into: &Path) -> Command {
        let mut command = Command::new(&self.offwake);
        command.args([task, "--quiet", "--all", "--stacks", stacks.name()]);
        if self.has_limit {
            // What all detail costs is asked here.
            command.args(["--max-overhead", "none"]);
        }
        if stacks == Stacks::Exact {
            // What it is compared with, the kernel's own walk at each switch, goes by frame pointers.
            command.args(["--unwind", "fp"]);
        }
        command.arg("--output").arg(into);
        command
    }

    /// Attaches programs of `profiler-ebpf/src/bin/yardsticks.rs`.
    ///
    /// # Errors
    ///
    /// When they can't be loaded.
    pub fn yardstick(&self, programs: &[&str]) -> anyhow::Result<Running> {
        let mut command = Command::new(&self.programs.yardsticks);
        Running::start(command.arg(&self.yardsticks).args(programs), Stop::EndOfInput)
    }

    /// Starts a load of the tests' package.
    ///
    /// # Errors
    ///
    /// When it can't be started.
    pub fn load(&self, name: &str, number: u32) -> anyhow::Result<Running> {
        let mut command = Command::new(&self.programs.load);
        Running::start(command.arg(name).arg(number.to_string()), Stop::EndOfInput)
    }

    /// What a recording says.
    ///
    /// # Errors
    ///
    /// When it can't be read, or takes more memory than half of what is free.
    pub fn report(&self, recording: &Path) -> anyhow::Result<Reported> {
        let json = self.file("report.json");
        let memory = format!("{}M", free_memory()? / 2 / (1 << 20));
        let mut report = Command::new(&self.offwake);
        report.args(["report", "--quiet", "--max-memory", &memory]).arg(recording);
        // Whom to blame does not matter here, and takes most of the time.
        report.args(["--max-depth", "1", "--max-nodes", "1"]);
        command::run_quietly(report.arg("--output").arg(&json).stdout(Stdio::null()))?;
        Reported::read(&json)
    }

    /// `offwake report` of a recording into a picture.
    pub fn reporter(&self, recording: &Path, into: &Path) -> Command {
        let mut command = Command::new(&self.offwake);
        command.args(["report", "--quiet"]).arg(recording).arg("--output").arg(into);
        command
    }
}

/// What a report says that matters here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reported {
    pub waits: u64,
    /// Records that were lost.
    pub lost: u64,
    pub window: Duration,
}

impl Reported {
    fn read(json: &Path) -> anyhow::Result<Self> {
        #[derive(Deserialize)]
        struct Report {
            window: Window,
            loss: Loss,
            waits: Vec<Waits>,
        }
        #[derive(Deserialize)]
        struct Window {
            duration_ns: u64,
        }
        #[derive(Deserialize)]
        struct Loss {
            records: u64,
        }
        #[derive(Deserialize)]
        struct Waits {
            count: u64,
        }
        let text = std::fs::read(json).context("there is no report")?;
        let report: Report = serde_json::from_slice(&text).context("cannot read a report")?;
        Ok(Self {
            waits: report.waits.iter().map(|waits| waits.count).sum(),
            lost: report.loss.records,
            window: Duration::from_nanos(report.window.duration_ns),
        })
    }
}

/// Values are checked before help is given.
fn supports_mode(offwake: &Path, mode: Stacks) -> bool {
    let mut question = Command::new(offwake);
    command::output(question.args(["record", "--stacks", mode.name(), "--help"])).is_some()
}

/// Whether it can hold its own cost below a limit; earlier builds can't.
fn supports_limit(offwake: &Path) -> bool {
    let mut question = Command::new(offwake);
    command::output(question.args(["record", "--max-overhead", "none", "--help"])).is_some()
}

fn free_memory() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: Option<u64> =
        line.and_then(|line| line.split_whitespace().next()).and_then(|word| word.parse().ok());
    Ok(kib.context("/proc/meminfo does not say what is free")? * 1024)
}
