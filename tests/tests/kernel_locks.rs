//! Whom threads wait for that want a lock of the kernel's, where those who have it wait for a file system: the lock
//! of a directory, that of an address space, and that of a page. [`slow_fs.c`](../programs/slow_fs.c) is the file
//! system, and knows for how long each had it.
//!
//! Each test prints what is true, and what offwake says.

use std::process::Command;

use anyhow::{Result, ensure};
use offwake_tests::{
    gaps::check_gaps,
    offwake::Offwake,
    paths::scratch_directory,
    programs::{Compiled, Program, Source},
    thread_waits::{Holders, check_holders},
};

/// Checks whom a thread waits for that wants what others have for so many milliseconds.
fn check(what: &str, cause: &str, times: [&str; 3]) -> Result<()> {
    let flags = &["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"];
    let compiled = Compiled::compile_one(Source { compiler: "cc", file: "slow_fs.c", flags })?;
    let (mount, directory) = (scratch_directory()?, scratch_directory()?);
    let log = directory.path().join("log");
    let mut command = Command::new(compiled.path("slow_fs"));
    command.arg(mount.path()).arg(&log).arg(what).args(times);
    let program = Program::start_and_wait(&mut command, mount)?;
    let pid = program.pid().to_string();
    let arguments =
        ["-p", &pid, "-d", "2s", "--budget", "none", "--max-overhead", "none", "-o", "x.json"];
    let outcome = Offwake::profile()?.args(arguments).run()?;
    ensure!(outcome.status.success(), "{outcome}");
    let report = outcome.report("x.json")?;
    check_gaps(&report)?;
    drop(program);
    let names = &["holder-0", "holder-1", "holder-2"];
    // A share was off by 0 to 2 points, and 0 to 3 % of the wait were nobody's.
    let holders = Holders { cause, names, points: 0.06, on_nobody: 0.1 };
    check_holders(&format!("{what}, {times:?} ms"), &report, &log, holders)
}

/// In both directions.
fn check_both(what: &str, cause: &str) -> Result<()> {
    check(what, cause, ["40", "15", "5"])?;
    check(what, cause, ["5", "15", "40"])
}

#[test]
fn who_wants_the_lock_of_a_directory_waits_for_each_that_has_it_for_as_long() -> Result<()> {
    check_both("directory", "kernel_lock")
}

#[test]
fn who_wants_the_lock_of_an_address_space_waits_for_each_that_has_it_for_as_long() -> Result<()> {
    check_both("mappings", "kernel_lock")
}

/// Both wait for the disk, or what stands for one, and the second one for the first: that one asked for the page.
#[test]
fn who_reads_a_page_that_another_has_not_read_yet_waits_for_that_one() -> Result<()> {
    check_both("page", "disk")
}
