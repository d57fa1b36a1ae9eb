//! Hangs by locks of languages' runtimes, which have no owner beside the futex: locks of Python's `threading`,
//! monitors of Java, and its `ReentrantLock`. Each program has one culprit by construction, and another thread that had the
//! lock before and sleeps as well.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use offwake_tests::{
    offwake::{Offwake, Outcome},
    paths::python_interpreter,
    programs::Program,
    report::{Finding, Report},
};

/// Profiles a program that hangs.
fn profile(program: &Program) -> Result<(Report, Outcome)> {
    let pid = program.pid().to_string();
    let outcome = (Offwake::profile()?).args(["-p", &pid, "-d", "2s", "-o", "x.json"]).run()?;
    ensure!(outcome.status.success(), "{outcome}");
    let report = outcome.report("x.json")?;
    println!("{}", outcome.terminal());
    Ok((report, outcome))
}

fn python(arguments: &[&str]) -> Result<Program> {
    let arguments: Vec<&Path> = arguments.iter().map(Path::new).collect();
    Program::script(&python_interpreter()?, "deadlocks.py", &arguments)
}

/// Which locks a program in Java hangs by.
const MONITORS: &str = "java/Monitors.java";
const LOCKS: &str = "java/Locks.java";

fn java(source: &str, arguments: &[&str]) -> Result<Program> {
    let arguments: Vec<&Path> = arguments.iter().map(Path::new).collect();
    Program::script(Path::new("java"), source, &arguments)
}

fn first(report: &Report) -> Result<&Finding> {
    report.findings.first().context("there are findings")
}

/// Demands that the first finding is a deadlock of two threads, and returns the hops.
fn check_deadlock(report: &Report) -> Result<[String; 2]> {
    let found = first(report)?;
    ensure!(found.kind == "deadlock", "{:#?}", report.findings);
    let [left, right] = found.chain.as_slice() else {
        anyhow::bail!("two threads wait for each other: {found:#?}")
    };
    for hop in [left, right] {
        ensure!(hop.what.contains("for a lock held by thread "), "{found:#?}");
    }
    ensure!(left.tid != right.tid, "{found:#?}");
    Ok([left, right].map(|hop| format!("{hop:?}")))
}

/// Demands that the first finding is a wait for a lock of one who sleeps, and returns both hops.
fn check_held(report: &Report) -> Result<[String; 2]> {
    let found = first(report)?;
    ensure!(found.kind == "still_waiting", "{:#?}", report.findings);
    let [waiter, holder] = found.chain.as_slice() else {
        anyhow::bail!("one waits, and one sleeps: {found:#?}")
    };
    ensure!(waiter.what.contains("for a lock held by thread "), "{found:#?}");
    ensure!(holder.what == "sleeps", "{found:#?}");
    let is_deadlock = |text: &str| text.to_lowercase().contains("deadlock");
    ensure!(!report.findings.iter().any(|found| is_deadlock(&found.kind)), "{found:#?}");
    Ok([waiter, holder].map(|hop| format!("{hop:?}")))
}

#[test]
fn two_threads_of_python_that_want_each_others_lock_are_a_deadlock() -> Result<()> {
    for kind in ["lock", "rlock"] {
        let program = python(&["deadlock", kind])?;
        let (report, outcome) = profile(&program)?;
        let hops = check_deadlock(&report)?.concat();
        for function in ["move_left (deadlocks.py:", "move_right (deadlocks.py:"] {
            ensure!(hops.contains(function), "{kind}: {hops}");
            ensure!(outcome.terminal().contains(function), "{kind}: {outcome}");
        }
    }
    Ok(())
}

#[test]
fn who_sleeps_with_a_lock_of_python_is_the_cause() -> Result<()> {
    for kind in ["lock", "rlock"] {
        for (holder, other) in [("left", "right"), ("right", "left")] {
            let program = python(&[holder, kind])?;
            let (report, _) = profile(&program)?;
            let [waits, sleeps] = check_held(&report)?;
            ensure!(waits.contains("book_order (deadlocks.py:"), "{kind}: {waits}");
            ensure!(
                sleeps.contains(&format!("export_{holder} (deadlocks.py:")),
                "{kind}: {sleeps}"
            );
            let all = format!("{:?}", first(&report)?);
            ensure!(!all.contains(&format!("export_{other}")) && !all.contains("rest"), "{all}");
        }
    }
    Ok(())
}

#[test]
fn two_threads_of_java_that_want_each_others_lock_are_a_deadlock() -> Result<()> {
    for source in [MONITORS, LOCKS] {
        let program = java(source, &["deadlock"])?;
        let (report, _) = profile(&program)?;
        let hops = check_deadlock(&report)?;
        let found = first(&report)?;
        for (hop, owner) in [("left", "right"), ("right", "left")] {
            let held = format!("held by thread {owner}");
            let is_its =
                |text: &&String| text.contains(&format!("\"{hop}\"")) && text.contains(&held);
            ensure!(hops.iter().filter(is_its).count() == 1, "{source} {hop}: {found:#?}");
        }
    }
    Ok(())
}

#[test]
fn who_sleeps_with_a_lock_of_java_is_the_cause() -> Result<()> {
    for source in [MONITORS, LOCKS] {
        for (holder, other) in [("left", "right"), ("right", "left")] {
            let program = java(source, &[holder])?;
            let (report, _) = profile(&program)?;
            let [waits, sleeps] = check_held(&report)?;
            ensure!(
                waits.contains("\"waiter\"") && sleeps.contains(&format!("\"{holder}\"")),
                "{source}: {waits}"
            );
            let all = format!("{:?}", first(&report)?);
            ensure!(!all.contains(&format!("\"{other}\"")), "{source}: {all}");
        }
    }
    Ok(())
}

/// Jobs of a pool wait for jobs that nobody is left to do, or for jobs of another pool, which sleep.
#[test]
fn a_pool_whose_jobs_wait_for_the_same_pool_cannot_go_on() -> Result<()> {
    for (what, is_closed) in [("full", true), ("sleeping", false)] {
        let program = Program::script(&python_interpreter()?, "full_pool.py", &[Path::new(what)])?;
        let (report, outcome) = profile(&program)?;
        let closed = "all 4 threads of the process wait for one another: deadlocked, or idle";
        let lines = || report.findings.iter().flat_map(|found| &found.lines);
        let is_told = lines().any(|line| line.text.starts_with(closed));
        ensure!(is_told == is_closed, "{what}: {outcome}");
        let names_job = outcome.terminal().contains("price_order (full_pool.py:");
        ensure!(!is_closed || names_job, "{what}: {outcome}");
    }
    Ok(())
}
