//! What it costs to find out who is to blame: how time and memory grow with the number of waits.

use std::process::Stdio;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, de::DeserializeOwned};

use xtask::command;

/// What `profiler/benches/blame.rs` prints.
#[derive(Deserialize)]
struct Run {
    waits: u64,
    cpu_ns: u64,
    timeline_ns: u64,
    prepare_ns: u64,
    blame_ns: u64,
    report_ns: u64,
    recording_kib: u64,
    blame_peak_kib: u64,
    peak_kib: u64,
}

/// Runs each size on one thread and on two, the quicker of two runs each, and prints them side by side.
///
/// # Errors
///
/// When the benchmark can't be built or run.
pub fn measure(up_to: u32) -> anyhow::Result<()> {
    compile()?;
    println!(
        "\n{:>9} {:>8} {:>14} {:>10} {:>8} {:>8} {:>14} {:>12} {:>10}",
        "waits",
        "threads",
        "waits/s (wall)",
        "CPU ns",
        "timeline",
        "blame",
        "report, ns",
        "KiB/1000",
        "peak, MiB"
    );
    for power in 4..=up_to {
        let waits = 10_u64.pow(power);
        for threads in [1, 2] {
            let (one, other) = (run(waits, threads)?, run(waits, threads)?);
            print(threads, if one.wall() <= other.wall() { &one } else { &other });
        }
    }
    println!(
        "\nCPU ns, timeline, blame and report: a wait each. `waits/s` is from records to blame: timeline and \
         blame, report not included; memory is that of the recording and of all of it, while blame is found."
    );
    Ok(())
}

impl Run {
    /// From the records to blame.
    fn wall(&self) -> u64 {
        self.timeline_ns + self.prepare_ns + self.blame_ns
    }
}

fn print(threads: u32, run: &Run) {
    let each = |ns: u64| ns as f64 / run.waits as f64;
    println!(
        "{:>9} {threads:>8} {:>14.0} {:>10.0} {:>8.0} {:>8.0} {:>14.0} {:>12} {:>10}",
        run.waits,
        1e9 / each(run.wall()),
        each(run.cpu_ns),
        each(run.timeline_ns),
        each(run.prepare_ns + run.blame_ns),
        each(run.report_ns),
        format!(
            "{} / {}",
            run.recording_kib * 1000 / run.waits,
            run.blame_peak_kib * 1000 / run.waits
        ),
        run.peak_kib / 1024,
    );
}

/// Compiles `profiler/benches/blame.rs`, so that no run of it has to.
pub(crate) fn compile() -> anyhow::Result<()> {
    command::run(command::cargo().args([
        "bench",
        "--package",
        "offwake",
        "--bench",
        "blame",
        "--no-run",
    ]))
}

fn run(waits: u64, threads: u32) -> anyhow::Result<Run> {
    run_with(&[&waits.to_string()], threads)
}

/// Runs `profiler/benches/blame.rs` once, and reads what it prints.
pub(crate) fn run_with<T: DeserializeOwned>(arguments: &[&str], threads: u32) -> anyhow::Result<T> {
    let mut bench = command::cargo();
    bench.args(["bench", "--quiet", "--package", "offwake", "--bench", "blame", "--"]);
    let output = bench
        .args(arguments)
        .env("RAYON_NUM_THREADS", threads.to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run the benchmark")?;
    ensure!(output.status.success(), "the benchmark failed: {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let line =
        text.lines().find(|line| line.starts_with('{')).context("the benchmark said nothing")?;
    serde_json::from_str(line).with_context(|| format!("the benchmark said {line:?}"))
}
