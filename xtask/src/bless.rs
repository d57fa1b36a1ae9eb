//! `cargo xtask bless`: takes what the golden tests and the programs are now as what they shall be.

use crate::instructions;
use xtask::{build, command};

/// Runs the golden tests, which write their files anew when `OFFWAKE_BLESS` is set, and counts the
/// programs' instructions.
///
/// # Errors
///
/// When a test fails all the same, or the programs can't be loaded.
pub fn bless() -> anyhow::Result<()> {
    command::run(command::cargo().env("OFFWAKE_BLESS", "1").args([
        "test",
        "--package",
        "offwake",
        "--package",
        "offwake-tests",
        "--",
        // Some tests are named for the file, others for what they compare.
        "golden",
        "blessed",
    ]))?;
    build::build()?;
    instructions::bless()?;
    eprintln!("xtask: blessed; look at what changed with `git diff` before you commit it");
    Ok(())
}
