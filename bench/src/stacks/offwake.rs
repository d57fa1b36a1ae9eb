//! What offwake records of a program.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::Context as _;
use serde::Deserialize;

use super::{entry_point, program::BusyProgram, share::Share};
use xtask::{command, python, workspace};

/// How user stacks are unwound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwind {
    Auto,
    Dwarf,
    FramePointers,
}

impl Unwind {
    pub const ALL: [Self; 3] = [Self::Auto, Self::Dwarf, Self::FramePointers];

    /// The mode's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Dwarf => "dwarf",
            Self::FramePointers => "fp",
        }
    }
}

/// What one recording of a program says about its stacks.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// Of its waits, those whose stack ends where the thread began: as the unwinder says, and for frame
    /// pointers, which can pass frames over and come to an end all the same, by the function at its root.
    pub waits: Share,
    /// The same share of the blocked time.
    pub blocked_ns: Share,
    /// The waits whose stack is whole by the function at its root.
    pub by_root: Share,
    /// Waits by how their stacks end; what has none ends with `no stack`.
    pub ends: BTreeMap<String, u64>,
    /// Distinct user stacks among them.
    pub distinct: usize,
    /// How stacks were come by.
    pub counts: Counts,
    /// How long it was recorded.
    pub seconds: f64,
}

/// `meta.stack_counts` of the report.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Counts {
    pub user: HalfCounts,
    pub kernel: HalfCounts,
}

/// The counts of one half of the stacks, user or kernel.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct HalfCounts {
    pub recognised: u64,
    pub taken: u64,
    pub checked: u64,
    pub disagreed: u64,
}

impl Counts {
    /// The sums over user and kernel stacks.
    pub fn both(self) -> HalfCounts {
        let Self { user, kernel } = self;
        HalfCounts {
            recognised: user.recognised + kernel.recognised,
            taken: user.taken + kernel.taken,
            checked: user.checked + kernel.checked,
            disagreed: user.disagreed + kernel.disagreed,
        }
    }
}

/// Records a program for some seconds, nobody else.
///
/// # Errors
///
/// When offwake or the Python that reads its tables fails.
pub fn record(
    offwake: &Path,
    busy: &BusyProgram,
    unwind: Unwind,
    seconds: u32,
    directory: &Path,
) -> anyhow::Result<Recorded> {
    let (recording, tables, json) =
        (directory.join("x.offwake"), directory.join("tables"), directory.join("x.json"));
    let quietly = |command: &mut Command| command::run_quietly(command.stdout(Stdio::null()));
    let pids = busy.pid_list()?;
    let mut record = Command::new(offwake);
    record.args(["record", "--quiet", "--scope", "target", "--unwind", unwind.name()]);
    record.args(["-p", &pids, "-d", &seconds.to_string(), "-o"]).arg(&recording);
    quietly(&mut record)?;
    quietly(Command::new(offwake).arg("export").arg(&recording).arg(&tables))?;
    let mut report = Command::new(offwake);
    report.args(["report", "--quiet"]).arg(&recording).arg("-o").arg(&json);
    quietly(&mut report)?;
    let recorded = read(&tables, &pids, &json, unwind);
    fs::remove_dir_all(&tables).context("cannot clean up")?;
    recorded
}

fn read(tables: &Path, pids: &str, json: &Path, unwind: Unwind) -> anyhow::Result<Recorded> {
    #[derive(Deserialize)]
    struct Report {
        meta: Meta,
        window: Window,
    }
    #[derive(Deserialize)]
    struct Meta {
        stack_counts: Counts,
    }
    #[derive(Deserialize)]
    struct Window {
        duration_ns: u64,
    }
    let report: Report = serde_json::from_slice(&fs::read(json).context("there is no report")?)
        .context("cannot read a report")?;
    let script: PathBuf = workspace::root().join("bench/src/stacks/shares.py");
    let mut python = Command::new(python::interpreter());
    python.arg(script).arg(tables).arg(pids).stdin(Stdio::null()).stderr(Stdio::inherit());
    let said = python.output().context("cannot run Python")?.stdout;
    let stacks: Vec<Stack> =
        serde_json::from_slice(&said).context("the tables could not be read")?;
    let seconds = report.window.duration_ns as f64 / 1e9;
    Ok(Recorded {
        counts: report.meta.stack_counts,
        seconds,
        ..Recorded::from_stacks(&stacks, unwind)
    })
}

/// A row of `shares.py`.
#[derive(Deserialize)]
struct Stack {
    waits: u64,
    blocked_ns: u64,
    end: Option<String>,
    root: Option<Vec<Option<String>>>,
}

impl Recorded {
    fn from_stacks(stacks: &[Stack], unwind: Unwind) -> Self {
        let mut recorded = Self::default();
        for Stack { waits, blocked_ns, end, root } in stacks {
            let mut names = root.iter().flatten().map(Option::as_deref);
            let (root, called) = (names.next().flatten(), names.next().flatten());
            let by_root = entry_point::is_whole(root, called);
            recorded.by_root += Share::all_or_nothing(*waits, by_root);
            let is_whole = match unwind {
                Unwind::Auto | Unwind::Dwarf => end.as_deref() == Some("entry_point"),
                Unwind::FramePointers => by_root,
            };
            recorded.waits += Share::all_or_nothing(*waits, is_whole);
            recorded.blocked_ns += Share::all_or_nothing(*blocked_ns, is_whole);
            let end = end.clone().unwrap_or_else(|| "no stack".to_owned());
            *recorded.ends.entry(end).or_default() += waits;
        }
        recorded.distinct = stacks.iter().filter(|stack| stack.end.is_some()).count();
        recorded
    }
}
