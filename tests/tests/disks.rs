//! Which disk a wait is for, and who else uses the same disk: filesystems on loop devices, and programs that
//! read from them and write to them.

use std::{
    collections::BTreeSet, fs, os::unix::fs::MetadataExt as _, path::Path, process::Command,
};

use anyhow::{Context, Result, ensure};
use offwake_tests::{
    case::{Case, at_least},
    cgroup::Cgroup,
    ground_truth::Activity,
    loop_disk::LoopDisk,
    offwake::Offwake,
    paths,
    programs::{Compiled, Program, Source},
    report::{Blame, FindingDisk, Named},
    workload::Workload,
    workloads::disk_users::{READ_AT_ONCE, WRITTEN_AT_ONCE},
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
    let waiter = workload.role("waiter")?.pid;
    let name = first.name()?;
    // It may read as often as it likes to, and only writes.
    let cgroup = Cgroup::with_slow_disk("writer", &numbers_of(&name)?, 1_000_000)?;
    cgroup.adopt(waiter)?;
    let waiter = waiter.to_string();
    let case = Case::profile_with(workload, |offwake, _| offwake.args(["--pid", &waiter]))?;
    let finding = case.report.findings.iter().find(|finding| finding.disk.is_some());
    let finding = finding.with_context(|| format!("no disk: {:#?}", case.report.findings))?;
    let mount_point = scratch.path().join("first");
    let words = format!("waits for the disk {name} (ext4, ");
    ensure!(finding.text.contains(&words), "{words}: {finding:#?}");
    let disk = finding.disk.clone().context("no disk")?;
    ensure!(disk.device == name && disk.filesystem == "ext4", "{disk:?}");
    ensure!(Path::new(&disk.mount_point) == mount_point, "{disk:?}");
    let file = disk.file.as_deref().context("no file")?;
    ensure!(Path::new(file) == mount_point.join("waiter"), "{disk:?}");
    // Where a thread of the kernel is the last on the chain, no limit is told.
    if let Some(limit) = &disk.limit {
        let is_right = limit.unit == "reads" && limit.per_second == 1_000_000;
        ensure!(is_right && !limit.is_cause && limit.used_share < 0.01, "{limit:?}");
    }
    Ok(([name, second.name()?], disk, case))
}

/// Returns the numbers of a block device: `7:0`.
fn numbers_of(name: &str) -> Result<String> {
    Ok(fs::read_to_string(format!("/sys/block/{name}/dev"))?.trim().to_owned())
}

