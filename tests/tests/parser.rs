//! The process that parses: what it can't do, and what it costs if it fails.

use std::{
    fs,
    process::{Child, Command},
};

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    offwake::{NOBODY, Offwake, Running},
    report::Report,
    wait_until::wait_until,
    workload::Workload,
};

const NAME: &str = "offwake-parser";

/// Killed and reaped when it is dropped.
struct Sleeping(Child);

impl Sleeping {
    /// A program that nothing has run yet while the recording lasts.
    fn start(program: &str) -> Result<Self> {
        Ok(Self(Command::new(program).arg("1000").spawn().context("cannot start it")?))
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

fn status(pid: u32, field: &str) -> Result<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).context("no such field")?;
    Ok(line.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The parser of a running offwake, if there is one.
fn parser_of(pid: u32) -> Result<Option<u32>> {
    for entry in fs::read_dir("/proc")? {
        let Some(id) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let is = |field: &str, value: &str| status(id, field).is_ok_and(|found| found == value);
        if is("Name:", NAME) && is("PPid:", &pid.to_string()) && !is("State:", "Z (zombie)") {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// Sends a signal to a process of offwake.
fn signal(pid: u32, signal: libc::c_int) {
    // SAFETY: takes plain integers; its parent, which is stopped by nobody, has not reaped it.
    unsafe { libc::kill(pid.cast_signed(), signal) };
}

/// A flight recorder that has written a snapshot, so that names were looked up.
fn recorder(workload: &Workload, offwake: Offwake) -> Result<(Running, u32)> {
    let mut recorder =
        offwake.args(["--keep", "2s", "-p", &workload.pids(), "-o", "x.offwake"]).start()?;
    recorder.wait_until_recording()?;
    snapshot(&mut recorder, 1)?;
    let parser = parser_of(recorder.pid())?.context("names were looked up, and nobody did")?;
    Ok((recorder, parser))
}

fn snapshot(recorder: &mut Running, number: u32) -> Result<()> {
    recorder.signal(libc::SIGUSR1)?;
    let path = recorder.path(&format!("x.{number}.offwake"));
    wait_until("the snapshot", || Ok(path.exists().then_some(())))
}

fn finish(mut recorder: Running) -> Result<Report> {
    recorder.signal(libc::SIGINT)?;
    let outcome = recorder.outcome()?;
    ensure!(outcome.status.success(), "{outcome}");
    outcome.report_of("x.offwake", &["-o", "x.json"])?.report("x.json")
}

/// What was waited for has the workload's functions.
fn is_named(report: &Report) -> bool {
    report.waits.iter().any(|wait| wait.stack.iter().any(|frame| frame.contains("ow_")))
        || report.waits.iter().any(|wait| wait.stack.iter().any(|frame| frame.contains("main")))
}

#[test]
fn it_has_no_rights_and_nothing_open_but_its_socket() -> Result<()> {
    let workload = Workload::start("pipe")?;
    for offwake in [Offwake::record()?, Offwake::record()?.called_by_nobody()?] {
        let (recorder, parser) = recorder(&workload, offwake)?;
        let ids = [NOBODY; 4].map(|id| id.to_string()).join(" ");
        for (field, expected) in [
            ("Uid:", ids.as_str()),
            ("Gid:", &ids),
            ("CapInh:", "0000000000000000"),
            ("CapPrm:", "0000000000000000"),
            ("CapEff:", "0000000000000000"),
            ("CapAmb:", "0000000000000000"),
            ("NoNewPrivs:", "1"),
            ("Seccomp:", "2"),
            ("Threads:", "2"),
        ] {
            let found = status(parser, field)?;
            ensure!(found == expected, "{field} {found}");
        }
        for thread in fs::read_dir(format!("/proc/{parser}/task"))? {
            let status = fs::read_to_string(thread?.path().join("status"))?;
            ensure!(
                status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1"),
                "{status}"
            );
            ensure!(status.contains("CapEff:\t0000000000000000"), "{status}");
        }
        for descriptor in fs::read_dir(format!("/proc/{parser}/fd"))? {
            let path = fs::read_link(descriptor?.path())?;
            let path = path.to_string_lossy();
            ensure!(path.starts_with("socket:") || path == "/dev/null", "{path} is open");
        }
        ensure!(fs::read(format!("/proc/{parser}/environ"))?.is_empty(), "it has an environment");
        let report = finish(recorder)?;
        ensure!(is_named(&report), "{:?}", report.waits);
        wait_until("its end", || Ok(parser_of(parser)?.is_none().then_some(())))?;
        ensure!(status(parser, "Name:").map_or(true, |name| name != NAME), "it is left behind");
    }
    Ok(())
}

#[test]
fn stopped_it_costs_the_names_that_it_was_asked_for_and_this_is_said() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let (mut recorder, parser) = recorder(&workload, Offwake::record()?)?;
    signal(parser, libc::SIGSTOP);
    let _sleeping = Sleeping::start("/usr/bin/sleep")?;
    // Each is a question, until one is about the program that is new.
    let mut number = 1;
    wait_until("its end", || {
        number += 1;
        snapshot(&mut recorder, number)?;
        Ok((parser_of(recorder.pid())? != Some(parser)).then_some(()))
    })?;
    recorder.signal(libc::SIGINT)?;
    let outcome = recorder.outcome()?;
    ensure!(outcome.status.success(), "{outcome}");
    let shown = outcome.report_of("x.offwake", &["-o", "x.json"])?;
    let report = shown.report("x.json")?;
    let counted = |name: &str| report.loss.counters.get(name).copied().unwrap_or(0);
    ensure!(counted("parser_silent") == 1, "{:?}", report.loss);
    ensure!(counted("parser_files_unread") == 1, "{:?}", report.loss);
    ensure!(is_named(&report), "{:?}", report.waits);
    let said = shown.terminal();
    ensure!(said.contains("of 1 files have no names"), "{said}");
    Ok(())
}

#[test]
fn killed_while_nobody_asks_it_costs_nothing() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let (mut recorder, parser) = recorder(&workload, Offwake::record()?)?;
    signal(parser, libc::SIGKILL);
    let _sleeping = Sleeping::start("/usr/bin/sleep")?;
    let mut number = 1;
    wait_until("another one", || {
        number += 1;
        snapshot(&mut recorder, number)?;
        Ok(parser_of(recorder.pid())?.is_some_and(|now| now != parser).then_some(()))
    })?;
    let report = finish(recorder)?;
    let counted = |name: &str| report.loss.counters.get(name).copied().unwrap_or(0);
    ensure!(counted("parser_died") == 1, "{:?}", report.loss);
    ensure!(counted("parser_files_unread") == 0, "{:?}", report.loss);
    ensure!(is_named(&report), "{:?}", report.waits);
    Ok(())
}
