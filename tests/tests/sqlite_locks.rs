//! Whom processes wait for that want the lock of a SQLite database. They ask for it, sleep, and ask again. The
//! programs know who had it when.

use std::path::Path;

use anyhow::{Result, ensure};
use offwake_tests::{
    gaps::check_gaps,
    offwake::Offwake,
    paths::{python_interpreter, scratch_directory},
    programs::Program,
    report::Report,
    thread_waits::{Holders, check_holders},
};

/// Nobody has the lock for 120 of some 600 ms, of which the sleep that is under way takes up to 100: 18 to 25 % were on
/// nobody, and more where the holders wait for a CPU between their turns.
const HOLDERS: Holders = Holders {
    cause: "timer",
    names: &["holder-0", "holder-1", "holder-2"],
    points: 0.08,
    on_nobody: 0.45,
};

fn profile(program: &Program, arguments: &[&str]) -> Result<Report> {
    let pid = program.pid().to_string();
    let plain = ["-p", &pid, "--budget", "none", "--max-overhead", "none", "-o", "x.json"];
    let outcome = Offwake::profile()?.args(plain).args(arguments).run()?;
    ensure!(outcome.status.success(), "{outcome}");
    outcome.report("x.json")
}

/// Checks whom a process waits for that wants to write, if the others have the lock for so many milliseconds.
fn check(journal: &str, times: [&str; 3]) -> Result<()> {
    let directory = scratch_directory()?;
    let log = directory.path().join("log");
    let arguments = [directory.path(), log.as_path(), Path::new(journal)];
    let arguments: Vec<&Path> = arguments.into_iter().chain(times.map(Path::new)).collect();
    let program = Program::script(&python_interpreter()?, "sqlite_holders.py", &arguments)?;
    let report = profile(&program, &["-d", "4s"])?;
    check_gaps(&report)?;
    drop(program);
    for loss in ["ring_full_file_lock", "file_lock_over_rate"] {
        ensure!(report.loss_count(loss) == 0, "{:?}", report.loss);
    }
    check_holders(&format!("{journal}, {times:?} ms"), &report, &log, HOLDERS)
}

#[test]
fn who_wants_to_write_waits_for_each_that_has_the_lock_for_as_long() -> Result<()> {
    for journal in ["rollback", "wal"] {
        check(journal, ["300", "120", "60"])?;
        check(journal, ["60", "120", "300"])?;
    }
    Ok(())
}

/// Too many refusals for a second, and for the ring: each has a counter, and no wait is lost.
#[test]
fn refusals_that_are_not_recorded_are_counted() -> Result<()> {
    const PROGRAM: &str = r#"
import fcntl, os, sys, tempfile
with tempfile.TemporaryFile() as file:
    begun, ready = os.pipe()
    if os.fork() == 0:
        fcntl.lockf(file, fcntl.LOCK_EX)
        os.write(ready, b".")
        sys.stdin.read()
    os.read(begun, 1)
    print("ready", flush=True)
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pass
"#;
    let directory = scratch_directory()?;
    let script = directory.path().join("asks.py");
    std::fs::write(&script, PROGRAM)?;
    let program = Program::script(&python_interpreter()?, &script.to_string_lossy(), &[])?;
    let report = profile(&program, &["-d", "1s"])?;
    ensure!(report.loss_count("file_lock_over_rate") > 0, "{:?}", report.loss);
    ensure!(report.loss.gaps == 0, "{:?}", report.loss);
    let report = profile(&program, &["-d", "1s", "--ring-size", "4096"])?;
    ensure!(report.loss_count("ring_full_file_lock") > 0, "{:?}", report.loss);
    Ok(())
}
