//! Which disk a wait is for, and whom the same disk keeps waiting: filesystems on loop devices, and
//! programs that write to them.

use std::{collections::BTreeSet, path::Path};

use anyhow::{Context, Result, ensure};
use offwake_tests::{
    case::Case, loop_disk::LoopDisk, paths, report::FindingDisk, workload::Workload,
};

/// Profiles the one of three writers that writes to the first of two disks, whose images are in
/// `backing`. Returns the names of the disks, and what is said of the disk.
fn profile_writers(backing: &Path) -> Result<([String; 2], FindingDisk, Case)> {
    let scratch = paths::scratch_directory()?;
    let first = LoopDisk::make(backing, &scratch.path().join("first"))?;
    let second = LoopDisk::make(backing, &scratch.path().join("second"))?;
    let workload = Workload::start_with("three-writers", |directory| {
        for disk in ["first", "second"] {
            std::os::unix::fs::symlink(scratch.path().join(disk), directory.join(disk))?;
        }
        Ok(())
    })?;
    let waiter = workload.role("waiter")?.pid.to_string();
    let case = Case::profile_with(workload, |offwake, _| offwake.args(["--pid", &waiter]))?;
    let finding = case.report.findings.iter().find(|finding| finding.disk.is_some());
    let finding = finding.with_context(|| format!("no disk: {:#?}", case.report.findings))?;
    let name = first.name()?;
    let mount_point = scratch.path().join("first");
    let words = format!("waits for the disk {name} (ext4, ");
    ensure!(finding.text.contains(&words), "{words}: {finding:#?}");
    let disk = finding.disk.clone().context("no disk")?;
    ensure!(disk.device == name && disk.filesystem == "ext4", "{disk:?}");
    ensure!(Path::new(&disk.mount_point) == mount_point, "{disk:?}");
    let file = disk.file.as_deref().context("no file")?;
    ensure!(Path::new(file) == mount_point.join("waiter"), "{disk:?}");
    Ok(([name, second.name()?], disk, case))
}

fn others(disk: &FindingDisk) -> BTreeSet<(Option<u32>, Option<&str>)> {
    disk.others.iter().map(|other| (other.pid, other.device.as_deref())).collect()
}

#[test]
fn who_writes_to_another_disk_is_no_neighbour() -> Result<()> {
    let ([first, _], disk, case) = profile_writers(Path::new("/dev/shm"))?;
    // What the image is in has no disk.
    ensure!(disk.disks == [first], "{disk:?}");
    let neighbour = case.pid("neighbour");
    ensure!(others(&disk) == BTreeSet::from([(Some(neighbour), None)]), "{neighbour}: {disk:?}");
    Ok(())
}

#[test]
fn who_writes_to_another_device_on_the_same_disk_is_one() -> Result<()> {
    let backing = paths::scratch_directory()?;
    let ([first, second], disk, case) = profile_writers(backing.path())?;
    ensure!(!disk.disks.is_empty() && !disk.disks.contains(&first), "{disk:?}");
    let expected =
        [(Some(case.pid("neighbour")), None), (Some(case.pid("stranger")), Some(second.as_str()))];
    ensure!(others(&disk) == BTreeSet::from(expected), "{expected:?}: {disk:?}");
    Ok(())
}
