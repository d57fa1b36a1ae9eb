//! From Ctrl-C to the last byte of the output, with very many waits recorded.

use std::{
    path::Path,
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::ensure;

use super::{
    bpf_times,
    full_speed::{self, FullSpeed, busy_cpus},
    setup::OverheadSetup,
};
use crate::{
    process::{self, megabytes},
    running::{Running, Stop},
};
use xtask::markdown_table::MarkdownTable;

/// One run of offwake and how long it took to finish.
pub struct Finish {
    what: &'static str,
    waits: u64,
    counted: WaitCount,
    /// `None` if it ended before it was told to.
    split: Option<StopTimes>,
}

/// How the number of waits is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitCount {
    /// The report of the recording counts them.
    Exactly,
    /// The rate of another recording just before, times the length of this one.
    ByRate,
}

/// What can be told apart from outside, in seconds from the signal on.
#[derive(Clone, Copy, Debug)]
pub struct StopTimes {
    /// Until it holds no BPF program any more: the window is closed and everything is detached.
    detached: Option<f64>,
    /// Until it ended, its output complete.
    ended: f64,
    /// CPU time of it, all threads.
    cpu: f64,
    /// The most that was resident, in bytes.
    peak: u64,
}

/// Of `profile`, which has the recording in memory. With the default it has been seen to close its
/// window by itself before ten million waits.
const MEMORY: [&str; 2] = ["--max-memory", "8G"];

/// Stops `record`, `profile -o x.svg`, and times `report -o x.svg` of the same recording, which has
/// no window to close.
///
/// # Errors
///
/// When something can't be run.
pub fn measure(setup: &OverheadSetup) -> anyhow::Result<Vec<Finish>> {
    let waits: u64 = setup.effort.pick(10_000_000, 1_000_000);
    eprintln!("bench: from stop to output, {waits} waits");
    let rate = full_speed::record(setup, setup.default_mode(), Duration::from_secs(3))?;
    let length = Duration::from_secs_f64(waits as f64 / FullSpeed::waits_per_second(&rate));
    let recording = setup.file("finish.offwake");
    let picture = setup.file("finish.svg");

    let record = setup.recorder("record", setup.default_mode(), &recording);
    let split = record_and_stop(record, length)?;
    let waits = setup.report(&recording)?.waits;
    let counted = WaitCount::Exactly;
    let mut all = vec![Finish { what: "record -o x.offwake", waits, counted, split }];

    let split = Some(time_report(setup, &recording, &picture)?);
    all.push(Finish { what: "report x.offwake -o x.svg", waits, counted, split });

    let mut profile = setup.recorder("profile", setup.default_mode(), &picture);
    profile.args(MEMORY);
    let split = record_and_stop(profile, length)?;
    let counted = WaitCount::ByRate;
    all.push(Finish { what: "profile --max-memory 8G -o x.svg", waits, counted, split });
    Ok(all)
}

/// Runs it for so long while every CPU is busy, lets them be idle, and stops it.
fn record_and_stop(mut command: Command, length: Duration) -> anyhow::Result<Option<StopTimes>> {
    let busy = busy_cpus()?;
    let mut running = Running::start(command.args(["--", "cat"]), Stop::Interrupt)?;
    sleep(length);
    // What is left to do is to be timed, not who else wants the CPUs.
    drop(busy);
    if running.still_runs()? { interrupt_and_watch(running).map(Some) } else { Ok(None) }
}

fn time_report(
    setup: &OverheadSetup,
    recording: &Path,
    picture: &Path,
) -> anyhow::Result<StopTimes> {
    let begin = Instant::now();
    let mut child = setup.reporter(recording, picture).stdout(Stdio::null()).spawn()?;
    let (mut cpu, mut peak) = (0.0, 0);
    while child.try_wait()?.is_none() {
        sample_usage(child.id(), &mut cpu, &mut peak);
        sleep(SAMPLE_INTERVAL);
    }
    let ended = begin.elapsed().as_secs_f64();
    ensure!(child.wait()?.success(), "offwake report failed");
    Ok(StopTimes { detached: None, ended, cpu, peak })
}

const SAMPLE_INTERVAL: Duration = Duration::from_millis(10);

/// Stops it and looks on until its end.
fn interrupt_and_watch(mut running: Running) -> anyhow::Result<StopTimes> {
    let pid = running.pid();
    let before = process::cpu_seconds_of_all(pid)?;
    let begin = Instant::now();
    running.ask_to_stop()?;
    let mut detached = None;
    let (mut cpu, mut peak) = (before, 0);
    while running.still_runs()? {
        sample_usage(pid, &mut cpu, &mut peak);
        if detached.is_none() && !bpf_times::holds_programs(pid) {
            detached = Some(begin.elapsed().as_secs_f64());
        }
        sleep(SAMPLE_INTERVAL);
    }
    let ended = begin.elapsed().as_secs_f64();
    running.end()?;
    Ok(StopTimes { detached, ended, cpu: cpu - before, peak })
}

/// Updates CPU time and peak memory while the process still runs, so that the last sample before
/// its end remains. Its own processes end before it, and are not in a sample after that.
fn sample_usage(pid: u32, cpu: &mut f64, peak: &mut u64) {
    if let (Ok(now), Ok(memory)) = (process::cpu_seconds_of_all(pid), process::memory(pid)) {
        *cpu = now.max(*cpu);
        *peak = memory.peak;
    }
}

impl Finish {
    /// Stopping with about ten million waits is what has a limit: what `report` takes is for
    /// comparison, and fewer waits prove nothing.
    pub fn has_a_target(&self) -> bool {
        self.waits >= 9_000_000 && self.split.is_none_or(|split| split.detached.is_some())
    }

    /// Seconds from the signal to the end.
    pub fn ended(&self) -> Option<f64> {
        self.split.map(|split| split.ended)
    }

    pub fn title(&self) -> String {
        let millions = self.waits as f64 / 1e6;
        format!("stop to output, symbols included: `{}`, {millions:.1} million waits", self.what)
    }
}

/// A row for each run.
pub fn table(all: &[Finish]) -> String {
    let mut table = MarkdownTable::new([
        "offwake …",
        "waits",
        "programs detached after",
        "ended after",
        "CPU time meanwhile",
        "peak memory",
    ]);
    for Finish { what, waits, counted, split } in all {
        let about = match counted {
            WaitCount::Exactly => "",
            WaitCount::ByRate => "about ",
        };
        let mut row =
            vec![format!("`{what}`"), format!("{about}{:.1} million", *waits as f64 / 1e6)];
        match split {
            None => row.push("ended before it was told to".to_owned()),
            Some(StopTimes { detached, ended, cpu, peak }) => row.extend([
                detached.map_or("–".to_owned(), |seconds| format!("{seconds:.2} s")),
                format!("{ended:.2} s"),
                format!("{cpu:.2} s"),
                format!("{:.0} MB", megabytes(*peak)),
            ]),
        }
        table.push_row(row);
    }
    table.markdown()
}
