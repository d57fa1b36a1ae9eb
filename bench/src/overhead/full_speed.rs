//! Every CPU switching as fast as it can: what is lost, what it takes to write it all down.

use std::{
    fs,
    thread::{available_parallelism, sleep},
    time::{Duration, Instant},
};

use super::{
    setup::{OverheadSetup, Reported, Stacks},
    workloads::EndlessPipe,
};
use crate::process::{self, Memory, megabytes};
use xtask::markdown_table::MarkdownTable;

/// One recording at full speed.
pub struct FullSpeed {
    pub stacks: Stacks,
    pub reported: Reported,
    /// CPU time of offwake's own threads while it recorded.
    own_cpu: f64,
    /// Memory at a quarter of the time; `late` is at its end.
    early: Memory,
    late: Memory,
    bytes: u64,
}

/// Starts the pipe benchmark on every CPU.
///
/// # Errors
///
/// When perf can't be started.
pub fn busy_cpus() -> anyhow::Result<Vec<EndlessPipe>> {
    let cpus = available_parallelism().map_or(1, usize::from);
    (0..cpus).map(EndlessPipe::start).collect()
}

/// Records in each mode, in the default for a minute.
///
/// # Errors
///
/// When something can't be run.
pub fn measure(setup: &OverheadSetup) -> anyhow::Result<Vec<FullSpeed>> {
    setup
        .modes()
        .iter()
        .map(|mode| {
            let is_default = *mode == setup.default_mode();
            let seconds = if is_default { setup.effort.pick(60, 10) } else { 10 };
            record(setup, *mode, Duration::from_secs(seconds))
        })
        .collect()
}

/// Records for so long.
///
/// # Errors
///
/// When something can't be run.
pub fn record(
    setup: &OverheadSetup,
    stacks: Stacks,
    length: Duration,
) -> anyhow::Result<FullSpeed> {
    eprintln!("bench: full speed for {} s, {}", length.as_secs(), stacks.title());
    let recording = setup.file("full-speed.offwake");
    let busy = busy_cpus()?;
    let running = setup.record(stacks, &recording)?;
    let pid = running.pid();
    let (before, begin) = (process::cpu_seconds_of_all(pid)?, Instant::now());
    sleep(length / 4);
    let early = process::memory(pid)?;
    sleep(length.saturating_sub(begin.elapsed()));
    let own_cpu = process::cpu_seconds_of_all(pid)? - before;
    let late = process::memory(pid)?;
    running.stop()?;
    drop(busy);
    let bytes = fs::metadata(&recording)?.len();
    let reported = setup.report(&recording)?;
    fs::remove_file(&recording)?;
    Ok(FullSpeed { stacks, reported, own_cpu, early, late, bytes })
}

impl FullSpeed {
    pub fn waits_per_second(&self) -> f64 {
        self.reported.waits as f64 / self.seconds()
    }

    /// ns of offwake's own threads for each wait.
    pub fn own_ns_per_wait(&self) -> f64 {
        self.own_cpu * 1e9 / self.reported.waits.max(1) as f64
    }

    pub fn bytes_per_wait(&self) -> f64 {
        self.bytes as f64 / self.reported.waits.max(1) as f64
    }

    pub fn seconds(&self) -> f64 {
        self.reported.window.as_secs_f64()
    }
}

/// A row for each mode.
pub fn table(all: &[FullSpeed]) -> String {
    let mut table = MarkdownTable::new([
        "offwake record",
        "window",
        "waits a second",
        "lost records",
        "its own CPU",
        "of that a wait",
        "in the file",
        "resident at a quarter … end",
        "peak",
    ]);
    for one in all {
        table.push_row([
            one.stacks.title(),
            format!("{:.0} s", one.seconds()),
            format!("{:.0}", one.waits_per_second()),
            one.reported.lost.to_string(),
            format!("{:.2} cores", one.own_cpu / one.seconds()),
            format!("{:.0} ns", one.own_ns_per_wait()),
            format!("{:.1} bytes a wait", one.bytes_per_wait()),
            format!(
                "{:.0} … {:.0} MB",
                megabytes(one.early.resident),
                megabytes(one.late.resident)
            ),
            format!("{:.0} MB", megabytes(one.late.peak)),
        ]);
    }
    table.markdown()
}
