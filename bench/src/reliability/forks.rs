//! Processes that come and go, thousands a second.

use std::{
    fs,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::ensure;

use super::{
    setup::{BlameDepth, ReliabilitySetup},
    usage::Usage,
};
use crate::{load_count::LoadCount, process::megabytes};
use xtask::markdown_table::MarkdownTable;

/// Forks a second that the load is asked for.
const RATE: u32 = 5_000;

/// Which processes' waits are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordedProcesses {
    All,
    /// The process that forks, and so all of its children.
    Forker,
}

/// Forks without offwake, beside a recording of everybody, and as the target.
///
/// # Errors
///
/// When something can't be run, or does not hold.
pub fn measure(setup: &ReliabilitySetup) -> anyhow::Result<String> {
    eprintln!("bench: {RATE} forks a second");
    let load = setup.load("forks", RATE)?;
    sleep(Duration::from_secs(setup.effort.pick(10, 3)));
    let bare = LoadCount::read(&load.stop()?)?;
    let mut table = MarkdownTable::new([
        "recorded",
        "for",
        "forks a second, with nothing beside",
        "and beside",
        "lost records",
        "processes in the report",
        "own CPU, of one core",
        "resident at a quarter … end",
        "peak",
        "from stop to end",
    ]);
    for (target, length) in [
        (RecordedProcesses::All, setup.effort.pick(60, 5)),
        (RecordedProcesses::Forker, setup.effort.pick(60, 5)),
    ] {
        table.push_row(record(setup, target, Duration::from_secs(length), bare)?);
    }
    Ok(table.markdown())
}

fn record(
    setup: &ReliabilitySetup,
    target: RecordedProcesses,
    length: Duration,
    bare: LoadCount,
) -> anyhow::Result<[String; 10]> {
    let recording = setup.file("forks.offwake");
    let load = setup.load("forks", RATE)?;
    let pid = load.pid().to_string();
    let (title, arguments) = match target {
        RecordedProcesses::All => ("everybody (`-a`)", vec!["--all"]),
        RecordedProcesses::Forker => ("the process that forks (`-p`)", vec!["--pid", &pid]),
    };
    let running = setup.record(&arguments, &recording)?;
    let usage = Usage::watch(running.pid(), length, Duration::from_secs(1))?;
    let stopped = Instant::now();
    running.stop()?;
    let took = stopped.elapsed();
    let count = LoadCount::read(&load.stop()?)?;
    let report = setup.report(&recording, BlameDepth::Whole)?;
    fs::remove_file(&recording)?;
    for full in ["targets_full", "threads_full", "stand_in_full"] {
        ensure!(report.counted(full) == 0, "{full}: what ends does not make room");
    }
    // A child whose last record is lost has no ledger; the others have.
    let forks = count.forks_a_second() * length.as_secs_f64();
    let there = report.threads() as f64 + report.lost() as f64;
    ensure!(there >= 0.9 * forks, "{} threads in the report of {forks} forks", report.threads());
    let (early, late) = usage.early_and_late();
    Ok([
        title.to_owned(),
        format!("{} s", length.as_secs()),
        format!("{:.0}", bare.forks_a_second()),
        format!("{:.0}", count.forks_a_second()),
        report.lost().to_string(),
        report.threads().to_string(),
        format!("{:.0} %", 100.0 * usage.cores()),
        format!("{:.0} … {:.0} MB", megabytes(early), megabytes(late)),
        format!("{:.0} MB", megabytes(usage.peak())),
        format!("{:.1} s", took.as_secs_f64()),
    ])
}
