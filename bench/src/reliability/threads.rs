//! Very many threads, each of which waits for the one before it.

use std::{
    fs,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::ensure;

use super::{
    setup::{BlameDepth, ReliabilitySetup, stop_all},
    usage::Usage,
};
use crate::{process::megabytes, running::Running};
use xtask::markdown_table::MarkdownTable;

/// In each of two processes: the kernel gives one of them 65,530 mappings, and a thread takes four.
const RING: u32 = 10_000;
const RINGS: u32 = 2;
const MANY: u32 = RING * RINGS;

/// Lets them run with nothing beside, and records them.
///
/// # Errors
///
/// When something can't be run, or does not hold.
pub fn measure(setup: &ReliabilitySetup) -> anyhow::Result<String> {
    eprintln!("bench: {MANY} threads");
    let length = Duration::from_secs(setup.effort.pick(20, 3));
    let rings = start(setup)?;
    sleep(length);
    let bare = stop_all(rings)?;

    let recording = setup.file("threads.offwake");
    let rings = start(setup)?;
    let before = Instant::now();
    let running = setup.record(&["--all"], &recording)?;
    let ready = before.elapsed();
    let usage = Usage::watch(running.pid(), length, Duration::from_secs(1))?;
    let stopped = Instant::now();
    running.stop()?;
    let took = stopped.elapsed();
    let rate = stop_all(rings)?;
    let report = setup.report(&recording, BlameDepth::Whole)?;
    fs::remove_file(&recording)?;
    for full in ["threads_full", "stand_in_full"] {
        ensure!(report.counted(full) == 0, "{full}, of {MANY} threads");
    }
    ensure!(report.threads() >= MANY as usize, "{} of {MANY} threads", report.threads());
    let (early, late) = usage.early_and_late();
    let mut table = MarkdownTable::new([
        "threads",
        "switches a second, with nothing beside",
        "and beside",
        "lost records",
        "threads in the report",
        "own CPU, of one core",
        "resident at a quarter … end",
        "peak",
        "until it records",
        "from stop to end",
    ]);
    table.push_row([
        MANY.to_string(),
        format!("{bare:.0}"),
        format!("{rate:.0}"),
        report.lost().to_string(),
        report.threads().to_string(),
        format!("{:.0} %", 100.0 * usage.cores()),
        format!("{:.0} … {:.0} MB", megabytes(early), megabytes(late)),
        format!("{:.0} MB", megabytes(usage.peak())),
        format!("{:.1} s", ready.as_secs_f64()),
        format!("{:.1} s", took.as_secs_f64()),
    ]);
    Ok(table.markdown())
}

fn start(setup: &ReliabilitySetup) -> anyhow::Result<Vec<Running>> {
    (0..RINGS).map(|_| setup.load("ring", RING)).collect()
}
