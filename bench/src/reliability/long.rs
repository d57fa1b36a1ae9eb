//! Every CPU at its full speed for a long time: memory stays where it is.

use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom},
    path::Path,
    thread::{available_parallelism, sleep},
    time::Duration,
};

use anyhow::{Context as _, ensure};

use super::{
    setup::{BlameDepth, ReliabilitySetup, stop_all},
    usage::{Usage, UsageSample},
};
use crate::{process::megabytes, running::Running};
use xtask::markdown_table::MarkdownTable;

/// What its memory may have grown by after the first quarter, of what it had then.
const FLAT: f64 = 0.05;
/// What is kept of a recording's beginning and of its end, so that a report of it finds room. Of a
/// multiple of eight bytes, as messages are.
const EXCERPT: u64 = 128 << 20;

/// Runs the load with nothing beside, and records it.
///
/// # Errors
///
/// When something can't be run, or does not hold.
pub fn measure(setup: &ReliabilitySetup) -> anyhow::Result<String> {
    let length = Duration::from_secs(setup.effort.pick(600, 20));
    eprintln!("bench: full speed for {} s", length.as_secs());
    let bare = {
        let loads = on_every_cpu(setup)?;
        sleep(Duration::from_secs(setup.effort.pick(20, 3)));
        stop_all(loads)?
    };
    let recording = setup.file("long.offwake");
    let loads = on_every_cpu(setup)?;
    let running = setup.record(&["--all"], &recording)?;
    let usage = Usage::watch(running.pid(), length, length / 60)?;
    running.stop()?;
    let rate = stop_all(loads)?;
    let bytes = fs::metadata(&recording)?.len();
    let excerpt = setup.file("excerpt.offwake");
    shorten(&recording, &excerpt)?;
    fs::remove_file(&recording)?;
    let report = setup.report(&excerpt, BlameDepth::Shallow)?;
    fs::remove_file(&excerpt)?;

    let first = usage.samples().first().context("nothing was measured")?;
    let mut table = MarkdownTable::new([
        "after",
        "own CPU since the beginning, of one core",
        "resident",
        "of it heap and stacks",
        "peak",
    ]);
    // Of sixty looks every sixth, and the last.
    for mark in usage.samples().iter().skip(1).step_by(6).chain(usage.samples().last()) {
        let UsageSample { at, cpu, memory } = mark;
        table.push_row([
            format!("{at:.0} s"),
            format!("{:.1} %", 100.0 * (cpu - first.cpu) / (at - first.at)),
            format!("{:.1} MB", megabytes(memory.resident)),
            format!("{:.1} MB", megabytes(memory.anonymous)),
            format!("{:.1} MB", megabytes(memory.peak)),
        ]);
    }
    let (early, late) = usage.early_and_late();
    ensure!(
        late as f64 <= early as f64 * (1.0 + FLAT),
        "memory is not flat: {early} bytes at a quarter of the time, {late} at its end\n\n{}",
        table.markdown()
    );
    Ok(format!(
        "{:.0} switches a second by the loads' own count, {bare:.0} with nothing beside. Lost records: {}. In the file: {:.0} MB. \
         Memory grew by {:.3} MB a minute after the first quarter.{}\n\n{}",
        rate,
        report.lost(),
        megabytes(bytes),
        usage.growth() * 60.0 / 1e6,
        match report.missing() {
            0 => String::new(),
            missing => format!(
                " Reported was its beginning and its end, without {missing} slices in between."
            ),
        },
        table.markdown()
    ))
}

fn on_every_cpu(setup: &ReliabilitySetup) -> anyhow::Result<Vec<Running>> {
    let cpus = available_parallelism().map_or(1, usize::from);
    (0..cpus).map(|cpu| setup.load_on(cpu, "ring", 2)).collect()
}

/// Copies the beginning of a recording and its end. Whoever reads that finds the next slice behind
/// what is cut through, and counts those that are missing.
fn shorten(recording: &Path, into: &Path) -> anyhow::Result<()> {
    let mut from = File::open(recording).context("there is no recording")?;
    let mut to = File::create(into).context("cannot make an excerpt")?;
    let length = from.metadata()?.len();
    io::copy(&mut from.by_ref().take(EXCERPT), &mut to)?;
    let rest = length.saturating_sub(EXCERPT);
    // The whole file is a multiple of eight bytes long.
    from.seek(SeekFrom::Start(length - rest.min(EXCERPT)))?;
    io::copy(&mut from, &mut to)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_is_left_as_it_is() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        fs::write(&from, b"0123456789abcdef")?;
        shorten(&from, &to)?;
        assert_eq!(fs::read(&to)?, b"0123456789abcdef");
        Ok(())
    }

    #[test]
    fn the_beginning_and_the_end_of_what_is_long_are_left() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        let file = File::create(&from)?;
        // A hole: nothing of it is written.
        file.set_len(3 * EXCERPT)?;
        shorten(&from, &to)?;
        assert_eq!(fs::metadata(&to)?.len(), 2 * EXCERPT);
        Ok(())
    }
}
