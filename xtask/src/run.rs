//! `cargo xtask run`: offwake with the given arguments, or its demo.

use std::{
    ffi::OsString,
    fs,
    io::ErrorKind,
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    process::{ExitCode, ExitStatus},
};

use anyhow::Context as _;

use xtask::{build, command, root::RootAccess, signal, workspace};

/// The picture of the demo, in the workspace's root.
const PICTURE: &str = "wait.svg";

/// Builds offwake and becomes it, so that signals and the exit status are its own.
///
/// # Errors
///
/// When it can't be built or started, or root is out of reach.
pub fn run_offwake(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let root = RootAccess::obtain_for("offwake")?;
    build::build()?;
    let program = workspace::offwake_binary()?;
    let error = root.command(&program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

/// Builds offwake, and runs its demo for five seconds.
///
/// # Errors
///
/// When it can't be built or started, or root is out of reach.
pub fn run_demo() -> anyhow::Result<ExitCode> {
    let root = RootAccess::obtain_for("offwake")?;
    build::build()?;
    let picture = workspace::root().join(PICTURE);
    // What lies there after the run is of this run.
    match fs::remove_file(&picture) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot replace {}", picture.display()));
        }
        _ => {}
    }

    let mut demo = root.command(workspace::offwake_binary()?);
    demo.args(["demo", "-o"]).arg(&picture);
    command::print(&demo);
    signal::leave_interrupt_to_children()?;
    let status = demo.status().context("cannot run offwake")?;
    if picture.exists() {
        println!("\nThe picture is {}: open it in a browser.", picture.display());
    }
    Ok(exit_code(status))
}

/// As a shell would put it: 128 and the signal's number for a program that a signal ended.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
