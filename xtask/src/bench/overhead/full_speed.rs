//! Every CPU switching as fast as it can: what is lost, what it takes to write it all down.

use std::{
    fs,
    thread::{available_parallelism, sleep},
    time::{Duration, Instant},
};

use super::{
    bench::{Bench, Reported, Stacks},
    process::{self, Memory},
    running::Running,
    table::Table,
};
use crate::bench::pipe::PipeBenchmark;

/// One recording.
pub struct FullSpeed {
    stacks: Stacks,
    pub reported: Reported,
    /// CPU time of offwake's own threads while it recorded.
    own_cpu: f64,
    memory: Memory,
    bytes: u64,
}

/// Starts the pipe benchmark on every CPU.
///
/// # Errors
///
/// When perf can't be started.
pub fn busy_cpus() -> anyhow::Result<Vec<PipeBenchmark>> {
    let cpus = available_parallelism().map_or(1, usize::from);
    (0..cpus).map(|cpu| PipeBenchmark::start(Some(cpu))).collect()
}

/// Records with the default mode for a minute.
///
/// # Errors
///
/// When something can't be run.
pub fn measure(bench: &Bench) -> anyhow::Result<FullSpeed> {
    record(bench, bench.default_mode(), Duration::from_secs(bench.effort.pick(60, 10)))
}

/// Records for so long.
///
/// # Errors
///
/// When something can't be run.
pub fn record(bench: &Bench, stacks: Stacks, length: Duration) -> anyhow::Result<FullSpeed> {
    eprintln!("xtask: full speed for {} s", length.as_secs());
    let recording = bench.file("full-speed.offwake");
    let busy = busy_cpus()?;
    let running = bench.record(stacks, &recording)?;
    let used = own_use(&running, length)?;
    running.stop()?;
    drop(busy);
    let bytes = fs::metadata(&recording)?.len();
    let reported = bench.report(&recording)?;
    fs::remove_file(&recording)?;
    Ok(FullSpeed { stacks, reported, own_cpu: used.0, memory: used.1, bytes })
}

/// CPU seconds over a time, and memory at its end.
fn own_use(running: &Running, length: Duration) -> anyhow::Result<(f64, Memory)> {
    let before = process::cpu_seconds(running.pid())?;
    let begin = Instant::now();
    sleep(length);
    let cpu = process::cpu_seconds(running.pid())? - before;
    // The rate is what matters; a busy machine may let us sleep longer than we asked for.
    let cpu = cpu * length.as_secs_f64() / begin.elapsed().as_secs_f64();
    Ok((cpu, process::memory(running.pid())?))
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

    pub fn table(&self) -> String {
        let mut table = Table::new(["what", "measured"]);
        let Reported { waits, lost, .. } = self.reported;
        table.row(["mode".to_owned(), self.stacks.title()]);
        table.row(["window".to_owned(), format!("{:.1} s", self.seconds())]);
        table.row([
            "waits recorded".to_owned(),
            format!("{waits}, {:.0} a second", self.waits_per_second()),
        ]);
        table.row(["records lost".to_owned(), lost.to_string()]);
        table.row([
            "CPU time of offwake's own threads".to_owned(),
            format!(
                "{:.2} cores, {:.0} ns a wait",
                self.own_cpu / self.seconds(),
                self.own_ns_per_wait()
            ),
        ]);
        table.row([
            "the recording".to_owned(),
            format!("{:.1} bytes a wait, {} MB", self.bytes_per_wait(), self.bytes / 1_000_000),
        ]);
        table.row([
            "memory, resident".to_owned(),
            format!("{:.0} MB at the end", megabytes(self.memory.resident)),
        ]);
        table.row(["memory, peak".to_owned(), format!("{:.0} MB", megabytes(self.memory.peak))]);
        table.markdown()
    }
}

pub fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
