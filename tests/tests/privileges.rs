//! With whose rights things are done, and with how many of them.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, chown, symlink},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use offwake_tests::{
    offwake::{NOBODY, Offwake, Outcome},
    paths,
    wait_until::wait_until,
    workload::Workload,
};

/// The user and the capabilities of each thread, by its name.
fn threads(pid: u32) -> Result<BTreeMap<String, (u32, u64)>> {
    let mut threads = BTreeMap::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // It may have ended meanwhile.
        let Ok(status) = fs::read_to_string(thread?.path().join("status")) else { continue };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().next()).context(name.to_owned())
        };
        let capabilities = u64::from_str_radix(field("CapPrm:")?, 16)?;
        threads.insert(field("Name:")?.to_owned(), (field("Uid:")?.parse()?, capabilities));
    }
    Ok(threads)
}

/// A set of capabilities by their numbers in `linux/capability.h`.
fn capabilities(numbers: &[u32]) -> u64 {
    numbers.iter().fold(0, |all, number| all | 1 << number)
}

const DAC_OVERRIDE: u32 = 1;
const DAC_READ_SEARCH: u32 = 2;
const FOWNER: u32 = 3;
const NET_ADMIN: u32 = 12;
const SYS_PTRACE: u32 = 19;
const SYS_ADMIN: u32 = 21;
const SYS_NICE: u32 = 23;
const SYSLOG: u32 = 34;
const PERFMON: u32 = 38;
const BPF: u32 = 39;
const CHECKPOINT_RESTORE: u32 = 40;

#[test]
fn under_sudo_each_thread_is_the_callers_and_can_do_what_its_task_takes() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let running = Offwake::record()?
        .args(["-p", &workload.pids(), "-o", "x.offwake"])
        .called_by_nobody()?
        .start_recording()?;
    let all = ["offwake-drain", "offwake-look-up", "offwake-store"];
    let threads = wait_until("its threads", || {
        let threads = threads(running.pid())?;
        Ok(all.iter().all(|name| threads.contains_key(*name)).then_some(threads))
    })?;
    let counting = capabilities(&[BPF, PERFMON, SYS_ADMIN]);
    let naming = capabilities(&[DAC_READ_SEARCH, SYSLOG]);
    let looking_up = naming | capabilities(&[BPF, SYS_PTRACE, CHECKPOINT_RESTORE]);
    let asking = capabilities(&[DAC_OVERRIDE, DAC_READ_SEARCH, SYS_PTRACE]);
    let entering = capabilities(&[SYS_ADMIN, NET_ADMIN]);
    let recording = counting | looking_up | asking | entering | capabilities(&[SYS_NICE]);
    for (name, (user, can)) in &threads {
        let may = match name.as_str() {
            "offwake-drain" => counting,
            // It makes the threads that ask engines and that enter network namespaces.
            "offwake-look-up" => looking_up | asking | entering,
            "offwake-engines" | "offwake-follow" => asking,
            "offwake-store" | "offwake-build-i" | "offwake-labels" => naming,
            _ => recording,
        };
        ensure!(*user == NOBODY, "{name} is user {user}'s");
        ensure!(can & !may == 0, "{name} can do {can:x}, and needs {may:x}");
    }
    running.interrupt()?;
    Ok(())
}

/// The nice value of each thread of a process and of the processes that it has started, by its name.
fn nice_values(pid: u32) -> Result<BTreeMap<String, i64>> {
    let mut values = BTreeMap::new();
    let mut processes = vec![pid];
    while let Some(process) = processes.pop() {
        for thread in fs::read_dir(format!("/proc/{process}/task"))? {
            let path = thread?.path();
            // It may have ended meanwhile.
            let Ok(stat) = fs::read_to_string(path.join("stat")) else { continue };
            let (head, rest) = stat.rsplit_once(") ").context("no name")?;
            let name = head.split_once('(').context("no name")?.1;
            let nice = rest.split(' ').nth(16).context("no nice value")?;
            values.insert(name.to_owned(), nice.parse()?);
            let children = fs::read_to_string(path.join("children")).unwrap_or_default();
            for child in children.split_whitespace() {
                processes.push(child.parse()?);
            }
        }
    }
    Ok(values)
}

