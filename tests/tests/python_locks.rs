//! Whom threads of Python programs wait for: for Python's lock, which is asked for every 5 ms, and for the
//! thread of a pool. The programs know who had what when.
//!
//! Each test prints what is true, and what offwake says.

use std::path::Path;

use anyhow::{Result, ensure};
use offwake_tests::{
    gaps::check_gaps,
    offwake::Offwake,
    paths::{python_interpreter, scratch_directory},
    programs::{Compiled, Program, Source},
    report::Report,
    thread_waits::{Holders, ThreadWaits, check_holders},
};

/// A thread that sleeps between two holds of the lock may be taken for the one that has it. A share was off by 1 to
/// 8 points, most beside compilers on all CPUs. Who had the lock as the time was up is not always known: it was
/// nobody's for 0 to 21 %, most beside compilers.
const HOLDERS: Holders = Holders {
    cause: "futex",
    names: &["holder-0", "holder-1", "holder-2"],
    points: 0.12,
    on_nobody: 0.35,
};

/// The part of the blame that may be on somebody who has nothing to do with it.
const WRONG: f64 = 0.02;

fn profile(program: &Program) -> Result<Report> {
    let pid = program.pid().to_string();
    let outcome = (Offwake::profile()?)
        .args([
            "-p",
            &pid,
            "-d",
            "2s",
            "--budget",
            "none",
            "--max-overhead",
            "none",
            "-o",
            "x.json",
        ])
        .run()?;
    ensure!(outcome.status.success(), "{outcome}");
    let report = outcome.report("x.json")?;
    check_gaps(&report)?;
    Ok(report)
}

/// Checks whom a thread waits for that wants the lock, if the others have it for so many microseconds.
fn check_lock(what: &str, times: [&str; 3]) -> Result<()> {
    let library = Compiled::compile_one(Source {
        compiler: "cc",
        file: "gil_holds.c",
        flags: &["-O1", "-shared", "-fPIC"],
    })?;
    let directory = scratch_directory()?;
    let log = directory.path().join("log");
    let library = library.path("gil_holds");
    let arguments = [library.as_path(), log.as_path(), Path::new(what)];
    let arguments: Vec<&Path> = arguments.into_iter().chain(times.map(Path::new)).collect();
    let program = Program::script(&python_interpreter()?, "gil_holders.py", &arguments)?;
    let report = profile(&program)?;
    drop(program);
    check_holders(&format!("{what}, {times:?} us"), &report, &log, HOLDERS)
}

#[test]
fn who_wants_pythons_lock_waits_for_each_that_has_it_for_as_long() -> Result<()> {
    check_lock("sleeps_with_it", ["40000", "15000", "5000"])?;
    check_lock("sleeps_with_it", ["5000", "15000", "40000"])?;
    check_lock("computes_with_it", ["40000", "15000", "5000"])?;
    check_lock("computes_with_it", ["5000", "15000", "40000"])
}

/// Checks whom a client waits for; returns the shares of the maker and of the pool's thread.
fn check_executor(preparation: &str, job: &str) -> Result<(f64, f64)> {
    let times = [preparation, job, "6"].map(Path::new);
    let program = Program::script(&python_interpreter()?, "executor.py", &times)?;
    let report = profile(&program)?;
    let waits = ThreadWaits::find(&report, "client", "futex")?;
    let (maker, pool) = (waits.share_of("maker")?, waits.share_of("pool")?);
    let (wrong, nobody) =
        (waits.share_through("bystander")?, waits.share_with_reason("event_loop"));
    println!(
        "| prepared for {preparation} ms, done in {job} ms | maker {maker:.3}, pool {pool:.3}, bystander {wrong:.3}, event_loop {nobody:.3} |"
    );
    ensure!(wrong <= WRONG, "{wrong} is on who had something else done");
    Ok((maker, pool))
}

/// What the pool's thread did before it got the client's job, it did for others.
#[test]
fn who_waits_for_a_job_of_a_pool_waits_for_whoever_prepared_it() -> Result<()> {
    let (maker, pool) = check_executor("15", "5")?;
    ensure!(maker > 0.3 && maker > pool, "maker {maker}, pool {pool}");
    let (maker, pool) = check_executor("3", "15")?;
    ensure!(pool > 0.6 && maker < 0.2, "maker {maker}, pool {pool}");
    Ok(())
}
