//! Waits at pipes that never end, and who has the other end: workloads in which each end is held by one
//! process, known by construction, and others that do the same without it.

use std::{collections::BTreeSet, fs, path::Path, process::Command, process::Stdio};

use anyhow::{Context, Result, ensure};
use offwake_tests::{
    case::{Case, WINDOW, duration_argument},
    machine_lock::MachineLock,
    offwake::Offwake,
    paths::scratch_directory,
    process::Process,
    report::Finding,
    wait_until::wait_until,
    workload::Workload,
};

/// Waits until a thread is in this call.
fn wait_for_call(pid: u32, tid: u32, call: libc::c_long) -> Result<()> {
    let path = format!("/proc/{pid}/task/{tid}/syscall");
    let wanted = format!("{call} ");
    wait_until("the thread to wait", || {
        Ok(fs::read_to_string(&path)?.starts_with(&wanted).then_some(()))
    })
}

/// Profiles one role of a workload once all of `waiters` are in this call.
fn profile(name: &str, waiters: &[&str], call: libc::c_long, target: &str) -> Result<Case> {
    let workload = Workload::start(name)?;
    for waiter in waiters {
        let player = workload.role(waiter)?;
        wait_for_call(player.pid, player.tid, call)?;
    }
    let pid = workload.role(target)?.pid.to_string();
    Case::profile_with(workload, |offwake, _| offwake.args(["--pid", &pid]))
}

fn functions(found: &Finding) -> Vec<&str> {
    found.chain.iter().map(|hop| hop.function.as_deref().unwrap_or_default()).collect()
}

#[test]
fn whoever_has_the_other_end_of_a_pipe_is_the_cause() -> Result<()> {
    for (name, holder, call, first) in [
        ("pipe-not-read-by-left", "left", libc::SYS_write, "to read"),
        ("pipe-not-read-by-right", "right", libc::SYS_write, "to read"),
        ("pipe-not-written-by-left", "left", libc::SYS_read, "to write to a pipe or close it"),
        ("pipe-not-written-by-right", "right", libc::SYS_read, "to write to a pipe or close it"),
    ] {
        let case = profile(name, &["waiter"], call, "waiter").context(name)?;
        let found = case.report.findings.first().context("there are findings")?;
        ensure!(found.kind == "still_waiting", "{name}: {found:#?}");
        let tids: Vec<_> = found.chain.iter().map(|hop| hop.tid).collect();
        let expected = ["waiter", holder].map(|role| Some(case.tid(role)));
        ensure!(tids == expected, "{name}: {expected:?}: {found:#?}");
        ensure!(found.chain[0].what.contains(first), "{name}: {found:#?}");
        ensure!(functions(found)[1].contains("sleeps_with_the_other_end"), "{name}: {found:#?}");
        let all = format!("{:?}", case.report.findings);
        ensure!(!all.contains("beside_it") && !all.contains("bystander"), "{name}: {all}");
    }
    Ok(())
}

#[test]
fn two_that_write_to_each_other_are_a_deadlock() -> Result<()> {
    for target in ["left", "right"] {
        let case = profile("pipes-both-write", &["left", "right"], libc::SYS_write, target)?;
        let found = case.report.findings.first().context("there are findings")?;
        ensure!(found.kind == "deadlock", "{found:#?}");
        let tids: BTreeSet<_> = found.chain.iter().filter_map(|hop| hop.tid).collect();
        ensure!(tids == BTreeSet::from(["left", "right"].map(|it| case.tid(it))), "{found:#?}");
        ensure!(found.chain[0].tid == Some(case.tid(target)), "{target}: {found:#?}");
        let in_function = |name: &&str| name.contains("writes_without_end");
        ensure!(functions(found).iter().all(in_function), "{found:#?}");
    }
    Ok(())
}

#[test]
fn two_that_wait_for_a_word_of_each_other_are_none() -> Result<()> {
    let case = profile("pipes-both-read", &["left", "right"], libc::SYS_read, "left")?;
    let findings = &case.report.findings;
    ensure!(findings.iter().all(|found| found.kind != "deadlock"), "{findings:#?}");
    let tids: Vec<_> = (findings.first().into_iter())
        .flat_map(|found| found.chain.iter().filter_map(|hop| hop.tid))
        .collect();
    ensure!(tids == ["left", "right"].map(|role| case.tid(role)), "{findings:#?}");
    Ok(())
}

