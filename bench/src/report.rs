//! What a report takes, output by output: of a machine that sixty clients keep busy, or of any recording.

use std::{
    fs, io, mem,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};

use crate::{effort::Effort, overhead::workloads::Postgres, process::megabytes, spread::Spread};
use xtask::{build, markdown_table::MarkdownTable, root::RootAccess, signal, workspace};

/// Enough for 342,000 waits, which the aim is for, also on a slow machine.
const RECORDED: Duration = Duration::from_secs(12);
const CLIENTS: &str = "60";

/// The outputs, by the ends of their names; none is the first screen.
const OUTPUTS: [Option<&str>; 11] = [
    None,
    Some("md"),
    Some("svg"),
    Some("html"),
    Some("json"),
    Some("folded"),
    Some("speedscope.json"),
    Some("firefox.json"),
    Some("pb.gz"),
    Some("pftrace"),
    Some("parquet"),
];

/// What one run took.
struct Run {
    seconds: f64,
    cpu_seconds: f64,
    peak_bytes: u64,
}

/// Reports a recording in every format, by turns, and prints a table.
///
/// # Errors
///
/// When something can't be run.
pub fn measure(effort: Effort, recording: Option<PathBuf>) -> anyhow::Result<()> {
    build::build()?;
    let offwake = workspace::offwake_binary()?;
    let directory = tempfile::tempdir()?;
    let recording = match recording {
        Some(recording) => recording,
        None => {
            let recording = directory.path().join("busy.offwake");
            record_busy_machine(&offwake, directory.path(), &recording)?;
            recording
        }
    };
    let rounds = effort.pick(7, 3);
    let mut runs: Vec<(Vec<Run>, u64)> = OUTPUTS.iter().map(|_| (Vec::new(), 0)).collect();
    for round in 0..rounds {
        eprintln!("bench: reports, round {} of {rounds}", round + 1);
        for (output, (runs, size)) in OUTPUTS.iter().zip(&mut runs) {
            let file = output.map(|end| directory.path().join(format!("x.{end}")));
            runs.push(report(&offwake, &recording, file.as_deref())?);
            *size = file.map_or(Ok(0), |file| fs::metadata(&file).map(|it| it.len()))?;
        }
    }
    let columns = ["`report …`", "s (wall)", "s (CPU)", "peak, MB", "file, MB"];
    let mut table = MarkdownTable::new(columns);
    for (output, (runs, size)) in OUTPUTS.iter().zip(&runs) {
        let spread = |figure: fn(&Run) -> f64, digits| {
            let spread = Spread::from_figures(runs.iter().map(figure));
            spread.map_or(String::new(), |spread| spread.format(digits))
        };
        table.push_row([
            output.map_or("the summary alone".to_owned(), |end| format!("`-o x.{end}`")),
            spread(|run| run.seconds, 2),
            spread(|run| run.cpu_seconds, 2),
            spread(|run| megabytes(run.peak_bytes), 0),
            output.map_or("–".to_owned(), |_| format!("{:.1}", megabytes(*size))),
        ]);
    }
    println!("{}", table.markdown());
    Ok(())
}

/// Records all threads of the machine while pgbench keeps PostgreSQL busy.
fn record_busy_machine(offwake: &Path, directory: &Path, recording: &Path) -> anyhow::Result<()> {
    ensure!(RootAccess::obtain_for("recording")? == RootAccess::Already, "run this as root");
    let seconds = u32::try_from(RECORDED.as_secs())? + 4;
    let postgres = Postgres::start(&directory.join("postgres.log"), seconds)?;
    let mut clients = postgres.benchmark_with(CLIENTS);
    let mut clients = Ended(clients.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    sleep(Duration::from_secs(2));
    let mut record = Command::new(offwake);
    record.args(["record", "-a", "-d", &format!("{}s", RECORDED.as_secs()), "-o"]).arg(recording);
    ensure!(record.status().context("cannot run offwake")?.success(), "offwake record failed");
    ensure!(clients.0.wait()?.success(), "pgbench failed");
    Ok(())
}

/// A program that does not outlive this.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) && signal::send_interrupt(&self.0).is_ok() {
            drop(self.0.wait());
        }
    }
}

fn report(offwake: &Path, recording: &Path, output: Option<&Path>) -> anyhow::Result<Run> {
    let mut command = Command::new(offwake);
    command.arg("report").arg(recording).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(output) = output {
        command.arg("-o").arg(output);
    }
    let began = Instant::now();
    let child = command.spawn().context("cannot run offwake")?;
    let (status, usage) = wait_for(&child)?;
    let seconds = began.elapsed().as_secs_f64();
    if status != 0 {
        bail!("offwake report failed ({status:#x}): {output:?}");
    }
    let time = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(Run {
        seconds,
        cpu_seconds: time(usage.ru_utime) + time(usage.ru_stime),
        peak_bytes: u64::try_from(usage.ru_maxrss)? * 1024,
    })
}

/// Waits for the end of a child; returns its status and what it used.
fn wait_for(child: &Child) -> anyhow::Result<(i32, libc::rusage)> {
    let pid = libc::pid_t::try_from(child.id())?;
    let mut status = 0;
    // SAFETY: plain figures, all of which may be zero.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: both are places of the types that the call writes; the child is not waited for elsewhere.
    let ended = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
    ensure!(ended == pid, "cannot wait for offwake: {}", io::Error::last_os_error());
    Ok((status, usage))
}
