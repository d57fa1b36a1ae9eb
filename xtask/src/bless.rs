//! `cargo xtask bless`: takes what the golden tests produce now as what they shall produce.

use crate::command;

/// Runs the golden tests, which write their files anew when `OFFWAKE_BLESS` is set.
///
/// # Errors
///
/// When a test fails all the same.
pub fn bless() -> anyhow::Result<()> {
    command::run(command::cargo().env("OFFWAKE_BLESS", "1").args([
        "test",
        "--package",
        "offwake",
        "--package",
        "offwake-tests",
        "golden",
    ]))?;
    eprintln!("xtask: blessed; look at what changed with `git diff` before you commit it");
    Ok(())
}