#[test]
fn under_sudo_what_would_lose_something_has_a_high_priority_and_the_rest_has_not() -> Result<()> {
    let running = Offwake::record()?
        .args(["-o", "x.offwake", "--", "sleep", "600"])
        .called_by_nobody()?
        .start_recording()?;
    let raised = [
        "offwake-drain",
        "offwake-look-up",
        "offwake-store",
        "offwake-unwind",
        "offwake-reader",
        "offwake-writer",
    ];
    let values = wait_until("its threads and processes", || {
        let values = nice_values(running.pid())?;
        let all = raised.iter().chain(&["sleep"]);
        Ok(all.into_iter().all(|name| values.contains_key(*name)).then_some(values))
    })?;
    for (name, nice) in &values {
        let expected = if raised.contains(&name.as_str()) { -20 } else { 0 };
        // Threads that the look-up thread starts have what it has.
        let its_own = ["offwake-engines", "offwake-build-i", "offwake-labels", "offwake-sockets"];
        let is_its_own = its_own.contains(&name.as_str());
        ensure!(*nice == expected || is_its_own, "{name} has {nice}: {values:?}");
    }
    running.interrupt()?;
    Ok(())
}

#[test]
fn under_sudo_a_command_is_the_callers_and_can_do_nothing_special() -> Result<()> {
    let script = "id -u; id -G; grep CapPrm: /proc/self/status; touch made";
    let outcome = Offwake::profile()?
        .args(["-o", "x.svg", "--", "sh", "-c", script])
        .called_by_nobody()?
        .run()?;
    ensure!(outcome.status.success(), "{outcome}");
    let nobody = NOBODY.to_string();
    let said: Vec<&str> = outcome.stdout.lines().take(3).collect();
    let can = said.get(2).and_then(|line| line.split_whitespace().last());
    ensure!(said[..2] == [&nobody, &nobody] && can == Some("0000000000000000"), "{said:?}");
    for name in ["x.svg", "made"] {
        let metadata = fs::metadata(outcome.path(name))?;
        ensure!((metadata.uid(), metadata.gid()) == (NOBODY, NOBODY), "{name}: {metadata:?}");
    }
    Ok(())
}

#[test]
fn under_sudo_nothing_is_written_where_the_caller_could_not() -> Result<()> {
    let roots = paths::scratch_directory()?;
    let refused = |output: &Path| {
        Offwake::profile()?
            .args(["-d", "200ms", "-o"])
            .arg(output)
            .called_by_nobody()?
            .run()?
            .check_failure(1, &["cannot write", "Permission denied"])
    };
    refused(&roots.path().join("new.svg"))?;
    let file = roots.path().join("there.svg");
    fs::write(&file, "root's")?;
    refused(&file)?;
    ensure!(fs::read_to_string(&file)? == "root's");
    Ok(())
}

#[test]
fn root_records_into_directories_of_others_and_leaves_nothing_else_there() -> Result<()> {
    let others = paths::scratch_directory()?;
    chown(others.path(), Some(NOBODY), Some(NOBODY))?;
    let file = others.path().join("x.offwake");
    let outcome = Offwake::record()?.args(["-d", "200ms", "-o"]).arg(&file).run()?;
    ensure!(outcome.status.success(), "{outcome}");
    let names: Vec<_> =
        fs::read_dir(others.path())?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    ensure!(names == [file], "{names:?}: {outcome}");
    Ok(())
}

#[test]
fn a_link_is_replaced_and_never_followed() -> Result<()> {
    let others = paths::scratch_directory()?;
    let (file, fifo) = (others.path().join("file"), others.path().join("fifo"));
    fs::write(&file, "another's")?;
    make_fifo(&fifo)?;
    let offwake = Offwake::profile()?;
    let directory = offwake.directory().to_owned();
    symlink(&file, directory.join("x.svg"))?;
    symlink(&fifo, directory.join("x.folded"))?;
    let outcome = offwake
        .args(["-d", "200ms", "-o", "x.svg", "-o", "x.folded", "--", "sleep", "0.1"])
        .run()?;
    ensure!(outcome.status.success(), "{outcome}");
    ensure!(fs::read_to_string(&file)? == "another's");
    for name in ["x.svg", "x.folded"] {
        let metadata = fs::symlink_metadata(outcome.path(name))?;
        ensure!(metadata.is_file() && metadata.len() > 0, "{name}: {metadata:?}");
    }
    Ok(())
}

fn make_fifo(path: &Path) -> Result<()> {
    let status = Command::new("mkfifo").arg(path).status()?;
    ensure!(status.success(), "mkfifo: {status}");
    Ok(())
}

