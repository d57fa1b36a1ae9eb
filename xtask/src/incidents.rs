//! `cargo xtask incidents`: has offwake look at trouble with real software, whose cause is known.

use std::{
    env,
    ffi::OsString,
    process::{Command, ExitCode},
};

use anyhow::Context as _;

use xtask::{apt, build, packages, root::RootAccess, signal, workloads, workspace};

/// Builds offwake and the incidents, installs what these need, and runs them as root.
///
/// # Errors
///
/// When something can't be built, installed or started, or root is out of reach.
pub fn run(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let root = RootAccess::obtain_for("the incidents")?;
    build::build()?;
    let program = workloads::build_incidents()?;
    apt::install(&packages::for_tests())?;
    let mut incidents: Command = root.command("env");
    let mut set = OsString::from("OFFWAKE_BIN=");
    set.push(workspace::offwake_binary()?);
    incidents.arg(set);
    if let Some(target) = env::var_os("CARGO_TARGET_DIR") {
        let mut set = OsString::from("CARGO_TARGET_DIR=");
        set.push(target);
        incidents.arg(set);
    }
    incidents.arg(program).args(arguments);
    // They undo what they have set up.
    signal::leave_interrupt_to_children()?;
    let status = incidents.status().context("cannot run the incidents")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
