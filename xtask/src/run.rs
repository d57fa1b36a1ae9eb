//! `cargo xtask run`: offwake with the given arguments, or on the demo service.

use std::{
    ffi::OsString,
    fs,
    io::{BufRead as _, BufReader, ErrorKind},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    process::{Child, Command, ExitCode, ExitStatus, Stdio},
};

use anyhow::{Context as _, bail};

use xtask::{build, command, root::RootAccess, signal, workloads, workspace};

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

/// Builds offwake and the demo service, and profiles the one with the other for five seconds.
///
/// # Errors
///
/// When something can't be built or started, or root is out of reach.
pub fn profile_demo() -> anyhow::Result<ExitCode> {
    let root = RootAccess::obtain_for("offwake")?;
    build::build()?;
    let service = DemoService::start()?;
    let picture = workspace::root().join(PICTURE);
    // What lies there after the run is of this run.
    match fs::remove_file(&picture) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot replace {}", picture.display()));
        }
        _ => {}
    }

    let mut profile = root.command(workspace::offwake_binary()?);
    profile.args(["profile", "--pid", &service.pids.join(","), "-d", "5", "-o"]).arg(&picture);
    command::print(&profile);
    signal::leave_interrupt_to_children()?;
    let status = profile.status().context("cannot run offwake")?;
    drop(service);
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

/// The running demo service. It stops when this is dropped, and when xtask ends in any way: its
/// standard input ends then.
struct DemoService {
    child: Child,
    pids: Vec<String>,
}

impl DemoService {
    fn start() -> anyhow::Result<Self> {
        let program = workloads::build_demo()?;
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for offwake: it names the frames of processes that still live.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let output = child.stdout.take();
        // From here on it is stopped on every way out.
        let mut service = Self { child, pids: Vec::new() };
        let mut line = String::new();
        BufReader::new(output.context("its output is not piped")?).read_line(&mut line)?;
        service.pids = line
            .split_whitespace()
            .filter_map(|word| word.split_once('='))
            .map(|(_, pid)| pid.to_owned())
            .collect();
        if service.pids.is_empty() {
            bail!("the demo service stopped before it was ready");
        }
        eprintln!("xtask: the demo service runs: {}", line.trim());
        Ok(service)
    }
}

impl Drop for DemoService {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // Nothing is left to do if it can't be waited for.
        let _ = self.child.wait();
    }
}