/// Runs `offwake profile` as nobody who has these capabilities, and could have no others.
fn with(capabilities: &[&str], arguments: &[&str]) -> Result<Outcome> {
    let offwake = Offwake::profile()?;
    let set = capabilities.iter().fold("-all".to_owned(), |set, name| format!("{set},+{name}"));
    let [user, group] = ["--reuid", "--regid"].map(|what| format!("{what}={NOBODY}"));
    let directory = offwake.directory().to_owned();
    chown(&directory, Some(NOBODY), Some(NOBODY))?;
    offwake
        .binary(Path::new("/usr/bin/setpriv"))
        .args([user, group, "--clear-groups".to_owned()])
        .args(
            ["--inh-caps", "--ambient-caps", "--bounding-set"].map(|what| format!("{what}={set}")),
        )
        .arg(paths::offwake_binary()?)
        .arg("profile")
        .args(arguments)
        .run()
}

const NEEDED: [&str; 3] = ["bpf", "perfmon", "sys_ptrace"];

#[test]
fn three_capabilities_are_enough() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let arguments = ["-p", &workload.pids(), "-d", "500ms", "-o", "x.json"];
    let outcome = with(&NEEDED, &arguments)?;
    ensure!(outcome.status.success(), "{outcome}");
    let report = outcome.report("x.json")?;
    ensure!(report.threads.iter().any(|thread| thread.blocked_ns > 0), "{:?}", report.threads);
    let named = report.waits.iter().any(|waits| waits.has_frame("main"));
    ensure!(named, "no stack reaches main: {:?}", report.waits);
    Ok(())
}

/// The user and the capabilities of an offwake that waits for a recording on standard input.
fn rights_of_a_reader(arguments: &[&str], caller: Caller) -> Result<(u32, u64)> {
    let directory = paths::scratch_directory()?;
    let mut offwake = Command::new(paths::offwake_binary()?);
    offwake.args(arguments).current_dir(directory.path()).stdin(Stdio::piped());
    if let Caller::NobodyBySudo = caller {
        chown(directory.path(), Some(NOBODY), Some(NOBODY))?;
        let id = NOBODY.to_string();
        offwake.env("SUDO_UID", &id).env("SUDO_GID", &id);
    }
    let mut child = offwake.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let rights = wait_until("it to read standard input", || {
        let waits_for = fs::read_to_string(format!("/proc/{}/syscall", child.id()))?;
        // read(0, …)
        let is_reading = waits_for.starts_with(&format!("{} 0x0 ", libc::SYS_read));
        is_reading.then(|| threads(child.id())).transpose()
    });
    let ended = child.kill().and_then(|()| child.wait());
    let rights = rights?;
    ended?;
    let main = rights.get("offwake").context("there is no main thread")?;
    ensure!(rights.values().all(|its| its == main), "threads of several rights: {rights:?}");
    Ok(*main)
}

#[derive(Clone, Copy)]
enum Caller {
    Root,
    NobodyBySudo,
}

#[test]
fn a_recording_is_read_with_the_right_to_write_outputs_alone() -> Result<()> {
    let recording = Offwake::record()?.args(["-d", "200ms", "-o", "x.offwake"]).run()?;
    ensure!(recording.status.success(), "{recording}");
    let there = recording.path("x.offwake").display().to_string();
    for arguments in [
        &["report", "-", "-o", "x.svg"][..],
        &["report", "-", "--resymbolize"],
        &["report", "-", "--diff", &there, "-o", "x.svg"],
        &["export", "-", "exported"],
    ] {
        let sudo = rights_of_a_reader(arguments, Caller::NobodyBySudo)?;
        ensure!(sudo == (NOBODY, 0), "{arguments:?}: {sudo:x?}");
        let root = rights_of_a_reader(arguments, Caller::Root)?;
        let writing = capabilities(&[DAC_OVERRIDE, FOWNER, SYSLOG]);
        ensure!(root == (0, writing), "{arguments:?}: {root:x?}");
    }
    Ok(())
}

#[test]
fn a_command_has_none_of_the_capabilities_that_offwake_was_started_with() -> Result<()> {
    let sets = ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"];
    let outcome = with(&NEEDED, &["--", "sh", "-c", "cat /proc/self/status"])?;
    ensure!(outcome.status.success(), "{outcome}");
    for name in sets {
        let line = outcome.stdout.lines().find(|line| line.starts_with(name));
        let set = line.and_then(|line| line.split_whitespace().last());
        ensure!(set == Some("0000000000000000"), "{name} {set:?}: {outcome}");
    }
    Ok(())
}

#[test]
fn the_capability_that_is_missing_is_named() -> Result<()> {
    for missing in NEEDED {
        let others: Vec<&str> = NEEDED.into_iter().filter(|name| *name != missing).collect();
        let name = format!("CAP_{}", missing.to_uppercase());
        with(&others, &["-d", "200ms"])?.check_failure(1, &["lacks", &name])?;
    }
    Ok(())
}
