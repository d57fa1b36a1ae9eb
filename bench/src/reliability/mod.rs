//! `cargo xtask bench reliability`: what becomes of offwake, and of what it looks at, when there is far too much of
//! something.
//!
//! Each part writes its own table of `docs/reliability.md`, with what it was run on; a quick one only prints. What must
//! hold whatever the figures are is checked after each recording, and fails the run.

mod checked;
mod crowd;
mod forks;
mod long;
mod setup;
mod threads;
mod usage;

use std::{path::PathBuf, thread::available_parallelism};

use clap::{Args, ValueEnum};

use setup::ReliabilitySetup;

use crate::{document, effort::Effort, machine};
use xtask::signal;

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

    fn measure(self, setup: &ReliabilitySetup) -> anyhow::Result<String> {
        match self {
            Self::Forks => forks::measure(setup),
            Self::Threads => threads::measure(setup),
            Self::Crowd => crowd::measure(setup),
            Self::Long => long::measure(setup),
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
    let effort = Effort::from_quick_flag(quick);
    let setup = ReliabilitySetup::prepare(effort, offwake)?;
    // What runs beside ends by itself then, and what was begun is put in order again.
    signal::leave_interrupt_to_children()?;
    for &part in Part::value_variants() {
        if !only.is_empty() && !only.contains(&part) {
            continue;
        }
        let text = format!("{}\n\n{}", describe_machine()?, part.measure(&setup)?);
        println!("\n{}\n\n{text}", part.name());
        // At once: a long part may come next.
        if effort == Effort::Whole {
            document::write_tables("docs/reliability.md", &[(part.name(), text)])?;
        }
    }
    Ok(())
}

/// What the figures depend on.
fn describe_machine() -> anyhow::Result<String> {
    let load = machine::load_average()?;
    let unknown = || machine::UNKNOWN.to_owned();
    Ok(format!(
        "{}, commit {}, {}, {} CPUs; load average before it began: {load}.",
        machine::date().unwrap_or_else(unknown),
        machine::commit().unwrap_or_else(unknown),
        machine::kernel().unwrap_or_else(unknown),
        available_parallelism().map_or(0, usize::from),
    ))
}
