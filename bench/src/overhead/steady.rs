//! offwake's own CPU time and memory at a constant rate of switches, over a minute.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::Context as _;

use super::setup::OverheadSetup;
use crate::{
    load_count::LoadCount,
    process::{self, Memory, megabytes},
};
use xtask::markdown_table::MarkdownTable;

/// Switches a second that the load is asked for.
const RATE: u32 = 100_000;

/// What was used up to a moment of the recording.
struct UsageSample {
    at: f64,
    cpu: f64,
    memory: Memory,
}

/// The recording.
pub struct Steady {
    load: LoadCount,
    /// From the window's opening on, the first at its very beginning.
    marks: Vec<UsageSample>,
    title: String,
}

/// Records with the default mode, and looks at it several times.
///
/// # Errors
///
/// When something can't be run.
pub fn measure(setup: &OverheadSetup) -> anyhow::Result<Steady> {
    eprintln!("bench: own CPU and memory at {RATE} switches a second");
    let load = setup.load("steady", RATE)?;
    let stacks = setup.default_mode();
    let running = setup.record(stacks, &setup.file("steady.offwake"))?;
    let begin = Instant::now();
    let mut marks = Vec::new();
    for second in setup.effort.pick([0, 10, 15, 60], [0, 3, 5, 10]) {
        sleep(Duration::from_secs(second).saturating_sub(begin.elapsed()));
        marks.push(UsageSample {
            at: begin.elapsed().as_secs_f64(),
            cpu: process::cpu_seconds_of_all(running.pid())?,
            memory: process::memory(running.pid())?,
        });
    }
    running.stop()?;
    let load = LoadCount::read(&load.stop()?)?;
    Ok(Steady { load, marks, title: stacks.title() })
}

impl Steady {
    /// Share of one core, brought to exactly [`RATE`], over the whole time.
    pub fn core_at_rate(&self) -> anyhow::Result<f64> {
        let (first, last) =
            self.marks.first().zip(self.marks.last()).context("nothing was measured")?;
        Ok(self.core_between(first, last) * f64::from(RATE) / self.load.rate())
    }

    /// The most that was resident at any time.
    pub fn peak(&self) -> u64 {
        self.marks.iter().map(|mark| mark.memory.peak).max().unwrap_or(0)
    }

    fn core_between(&self, from: &UsageSample, to: &UsageSample) -> f64 {
        (to.cpu - from.cpu) / (to.at - from.at)
    }

    pub fn table(&self) -> anyhow::Result<String> {
        let mut table = MarkdownTable::new([
            "after",
            "CPU since the beginning, of one core",
            "resident",
            "peak",
        ]);
        let first = self.marks.first().context("nothing was measured")?;
        for mark in &self.marks {
            let cpu = (mark.at > first.at + 1.0)
                .then(|| format!("{:.1} %", 100.0 * self.core_between(first, mark)));
            table.push_row([
                format!("{:.0} s", mark.at),
                cpu.unwrap_or_default(),
                format!("{:.0} MB", megabytes(mark.memory.resident)),
                format!("{:.0} MB", megabytes(mark.memory.peak)),
            ]);
        }
        Ok(format!(
            "{}, {:.0} switches a second by the load's own count.\n\n{}",
            self.title,
            self.load.rate(),
            table.markdown()
        ))
    }
}
