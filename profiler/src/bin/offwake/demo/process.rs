//! Processes and threads: their names, and that none outlives the gateway.

use std::{
    env,
    ffi::CStr,
    io::{BufRead as _, BufReader},
    os::unix::process::{CommandExt as _, parent_id},
    process::{self, Child, Command, Stdio},
    thread,
};

use anyhow::{Context as _, bail};
use rustix::process::Signal;

use super::{SERVICE, wire};

/// Starts this program in a role, and waits for the one line that it prints when ready.
pub fn start(role: &[&str]) -> anyhow::Result<(Child, String)> {
    let this = env::current_exe().context("cannot find the path of this program")?;
    let mut child = Command::new(this)
        // What the process is called in findings.
        .arg0(role[0])
        .args([SERVICE, role[0]])
        .arg(process::id().to_string())
        .args(&role[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // Ctrl-C is for offwake, which names the functions of processes that still live.
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start the {}", role[0]))?;
    let output = child.stdout.take().context("its output is not piped")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    if line.is_empty() {
        bail!("the {} stopped before it was ready", role[0]);
    }
    Ok((child, line.trim().to_owned()))
}

/// Has the kernel kill this process when its parent ends.
pub fn die_with(parent: &str) -> anyhow::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot ask to die with the parent")?;
    // The parent may have ended before the kernel was asked.
    if parent_id().to_string() != parent {
        bail!("its parent, {parent}, has ended");
    }
    Ok(())
}

/// Names the main thread; the process is shown by this name.
pub fn set_name(name: &CStr) -> anyhow::Result<()> {
    rustix::thread::set_name(name).context("cannot name the thread")
}

/// A named thread whose failure ends the process: a service that lost a part shows nothing true.
pub fn spawn_thread(
    name: String,
    work: impl FnOnce() -> anyhow::Result<()> + Send + 'static,
) -> anyhow::Result<()> {
    let shown = name.clone();
    thread::Builder::new()
        .name(name)
        .spawn(move || {
            if let Err(error) = work() {
                // When the service is stopped, its processes end one after the other.
                if !wire::is_hang_up(&error) {
                    eprintln!("offwake: demo service: {shown}: {error:#}");
                }
                process::exit(1);
            }
        })
        .context("cannot start a thread")?;
    Ok(())
}