/// Workers of the kernel's write what is to be synced, now to one disk and now to the other. What such a worker did for
/// the other process before it was set to work is nothing that the first one waits for.
#[test]
fn who_has_a_worker_of_the_kernel_write_waits_for_nobody_that_it_wrote_for_before() -> Result<()> {
    let scratch = paths::scratch_directory()?;
    let memory = Path::new("/dev/shm");
    let first = LoopDisk::make(memory, &scratch.path().join("first"))?;
    let second = LoopDisk::make(memory, &scratch.path().join("second"))?;
    let workload = Workload::start_with("two-disks-synced", |directory| {
        for disk in ["first", "second"] {
            std::os::unix::fs::symlink(scratch.path().join(disk), directory.join(disk))?;
        }
        Ok(())
    })?;
    let case = Case::profile_with(workload, |offwake, workload| {
        offwake.args(["--pid", &workload.pids()])
    })?;
    drop((first, second));
    for (waiter, other) in [("one", "other"), ("other", "one")] {
        let other = case.pid(other);
        let blame = || case.report.waits_of(case.pid(waiter), None).flat_map(|waits| &waits.blame);
        let sum = |holds: &dyn Fn(&Blame) -> bool| -> u64 {
            blame().filter(|blame| holds(blame)).map(|blame| blame.ns).sum()
        };
        let is_worker = |hop: &Named| hop.comm.starts_with("kworker");
        let (all, by_workers, wrong) = (
            sum(&|_| true),
            sum(&|blame| blame.chain.iter().any(is_worker)),
            sum(&|blame| blame.chain.iter().any(|hop| hop.tgid == other)),
        );
        println!(
            "| {waiter}: {all} ns waited, {by_workers} behind workers, {wrong} behind the other |"
        );
        ensure!(
            at_least(by_workers, 0.05, all),
            "workers had little to do: {by_workers} of {all} ns"
        );
        ensure!(!at_least(wrong, 0.002, all), "{wrong} of {all} ns are on the other process");
    }
    Ok(())
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

/// How often the readers of pages may read.
const READS_PER_SECOND: u32 = 25;

fn compile(file: &str) -> Result<Compiled> {
    let flags = &["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"];
    Compiled::compile_one(Source { compiler: "cc", file, flags })
}

/// Two threads want one page that a slow disk has: their cgroup may hardly read from it. The second one comes as the first one waits for it, and waits until
/// the page is unlocked: for the same disk, and nobody else. Another process writes to that disk.
#[test]
fn who_wants_a_page_that_is_being_read_waits_for_its_disk() -> Result<()> {
    let scratch = paths::scratch_directory()?;
    let mount_point = scratch.path().join("disk");
    let disk = LoopDisk::make(Path::new("/dev/shm"), &mount_point)?;
    let name = disk.name()?;
    let cgroup = Cgroup::with_slow_disk("page-readers", &numbers_of(&name)?, READS_PER_SECOND)?;
    let compiled = compile("page_readers.c")?;
    let start = |what: &str, file: &str| {
        let mut command = Command::new(compiled.path("page_readers"));
        command.arg(what).arg(mount_point.join(file));
        Program::start_and_wait(&mut command, paths::scratch_directory()?)
    };
    let (readers, writer) = (start("read", "page")?, start("write", "written")?);
    cgroup.adopt(readers.pid())?;
    let pid = readers.pid().to_string();
    let arguments = ["-p", &pid, "-d", "3s", "--budget", "none", "-o", "x.json"];
    let outcome = Offwake::profile()?.args(arguments).run()?;
    ensure!(outcome.status.success(), "{outcome}");
    let report = outcome.report("x.json")?;
    let writer_pid = writer.pid();
    drop((readers, writer));
    for thread in ["first", "second"] {
        let tid = report.threads.iter().find(|it| it.comm == thread).context(thread)?.tid;
        let waits = report.waits_of(tid, Some("disk"));
        let blame: Vec<_> = waits.flat_map(|waits| &waits.blame).collect();
        let sum = |holds: &dyn Fn(&Blame) -> bool| -> u64 {
            blame.iter().filter(|blame| holds(blame)).map(|blame| blame.ns).sum()
        };
        let (all, of_disk) = (sum(&|_| true), sum(&|blame| blame.kind == "disk"));
        // The kernel's workers and the first reader are on the way.
        let wrong = sum(&|blame| blame.chain.iter().any(|hop| hop.tgid == writer_pid));
        println!(
            "| {thread}: {all} ns waited for the disk, {of_disk} on it, {wrong} on the writer |"
        );
        ensure!(all > 1_000_000_000, "{thread} hardly waited: {all} ns");
        ensure!(at_least(of_disk, 0.9, all), "{thread}: {of_disk} of {all} ns: {blame:#?}");
        ensure!(wrong == 0, "{thread}: {wrong} of {all} ns are on the writer: {blame:#?}");
    }
    let finding = report.findings.first().context("no finding")?;
    let path = cgroup.path().file_name().context("no name")?.to_string_lossy();
    let words = format!(
        "waits at its I/O limit (cgroup /{path} may read {READS_PER_SECOND} times/s from {name})"
    );
    ensure!(finding.text.contains(&words), "{words}: {finding:#?}");
    // The writer is innocent: the readers would wait without it as well.
    let told = finding.lines.iter().any(|line| line.text.contains("others used"));
    ensure!(!told, "{finding:#?}");
    let found = finding.disk.as_ref().context("no disk")?;
    ensure!((found.device.as_str(), found.filesystem.as_str()) == (&name, "ext4"), "{found:?}");
    let limit = found.limit.as_ref().context("no limit")?;
    ensure!(limit.cgroup == format!("/{path}") && limit.is_cause, "{limit:?}");
    println!("| {limit:?} |");
    // One read at a time uses it up as far as this. Nobody else reads from this disk, and what it has is in memory.
    ensure!((0.6..1.3).contains(&limit.used_share), "{limit:?}");
    let device_ns = limit.device_ns.context("the device's requests are not known")?;
    ensure!(device_ns > 0 && !at_least(device_ns, 0.5, limit.counted_ns), "{limit:?}");
    let used_up_ns = limit.used_up_ns.context("not known when it was used up")?;
    ensure!(at_least(used_up_ns, 0.5, limit.counted_ns), "{limit:?}");
    let file = found.file.as_deref().context("no file")?;
    ensure!(Path::new(file) == mount_point.join("page"), "{found:?}");
    ensure!(others(found) == BTreeSet::from([(Some(writer_pid), None)]), "{writer_pid}: {found:?}");
    Ok(())
}

/// It reads for 2 s, as often as it may, and then nothing for 4 s. In 6 s, the window has one such time, or parts of two.
#[test]
fn who_uses_an_io_limit_up_in_a_part_of_the_window_waits_at_it_then() -> Result<()> {
    let scratch = paths::scratch_directory()?;
    let mount_point = scratch.path().join("disk");
    let disk = LoopDisk::make(Path::new("/dev/shm"), &mount_point)?;
    let name = disk.name()?;
    let cgroup = Cgroup::with_slow_disk("burst", &numbers_of(&name)?, READS_PER_SECOND)?;
    let compiled = compile("page_readers.c")?;
    let mut command = Command::new(compiled.path("page_readers"));
    command.arg("burst").arg(mount_point.join("page"));
    let reader = Program::start_and_wait(&mut command, paths::scratch_directory()?)?;
    cgroup.adopt(reader.pid())?;
    let pid = reader.pid().to_string();
    let arguments = ["-p", &pid, "-d", "6s", "-o", "x.json"];
    let outcome = Offwake::profile()?.args(arguments).run()?;
    ensure!(outcome.status.success(), "{outcome}");
    drop(reader);
    let report = outcome.report("x.json")?;
    let finding = report.findings.iter().find(|finding| finding.disk.is_some());
    let finding = finding.with_context(|| format!("no disk: {:#?}", report.findings))?;
    ensure!(finding.text.contains("waits at its I/O limit"), "{finding:#?}");
    let limit = finding.disk.as_ref().and_then(|disk| disk.limit.as_ref()).context("no limit")?;
    println!("| {limit:?} |");
    ensure!(limit.is_cause && (0.15..0.6).contains(&limit.used_share), "{limit:?}");
    let line = finding.lines.iter().find(|line| line.text.starts_with("used up for "));
    ensure!(line.is_some(), "{finding:#?}");
    Ok(())
}

/// How often it may read that could do so 27 times a second.
const MORE_THAN_THE_DISK: u32 = 30;

/// Each read takes the disk 37 ms: it does nearly as many as the limit allows, and the limit holds none back.
#[test]
fn who_reads_from_a_slow_disk_nearly_as_often_as_it_may_waits_for_that_disk() -> Result<()> {
    let scratch = paths::scratch_directory()?;
    let (mount_point, numbers) = (scratch.path().join("served"), scratch.path().join("numbers"));
    fs::create_dir(&mount_point)?;
    let compiled = compile("slow_disk.c")?;
    let mut command = Command::new(compiled.path("slow_disk"));
    command.args([&mount_point, &numbers]).arg("37");
    let reader = Program::start_and_wait(&mut command, paths::scratch_directory()?)?;
    let numbers = fs::read_to_string(&numbers)?;
    let cgroup = Cgroup::with_slow_disk("slow", numbers.trim(), MORE_THAN_THE_DISK)?;
    cgroup.adopt(reader.pid())?;
    let pid = reader.pid().to_string();
    let outcome = Offwake::profile()?.args(["-p", &pid, "-d", "3s", "-o", "x.json"]).run()?;
    ensure!(outcome.status.success(), "{outcome}");
    drop(reader);
    let report = outcome.report("x.json")?;
    let finding = report.findings.first().context("no finding")?;
    println!("| {} |", finding.text);
    for line in &finding.lines {
        println!("| {} |", line.text);
    }
    ensure!(finding.text.contains("waits for the disk"), "{finding:#?}");
    // A device without a filesystem is in the words alone.
    let fact = format!("may read {MORE_THAN_THE_DISK} times/s from loop");
    // On a busy machine it reads less often, and is still further from the limit.
    ensure!(finding.lines.iter().any(|line| line.text.contains(&fact)), "{finding:#?}");
    Ok(())
}

/// Profiles the waiter of a workload. Its disk is the first of two; `roles` says which of the two each of the
/// others uses. Returns what is said of the disk.
fn profile_beside(name: &str, roles: &[(&str, usize)]) -> Result<(FindingDisk, Case)> {
    let scratch = paths::scratch_directory()?;
    let memory = Path::new("/dev/shm");
    let mount_points = ["first", "second"].map(|name| scratch.path().join(name));
    let disks = (mount_points.iter())
        .map(|mount_point| LoopDisk::make(memory, mount_point))
        .collect::<Result<Vec<_>>>()?;
    let workload = Workload::start_with(name, |directory| {
        for &(role, disk) in [("waiter", 0)].iter().chain(roles) {
            std::os::unix::fs::symlink(&mount_points[disk], directory.join(role))?;
        }
        Ok(())
    })?;
    let waiter = workload.role("waiter")?.pid.to_string();
    let case = Case::profile_with(workload, |offwake, _| offwake.args(["--pid", &waiter]))?;
    drop(disks);
    let finding = case.report.findings.iter().find(|finding| finding.disk.is_some());
    let finding = finding.with_context(|| format!("no disk: {:#?}", case.report.findings))?;
    Ok((finding.disk.clone().context("no disk")?, case))
}

/// Demands that a role did `each` between any two of its pauses, give or take what the window's edges cut.
fn check_amount(case: &Case, role: &str, bytes: u64, each: u64) -> Result<()> {
    let pauses = case.log(role).intervals(Activity::Wait);
    let pauses =
        pauses.iter().filter(|pause| pause.clipped(case.window()).is_some()).count() as u64;
    println!("| {role}: {bytes} bytes, {pauses} pauses, {each} between any two |");
    ensure!(pauses >= 8, "{role}: only {pauses} pauses");
    let is_right = bytes >= (pauses - 1) * each && bytes <= (pauses + 1) * each;
    ensure!(is_right, "{role}: {bytes} bytes, {pauses} pauses, {each} between any two");
    Ok(())
}

#[test]
fn who_writes_to_a_disk_without_waiting_for_it_is_named_with_how_much() -> Result<()> {
    // Both directions: the other one is the neighbour.
    for (neighbour, stranger) in [("neighbour", "stranger"), ("stranger", "neighbour")] {
        let (disk, case) = profile_beside("beside-writers", &[(neighbour, 0), (stranger, 1)])?;
        let pid = case.pid(neighbour);
        ensure!(others(&disk) == BTreeSet::from([(Some(pid), None)]), "{pid}: {disk:?}");
        let written = disk.others[0].written_bytes.context("not counted")?;
        check_amount(&case, neighbour, written, WRITTEN_AT_ONCE)?;
        ensure!(case.report.loss_count("disk_users_evicted") == 0, "{:?}", case.report.loss);
    }
    Ok(())
}

#[test]
fn who_reads_from_a_disk_is_named_with_how_much() -> Result<()> {
    let (disk, case) = profile_beside("beside-a-reader", &[("reader", 0)])?;
    let pid = case.pid("reader");
    ensure!(others(&disk) == BTreeSet::from([(Some(pid), None)]), "{pid}: {disk:?}");
    let read = disk.others[0].read_bytes.context("not counted")?;
    check_amount(&case, "reader", read, READ_AT_ONCE)?;
    let (disk, _case) = profile_beside("beside-a-reader", &[("reader", 1)])?;
    ensure!(disk.others.is_empty(), "the reader has another disk: {disk:?}");
    Ok(())
}

/// Returns the numbers of the whole disk that a folder is on.
fn disk_below(folder: &Path) -> Result<String> {
    let device = fs::metadata(folder)?.dev();
    let device = format!("{}:{}", libc::major(device), libc::minor(device));
    let known = fs::canonicalize(format!("/sys/dev/block/{device}"))
        .with_context(|| format!("{} is on no block device", folder.display()))?;
    let disk = match known.join("partition").exists() {
        true => known.parent().context("a partition of no disk")?,
        false => &known,
    };
    Ok(fs::read_to_string(disk.join("dev"))?.trim().to_owned())
}

/// How often the reader may read, which would do so some 90 times a second.
const LIMITED_READS: u32 = 20;

#[test]
fn who_reads_as_often_as_its_cgroup_may_waits_at_that_limit_and_its_neighbour_does_not()
-> Result<()> {
    let scratch = paths::scratch_directory()?;
    let cgroup = Cgroup::with_slow_disk("reader", &disk_below(scratch.path())?, LIMITED_READS)?;
    for (target, is_limited) in [("reader", true), ("waiter", false)] {
        let workload = Workload::start_with("beside-a-reader", |directory| {
            for role in ["reader", "waiter"] {
                std::os::unix::fs::symlink(scratch.path(), directory.join(role))?;
            }
            Ok(())
        })?;
        cgroup.adopt(workload.role("reader")?.pid)?;
        let pid = workload.role(target)?.pid.to_string();
        let case = Case::profile_with(workload, |offwake, _| offwake.args(["--pid", &pid]))?;
        let finding = case.report.findings.iter().find(|finding| finding.disk.is_some());
        let finding = finding.with_context(|| format!("no disk: {:#?}", case.report.findings))?;
        let limit = finding.disk.as_ref().and_then(|disk| disk.limit.as_ref());
        let is_named = finding.text.contains("waits at its I/O limit");
        ensure!(is_named == is_limited, "{target}: {finding:#?}");
        ensure!(limit.is_some() == is_limited, "{target}: {finding:#?}");
        if let Some(limit) = limit {
            let is_right = limit.unit == "reads" && limit.per_second == u64::from(LIMITED_READS);
            ensure!(is_right && limit.is_cause, "{limit:?}");
            println!("| {limit:?} |");
            ensure!((0.6..1.3).contains(&limit.used_share), "{limit:?}");
            let path = cgroup.path().file_name().context("no name")?.to_string_lossy();
            ensure!(limit.cgroup == format!("/{path}"), "{limit:?}");
        }
    }
    Ok(())
}
