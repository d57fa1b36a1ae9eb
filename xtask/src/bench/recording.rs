//! What a recording costs: bytes and CPU time a wait, and memory over time.

use std::{
    fs,
    path::Path,
    process::{Child, Stdio},
    thread::available_parallelism,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};

use super::pipe::{PipeBenchmark, want_perf};
use crate::{build, command, root::Root, workspace};

/// The rate at which the writer must keep up on half a core.
const RATE: f64 = 500_000.0;

/// One recording, measured.
struct Measured {
    what: &'static str,
    waits: u64,
    seconds: f64,
    bytes: u64,
    own_cpu_ns: u64,
    lost: u64,
    /// Resident memory, in KiB, at a quarter of the time and at its end.
    memory: (u64, u64),
}

/// Records the pipe benchmark with offwake, with stacks and without, and once with
/// `perf sched record`, which has no stacks and two records a wait.
///
/// # Errors
///
/// When something can't be built or run.
pub fn measure(seconds: u32) -> anyhow::Result<()> {
    let root = Root::wanted_for("offwake")?;
    want_perf()?;
    build::build()?;
    let directory = tempfile::tempdir().context("cannot make a directory")?;
    let cpus = available_parallelism().map_or(1, usize::from);
    let all: Vec<Option<usize>> = (0..cpus).map(Some).collect();
    let exact = offwake(root, directory.path(), "exact", "stacks exact", &[None], seconds)?;
    let off = offwake(root, directory.path(), "off", "stacks off, every CPU", &all, seconds)?;
    let (perf_bytes, switches) = perf_sched(root, directory.path(), seconds.min(5))?;

    println!("\n{} s each, {cpus} CPUs, pipe benchmark\n", seconds);
    println!(
        "{:<26} {:>11} {:>10} {:>12} {:>12} {:>14} {:>6} {:>22}",
        "offwake record",
        "waits",
        "a second",
        "bytes/wait",
        "CPU ns/wait",
        "cores at 500k/s",
        "lost",
        "memory 1/4 … end, MiB"
    );
    for Measured { what, waits, seconds, bytes, own_cpu_ns, lost, memory } in [exact, off] {
        let count = waits as f64;
        let cpu = own_cpu_ns as f64 / count;
        println!(
            "{what:<26} {waits:>11} {:>10.0} {:>12.1} {cpu:>12.0} {:>14.2} {lost:>6} {:>10.1} … {:.1}",
            count / seconds,
            bytes as f64 / count,
            cpu * RATE / 1e9,
            memory.0 as f64 / 1024.0,
            memory.1 as f64 / 1024.0,
        );
    }
    println!(
        "{:<26} {switches:>11} switches, {:.1} bytes a switch",
        "perf sched record",
        perf_bytes as f64 / switches as f64
    );
    Ok(())
}

fn offwake(
    root: Root,
    directory: &Path,
    stacks: &str,
    what: &'static str,
    cpus: &[Option<usize>],
    seconds: u32,
) -> anyhow::Result<Measured> {
    let benchmarks =
        cpus.iter().map(|cpu| PipeBenchmark::start(*cpu)).collect::<anyhow::Result<Vec<_>>>()?;
    let recording = directory.join(format!("{stacks}.offwake"));
    let mut command = root.command(workspace::offwake()?);
    command.args(["record", "-a", "--stacks", stacks, "-d", &seconds.to_string(), "-o"]);
    command.arg(&recording).stdin(Stdio::null());
    command::say(&command);
    let begin = Instant::now();
    let mut child = command.spawn().context("cannot run offwake")?;
    let memory = watch_memory(&mut child, begin, Duration::from_secs(seconds.into()))?;
    let status = child.wait()?;
    ensure!(status.success(), "offwake failed: {status}");
    drop(benchmarks);

    let bytes = fs::metadata(&recording)?.len();
    let json = directory.join("report.json");
    let mut report = root.command(workspace::offwake()?);
    report.args(["report", "--max-memory", "16G"]).arg(&recording).arg("-o").arg(&json);
    command::quietly(report.stdout(Stdio::null()))?;
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&json)?)?;
    let number = |pointer: &str| report.pointer(pointer).and_then(serde_json::Value::as_u64);
    let waits = (report["waits"].as_array().into_iter().flatten())
        .filter_map(|waits| waits["count"].as_u64())
        .sum();
    let (own_cpu_ns, window, lost) = number("/meta/own_cpu_ns")
        .zip(number("/window/duration_ns"))
        .zip(number("/loss/records"))
        .map(|((own, window), lost)| (own, window, lost))
        .context("the report lacks what it must have")?;
    Ok(Measured { what, waits, seconds: window as f64 / 1e9, bytes, own_cpu_ns, lost, memory })
}

/// Resident memory at a quarter of the time and shortly before its end.
fn watch_memory(child: &mut Child, begin: Instant, length: Duration) -> anyhow::Result<(u64, u64)> {
    let pid = child.id();
    let (mut early, mut late) = (0, 0);
    while child.try_wait()?.is_none() && begin.elapsed() < length {
        // Under sudo it is sudo's child that matters.
        let resident = resident(pid).max(child_of(pid).map_or(0, resident));
        if begin.elapsed() < length / 4 {
            early = resident;
        }
        late = resident;
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok((early, late))
}

fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn child_of(pid: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Bytes that `perf sched record` writes, and how many switches that is of.
fn perf_sched(root: Root, directory: &Path, seconds: u32) -> anyhow::Result<(u64, u64)> {
    let _benchmark = PipeBenchmark::start(None)?;
    let data = directory.join("perf.data");
    let mut record = root.command("perf");
    record.args(["sched", "record", "-q", "-o"]).arg(&data);
    record.args(["--", "sleep", &seconds.to_string()]);
    command::run(record.stdout(Stdio::null()).stderr(Stdio::null()))?;
    let bytes = fs::metadata(&data)?.len();
    let mut script = root.command("perf");
    script.args(["script", "-F", "event", "-i"]).arg(&data);
    let events = command::ask(&mut script).context("perf can't read what it has recorded")?;
    let switches = events.lines().filter(|line| line.contains("sched_switch")).count() as u64;
    ensure!(switches > 0, "perf has recorded no switch");
    Ok((bytes, switches))
}
