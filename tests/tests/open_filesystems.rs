//! Waits for filesystems that never end: one whose server waits itself, and one that is frozen.
//! There are two of each, of which one is waited for.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use offwake_tests::{
    loop_disk::LoopDisk,
    machine_lock::MachineLock,
    offwake::{Offwake, Outcome},
    paths::scratch_directory,
    process::{Process, wait_for_state},
    programs::{Compiled, Program, Source},
    report::Finding,
    wait_until::wait_until,
};

fn profile(target: u32) -> Result<(Outcome, Finding)> {
    let outcome =
        Offwake::profile()?.args(["-d", "1", "-p", &target.to_string(), "-o", "x.json"]).run()?;
    ensure!(outcome.status.success(), "{outcome}");
    println!("{}", outcome.terminal());
    let found = outcome.report("x.json")?.findings.into_iter().next();
    Ok((outcome, found.context("there are findings")?))
}

fn words(outcome: &Outcome) -> String {
    outcome.terminal().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A filesystem in user space whose server waits for a lock on a file, which somebody has.
struct LockedFilesystem {
    server: Program,
    holder: Process,
}

impl LockedFilesystem {
    fn start(program: &Path, lock: &Path) -> Result<Self> {
        let path = lock.to_str().context("a path")?;
        let holder = Process::start("flock", &["--no-fork", path, "sleep", "600"])?;
        let comm = format!("/proc/{}/comm", holder.pid());
        wait_until("the lock to be taken", || {
            Ok((fs::read_to_string(&comm)? == "sleep\n").then_some(()))
        })?;
        let mount = scratch_directory()?;
        let mut command = Command::new(program);
        command.arg(mount.path()).arg(lock);
        let server = Program::start_and_wait(&mut command, mount)?;
        let call = format!("/proc/{}/syscall", server.pid());
        wait_until("the server to wait for the lock", || {
            let number = format!("{} ", libc::SYS_flock);
            Ok(fs::read_to_string(&call)?.starts_with(&number).then_some(()))
        })?;
        Ok(Self { server, holder })
    }

    fn reader(&self) -> Result<u32> {
        let pids = self.server.pids()?;
        pids.into_iter().find(|pid| *pid != self.server.pid()).context("there is a reader")
    }
}

#[test]
fn what_the_server_of_a_filesystem_waits_for_is_told_of_who_reads_from_it() -> Result<()> {
    let flags = &["-O1", "-g", "-Wall", "-Wextra", "-Werror"];
    let compiled = Compiled::compile_one(Source { compiler: "cc", file: "locked_fs.c", flags })?;
    let locks = scratch_directory()?;
    let start =
        |name| LockedFilesystem::start(&compiled.path("locked_fs"), &locks.path().join(name));
    let both = [start("left")?, start("right")?];
    for (asked, other) in [(&both[0], &both[1]), (&both[1], &both[0])] {
        let reader = asked.reader()?;
        let (outcome, found) = profile(reader)?;
        let [server, holder] = [asked.server.pid(), asked.holder.pid()];
        let tids: Vec<_> = found.chain.iter().map(|hop| hop.tid).collect();
        ensure!(tids == [reader, server, holder].map(Some), "{found:#?}");
        ensure!(found.kind == "still_waiting", "{found:#?}");
        let functions: Vec<_> =
            found.chain.iter().filter_map(|hop| hop.function.as_deref()).collect();
        ensure!(functions.starts_with(&["reads_the_report", "takes_the_lock"]), "{found:#?}");
        let text = words(&outcome);
        for wanted in [
            "STILL WAITING".to_owned(),
            format!("waits for the FUSE server locked_fs {server}"),
            format!("locked_fs {server} still waits for a file lock held by sleep {holder}"),
            format!("sleep {holder} sleeps"),
        ] {
            ensure!(text.contains(&wanted), "no {wanted:?}: {text}");
        }
        for pid in [other.server.pid(), other.holder.pid()] {
            ensure!(!text.contains(&pid.to_string()), "{pid} has nothing to do with it: {text}");
        }
    }
    Ok(())
}

/// A filesystem that nobody can change until this is dropped.
struct Freeze<'p>(&'p Path);

impl<'p> Freeze<'p> {
    fn new(mount_point: &'p Path) -> Result<Self> {
        let status = Command::new("fsfreeze").arg("--freeze").arg(mount_point).status()?;
        ensure!(status.success(), "cannot freeze {}", mount_point.display());
        Ok(Self(mount_point))
    }
}

impl Drop for Freeze<'_> {
    fn drop(&mut self) {
        let thawed = Command::new("fsfreeze").arg("--unfreeze").arg(self.0).status();
        assert!(thawed.is_ok_and(|status| status.success()), "{} is frozen", self.0.display());
    }
}

#[test]
fn the_filesystem_that_is_frozen_is_named() -> Result<()> {
    let _machine_lock = MachineLock::acquire()?;
    let scratch = scratch_directory()?;
    let points = ["left", "right"].map(|name| scratch.path().join(name));
    let [left, right] =
        [&points[0], &points[1]].map(|point| LoopDisk::make(Path::new("/dev/shm"), point));
    let disks = [left?, right?];
    for frozen in [0, 1] {
        // Each has a file on a disk open, and writes once it is told to.
        let script = "exec 3>>\"$0\"; while read line; do echo order >&3; done";
        let mut writers = Vec::new();
        for point in &points {
            let path = point.join("orders");
            writers.push(Process::start("sh", &["-c", script, path.to_str().context("a path")?])?);
            wait_until("the file to be there", || Ok(path.exists().then_some(())))?;
        }
        let freeze = Freeze::new(&points[frozen])?;
        for writer in &mut writers {
            writer.write(b"\n")?;
        }
        let [waiting, beside] = [writers[frozen].pid(), writers[1 - frozen].pid()];
        wait_for_state(waiting, 'D')?;
        wait_for_state(beside, 'S')?;
        let (outcome, found) = profile(waiting)?;
        drop(freeze);
        let (name, point) = (disks[frozen].name()?, points[frozen].to_string_lossy());
        let text = words(&outcome);
        ensure!(found.kind == "still_waiting", "{found:#?}");
        let what = &found.chain[0].what;
        ensure!(what.starts_with("waits for the frozen filesystem "), "{found:#?}");
        ensure!(what.ends_with(&format!(" (ext4, {name})")), "{name}: {found:#?}");
        ensure!(text.contains("waits for the frozen filesystem"), "{text}");
        let disk = found.disk.as_ref().context("the disk is known")?;
        ensure!((&*disk.device, &*disk.mount_point) == (&*name, &*point), "{disk:#?}");
        let other = disks[1 - frozen].name()?;
        ensure!(!text.contains(&other), "{other} is not frozen: {text}");
    }
    Ok(())
}