/// The classic of Python's `subprocess`: a parent that reads one of two pipes to its end, or none, and a
/// child that has no room in the other one.
const PARENT: &str = r#"
import subprocess, sys

CHILD = """
import sys, time

def print_warnings():
    for _ in range(100_000):
        sys.stderr.write("a warning\\n")

def compute_rows():
    time.sleep(600)

{}()
"""

def read_rows(child):
    child.stdout.read()

def await_end(child):
    child.wait()

child = subprocess.Popen(
    [sys.executable, "-c", CHILD.replace("{}", sys.argv[2])],
    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
print(child.pid, flush=True)
globals()[sys.argv[1]](child)
"#;

/// Records a parent that does this with a child that does that, and returns what was found, with the two
/// processes.
fn parent_and_child(
    folder: &Path,
    parent_does: &str,
    child_does: &str,
    calls: [libc::c_long; 2],
) -> Result<(Vec<Finding>, [u32; 2])> {
    use std::io::{BufRead as _, BufReader};
    let script = folder.join("report.py");
    fs::write(&script, PARENT)?;
    let child = Command::new("/usr/bin/python3")
        .args([script.as_os_str(), parent_does.as_ref(), child_does.as_ref()])
        .stdout(Stdio::piped())
        .spawn();
    let mut parent = Process(child.context("cannot start python3")?);
    let mut line = String::new();
    let stdout = parent.0.stdout.take().context("it has no standard output")?;
    BufReader::new(stdout).read_line(&mut line)?;
    let pids = [parent.pid(), line.trim().parse()?];
    let result = (|| {
        for (pid, call) in pids.into_iter().zip(calls) {
            wait_for_call(pid, pid, call)?;
        }
        let outcome = Offwake::profile()?
            .args(["-d", &duration_argument(WINDOW), "-p", &pids[0].to_string(), "-o", "x.json"])
            .run()?;
        ensure!(outcome.status.success(), "{outcome}");
        Ok(outcome.report("x.json")?.findings)
    })();
    // SAFETY: plain integers; its parent has not reaped it, as that waits for it or its output.
    unsafe { libc::kill(pids[1].cast_signed(), libc::SIGKILL) };
    Ok((result?, pids))
}

#[test]
fn a_parent_and_a_child_without_room_are_a_deadlock() -> Result<()> {
    let _machine_lock = MachineLock::acquire()?;
    let folder = scratch_directory()?;
    for (parent_does, call) in [("read_rows", libc::SYS_read), ("await_end", libc::SYS_wait4)] {
        let calls = [call, libc::SYS_write];
        let (findings, pids) =
            parent_and_child(folder.path(), parent_does, "print_warnings", calls)?;
        let found = findings.first().context("there are findings")?;
        ensure!(found.kind == "deadlock", "{parent_does}: {findings:#?}");
        let tids: Vec<_> = found.chain.iter().filter_map(|hop| hop.tid).collect();
        ensure!(tids == pids, "{parent_does}: {pids:?}: {found:#?}");
        for (function, wanted) in functions(found).into_iter().zip([parent_does, "print_warnings"])
        {
            ensure!(function.starts_with(wanted), "{parent_does}: {found:#?}");
        }
        // Where the child works, the parent waits for that.
        let calls = [call, libc::SYS_clock_nanosleep];
        let (findings, pids) = parent_and_child(folder.path(), parent_does, "compute_rows", calls)?;
        ensure!(findings.iter().all(|found| found.kind != "deadlock"), "{findings:#?}");
        let found = findings.first().context("there are findings")?;
        let tids: Vec<_> = found.chain.iter().filter_map(|hop| hop.tid).collect();
        ensure!(tids == pids, "{parent_does}: {pids:?}: {found:#?}");
        ensure!(found.cause.text.contains("compute_rows"), "{parent_does}: {found:#?}");
    }
    Ok(())
}
