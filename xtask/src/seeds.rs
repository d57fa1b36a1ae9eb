//! `cargo xtask seeds`: runs the property tests with inputs that no run had before.
//!
//! `cargo xtask test` always gives them the same inputs: whether a change lands depends on the change alone, and a
//! test that fails fails again.

use std::{
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, ensure};

use xtask::{command, workloads};

/// What proptest reads its seed from, a `u64`
/// (<https://docs.rs/proptest/1.12.0/proptest/test_runner/struct.Config.html#structfield.rng_seed>).
const VARIABLE: &str = "PROPTEST_RNG_SEED";

/// The seed of `cargo xtask test`.
const OF_TESTS: u64 = 1;

/// The packages with property tests of records, timeline and blame.
const PACKAGES: [&str; 4] = ["offwake", "offwake-analysis", "offwake-recording", "offwake-unwind"];

/// Has the tests of a command use the same inputs in every run, unless somebody has chosen a seed.
pub fn fix(tests: &mut Command) {
    if std::env::var_os(VARIABLE).is_none() {
        tests.env(VARIABLE, OF_TESTS.to_string());
    }
}

/// Runs the unit tests whose names contain `filter` with so many seeds, one after the other from that of the clock.
///
/// # Errors
///
/// With the seed, when a test fails. With that seed in the environment, it fails again.
pub fn search(count: u32, filter: Option<&str>) -> anyhow::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    for seed in (now.as_secs()..).take(count as usize) {
        eprintln!("xtask: seed {seed}");
        let mut tests = workloads::cargo_with_frame_pointers("test");
        tests.env(VARIABLE, seed.to_string()).args(["--quiet", "--lib", "--test", "pure"]);
        PACKAGES.iter().for_each(|package| {
            tests.args(["--package", package]);
        });
        tests.arg("--").args(filter);
        let outcome = command::run(&mut tests);
        ensure!(outcome.is_ok(), "a property fails: {VARIABLE}={seed} shows it again");
    }
    Ok(())
}
