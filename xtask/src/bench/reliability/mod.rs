//! `cargo xtask bench reliability`: what becomes of offwake, and of what it looks at, when there is far too much of
//! something.
//!
//! Each part writes its own table of `docs/reliability.md`, with what it was run on; a quick one only prints. What must
//! hold whatever the figures are is checked after each recording, and fails the run.

mod checked;
mod crowd;
mod forks;
mod lab;
mod long;
mod threads;
mod usage;

use std::{path::PathBuf, process::Command, thread::available_parallelism};

use clap::{Args, ValueEnum};

use lab::Lab;

use super::{
    document,
    overhead::{bench::Effort, machine},
};
use crate::{command, signal, workspace};

/// How to run it.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Seconds instead of minutes. Prints, but leaves docs/reliability.md as it is
    #[arg(long)]
    quick: bool,
    /// Only these parts, and only their tables
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART,…")]
    only: Vec<Part>,
    /// Measure this offwake instead of building one
    #[arg(long, value_name = "FILE")]
    offwake: Option<PathBuf>,
}

/// What there is too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// 5,000 forks a second, for a minute
    Forks,
    /// 20,000 threads
    Threads,
    /// offwakes: two and ten at once
    Crowd,
    /// Every CPU switching at its full speed, for ten minutes
    Long,
}

impl Part {
    /// The marker of its table.
    fn name(self) -> &'static str {
        match self {
            Self::Forks => "forks",
            Self::Threads => "threads",
            Self::Crowd => "crowd",
            Self::Long => "long",
        }
    }

    fn measure(self, lab: &Lab) -> anyhow::Result<String> {
        match self {
            Self::Forks => forks::measure(lab),
            Self::Threads => threads::measure(lab),
            Self::Crowd => crowd::measure(lab),
            Self::Long => long::measure(lab),
        }
    }
}

/// Measures, prints, and writes the tables of a run that is not a quick one.
///
/// # Errors
///
/// When something that is needed can't be run, or does not hold what must hold.
pub fn measure(options: Options) -> anyhow::Result<()> {
    let Options { quick, only, offwake } = options;
    let effort = if quick { Effort::Quick } else { Effort::Whole };
    let lab = Lab::prepare(effort, offwake)?;
    // What runs beside ends by itself then, and what was begun is put in order again.
    signal::leave_to_children()?;
    for &part in Part::value_variants() {
        if !only.is_empty() && !only.contains(&part) {
            continue;
        }
        let run_on = run_on()?;
        let text = format!("{run_on}\n\n{}", part.measure(&lab)?);
        println!("\n{}\n\n{text}", part.name());
        // At once: a long part may come next.
        if effort == Effort::Whole {
            document::write("docs/reliability.md", &[(part.name(), text)])?;
        }
    }
    Ok(())
}

/// What the figures depend on.
fn run_on() -> anyhow::Result<String> {
    let load = machine::load()?;
    let mut describe = Command::new("git");
    describe.args(["describe", "--always", "--dirty"]).current_dir(workspace::root());
    let unknown = || "not known".to_owned();
    Ok(format!(
        "{}, commit {}, {}, {} CPUs; load average before it began: {load}.",
        command::ask(Command::new("date").args(["-u", "+%F %R UTC"])).unwrap_or_else(unknown),
        command::ask(&mut describe).unwrap_or_else(unknown),
        command::ask(Command::new("uname").args(["-srm"])).unwrap_or_else(unknown),
        available_parallelism().map_or(0, usize::from),
    ))
}
