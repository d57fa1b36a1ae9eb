//! `cargo xtask incidents`: has offwake look at trouble with real software, whose cause is known.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;

use xtask::{apt, build, packages, root::RootAccess, signal, workloads, workspace};

/// Names another offwake than the one of this source: an older one, to compare.
const OFFWAKE_BIN: &str = "OFFWAKE_BIN";

/// Builds offwake and the incidents, installs what these need, and runs them as root.
///
/// # Errors
///
/// When something can't be built, installed or started, or root is out of reach.
pub fn run(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let root = RootAccess::obtain_for("the incidents")?;
    let offwake = if let Some(path) = env::var_os(OFFWAKE_BIN) {
        PathBuf::from(path)
    } else {
        build::build()?;
        workspace::offwake_binary()?
    };
    let program = workloads::build_incidents()?;
    apt::install(&packages::for_tests())?;
    // Sudo drops the environment; what the incidents read is handed on by name.
    let mut incidents = root.command("env");
    incidents.arg(variable(OFFWAKE_BIN, &offwake));
    if let Some(target) = env::var_os("CARGO_TARGET_DIR") {
        incidents.arg(variable("CARGO_TARGET_DIR", Path::new(&target)));
    }
    incidents.arg(program).args(arguments);
    // They undo what they have set up.
    signal::leave_interrupt_to_children()?;
    let status = incidents.status().context("cannot run the incidents")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn variable(name: &str, value: &Path) -> OsString {
    [OsStr::new(name), OsStr::new("="), value.as_os_str()].into_iter().collect()
}
