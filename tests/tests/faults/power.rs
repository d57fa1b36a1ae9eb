//! The power fails: what a disk had at some moment is all that is left of a recording.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    clock, loop_disk::LoopDisk, machine_lock::MachineLock, offwake::Offwake, paths,
    workload::Workload,
};

/// A recording goes to the disk every five seconds. A slice is a second, and a busy machine needs some
/// time to write.
const AT_MOST_LOST: Duration = Duration::from_secs(5 + 1 + 2);

/// When the power fails, in milliseconds after recording began: somewhere in each of these stretches.
const MOMENTS: [(u64, u64); 4] = [(6500, 2000), (8500, 2000), (10500, 2000), (12500, 1000)];

/// A copy of the disk at one moment, its journal replayed, is what a machine finds that starts again.
#[test]
fn a_power_failure_costs_no_more_than_the_last_seconds() -> Result<()> {
    // Both make a disk of one name.
    let _machine_lock = MachineLock::acquire()?;
    let scratch = paths::scratch_directory()?;
    // Not in memory: the image is written like a disk.
    let backing = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let disk = LoopDisk::make(backing, &scratch.path().join("disk"))?;
    let recording = scratch.path().join("disk/x.offwake");
    let workload = Workload::start("sleeper")?;
    let recorder = Offwake::in_directory(scratch.path())?
        .args(["record", "-p", &workload.pids(), "-o"])
        .arg(&recording)
        .start_recording()?;
    let began = Instant::now();
    for (number, (from, length)) in MOMENTS.into_iter().enumerate() {
        let at = Duration::from_millis(from + clock::now_ns() % length);
        std::thread::sleep(at.saturating_sub(began.elapsed()));
        let failed_at = clock::now_ns();
        let found = disk.mount_snapshot(&scratch.path().join(format!("found-{number}")))?;
        let copy = scratch.path().join(format!("found-{number}/x.offwake"));
        let size = fs::metadata(&copy).with_context(|| format!("after {at:?}"))?.len();
        let report = Offwake::in_directory(scratch.path())?
            .args(["report", "-o", "x.json"])
            .arg(&copy)
            .run()?
            .report("x.json")
            .with_context(|| format!("after {at:?}, with {size} bytes"))?;
        ensure!(report.recording.cut_off, "{:?}", report.meta);
        let lost = Duration::from_nanos(failed_at.saturating_sub(report.window.end_ns));
        eprintln!("after {at:?}: {lost:?} are lost, {size} bytes are there");
        ensure!(lost < AT_MOST_LOST, "after {at:?}, {lost:?} are lost");
        drop(found);
    }
    let outcome = recorder.interrupt()?;
    ensure!(outcome.status.success(), "{outcome}");
    Ok(())
}

/// What offwake has said to be written is there, whole and under its name, if the power fails right after that.
#[test]
fn what_was_reported_and_exported_is_there_after_a_power_failure() -> Result<()> {
    // Both make a disk of one name.
    let _machine_lock = MachineLock::acquire()?;
    let scratch = paths::scratch_directory()?;
    let backing = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let disk = LoopDisk::make(backing, &scratch.path().join("disk"))?;
    let workload = Workload::start("sleeper")?;
    let recorded = Offwake::in_directory(scratch.path())?
        .args(["record", "-p", &workload.pids(), "-d", "500ms", "-o", "x.offwake"])
        .run()?;
    ensure!(recorded.status.success(), "{recorded}");
    for arguments in [
        &["report", "x.offwake", "-o", "disk/x.json", "-o", "disk/x.html"][..],
        &["export", "x.offwake", "disk/tables"],
    ] {
        let outcome = Offwake::in_directory(scratch.path())?.args(arguments).run()?;
        ensure!(outcome.status.success(), "{outcome}");
        let found = disk.mount_snapshot(&scratch.path().join(arguments[0]))?;
        let [written, left] =
            [scratch.path().join("disk"), scratch.path().join(arguments[0])].map(files_below);
        let (written, left) = (written?, left?);
        ensure!(written.len() >= 2, "only {:?} were written", written.keys());
        ensure!(written.keys().eq(left.keys()), "left: {:?} of {:?}", left.keys(), written.keys());
        ensure!(written == left, "a file is not whole");
        drop(found);
    }
    Ok(())
}

/// All files below a directory, by their paths in it.
fn files_below(directory: PathBuf) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut files = BTreeMap::new();
    let mut open = vec![directory.clone()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next)? {
            let path = entry?.path();
            if path.is_file() {
                files.insert(path.strip_prefix(&directory)?.to_path_buf(), fs::read(&path)?);
            } else if !path.ends_with("lost+found") {
                open.push(path);
            }
        }
    }
    Ok(files)
}
