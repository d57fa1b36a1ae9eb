//! Tasks that block the event loop which runs them, and the same tasks where they do not.

use std::{path::Path, process::Command};

use anyhow::{Result, ensure};
use offwake_tests::{
    offwake::Offwake,
    paths::{node_binary, programs_directory, scratch_directory, tokio_program},
    programs::Program,
    report::{FindingHop, Report},
};

/// Profiles a program whose one task waits for 20 ms again and again, in this mode.
fn profile(command: &mut Command, mode: &str) -> Result<Report> {
    let program = Program::start_and_wait(command.arg(mode), scratch_directory()?)?;
    let pid = program.pid().to_string();
    Offwake::profile()?
        .args(["-p", &pid, "--no-inherit", "-d", "1s", "-o", "x.json"])
        .run()?
        .report("x.json")
}

/// How long a loop may wait in the window of 1 s although its tasks do not block it: V8 has locks of its
/// own. A task that blocks the loop does so for 20 ms of each 25.
const OF_ITS_OWN_NS: u64 = 100_000_000;

/// The time of findings in which somebody blocks an event loop.
fn blocked_ns(report: &Report) -> u64 {
    let blocks = |hop: &FindingHop| hop.blocked_loop.is_some();
    let findings = report.findings.iter().filter(|finding| finding.chain.iter().any(blocks));
    findings.map(|finding| finding.ns).sum()
}

/// Demands that a finding is about a task that blocks this event loop, by a function if it is known. The thread that
/// started the loop may still wait for its end.
fn blocks(report: &Report, event_loop: &str, function: Option<&str>) -> Result<()> {
    let is_it = report.findings.iter().filter_map(|finding| finding.chain.first()).any(|hop| {
        let named = function.is_none_or(|name| {
            hop.function.as_ref().is_some_and(|function| function.contains(name))
        });
        hop.blocked_loop.as_deref() == Some(event_loop) && named
    });
    ensure!(is_it && blocked_ns(report) > OF_ITS_OWN_NS, "{:#?}", report.findings);
    Ok(())
}

fn blocks_nobody(report: &Report) -> Result<()> {
    ensure!(report.waits.iter().any(|waits| waits.blocked_ns > 0), "it never waited");
    ensure!(blocked_ns(report) < OF_ITS_OWN_NS, "{:#?}", report.findings);
    Ok(())
}

fn script(interpreter: &Path, name: &str) -> Command {
    let mut command = Command::new(interpreter);
    command.arg(programs_directory().join("blocked_loops").join(name));
    command
}

#[test]
fn a_coroutine_of_asyncio_that_sleeps_blocks_its_loop() -> Result<()> {
    let python = Path::new("python3");
    let report = profile(&mut script(python, "loop.py"), "blocks")?;
    blocks(&report, "asyncio", Some("load_price"))?;
    blocks_nobody(&profile(&mut script(python, "loop.py"), "yields")?)
}

/// The call comes from within a callback, and waits in a loop of its own.
#[test]
fn a_callback_of_nodes_that_waits_for_a_child_blocks_its_loop() -> Result<()> {
    let node = node_binary()?;
    blocks(&profile(&mut script(&node, "loop.js"), "blocks")?, "libuv", None)?;
    blocks_nobody(&profile(&mut script(&node, "loop.js"), "yields")?)
}

#[test]
fn a_task_of_tokios_that_sleeps_blocks_its_worker() -> Result<()> {
    let tokio = tokio_program()?;
    let report = profile(&mut Command::new(&tokio), "blocks")?;
    blocks(&report, "tokio", Some("load_price"))?;
    blocks_nobody(&profile(&mut Command::new(&tokio), "yields")?)
}
