//! Several offwakes at once. Each records the whole machine, the others included.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context as _;

use super::{
    setup::{BlameDepth, ReliabilitySetup},
    usage::Usage,
};
use crate::{load_count::LoadCount, process::megabytes, running::Running};
use xtask::markdown_table::MarkdownTable;

/// How many at once: none is what the others are compared with.
const CROWDS: [usize; 4] = [0, 1, 2, 10];

/// Runs them beside two threads that wake each other as fast as they can, on one CPU.
///
/// # Errors
///
/// When something can't be run, or does not hold.
pub fn measure(setup: &ReliabilitySetup) -> anyhow::Result<String> {
    let mut table = MarkdownTable::new([
        "offwakes",
        "the load's switches a second",
        "lost records, of all",
        "own CPU of all, of one core",
        "peak of each",
        "until all record",
        "until all have ended",
    ]);
    for many in CROWDS {
        table.push_row(measure_crowd(setup, many)?);
    }
    Ok(table.markdown())
}

fn measure_crowd(setup: &ReliabilitySetup, many: usize) -> anyhow::Result<[String; 7]> {
    eprintln!("bench: {many} at once");
    let length = Duration::from_secs(setup.effort.pick(15, 3));
    let recordings: Vec<PathBuf> =
        (0..many).map(|number| setup.file(&format!("crowd-{number}.offwake"))).collect();
    let before = Instant::now();
    let mut all: Vec<Running> = recordings
        .iter()
        .map(|recording| setup.record(&["--all"], recording))
        .collect::<anyhow::Result<_>>()?;
    let ready = before.elapsed();
    let load = setup.load_on(0, "ring", 2)?;
    let pids: Vec<u32> = all.iter().map(Running::pid).collect();
    let usages = Usage::watch_all(&pids, length, Duration::from_secs(1))?;
    let count = LoadCount::read(&load.stop()?)?;
    let stopped = Instant::now();
    for running in &mut all {
        running.ask_to_stop()?;
    }
    for running in all {
        running.end()?;
    }
    let took = stopped.elapsed();
    let mut lost = 0;
    for recording in &recordings {
        let report = setup.report(recording, BlameDepth::Shallow);
        lost += report.with_context(|| format!("one of {many}"))?.lost();
        fs::remove_file(recording)?;
    }
    let cores: f64 = usages.iter().map(Usage::cores).sum();
    let peak = usages.iter().map(Usage::peak).max();
    let only_if_any = |text: String| if many > 0 { text } else { String::new() };
    Ok([
        many.to_string(),
        format!("{:.0}", count.rate()),
        only_if_any(lost.to_string()),
        only_if_any(format!("{:.0} %", 100.0 * cores)),
        peak.map_or(String::new(), |peak| format!("{:.0} MB", megabytes(peak))),
        only_if_any(format!("{:.1} s", ready.as_secs_f64())),
        only_if_any(format!("{:.1} s", took.as_secs_f64())),
    ])
}
