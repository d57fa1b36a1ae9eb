//! Processes and threads: their names, and that none outlives the gateway.

use std::{
    env,
    io::{BufRead as _, BufReader},
    os::unix::process::parent_id,
    process::{self, Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use anyhow::{Context as _, bail};

/// Starts this program in another role, and waits for the one line that it prints when ready.
pub fn start(role: &[&str]) -> anyhow::Result<(Child, String)> {
    let this = env::current_exe().context("cannot tell this program's own path")?;
    let mut child = Command::new(this)
        .arg(role[0])
        .arg(process::id().to_string())
        .args(&role[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
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
    // SAFETY: PR_SET_PDEATHSIG takes a signal number and touches no memory.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
        return Err(std::io::Error::last_os_error()).context("cannot ask to die with the parent");
    }
    // The parent may have ended before the kernel was asked.
    if parent_id().to_string() != parent {
        bail!("this role is started by the gateway alone");
    }
    Ok(())
}

/// Names the main thread; the process is shown by this name.
pub fn name(name: &std::ffi::CStr) -> anyhow::Result<()> {
    // SAFETY: PR_SET_NAME reads a string that ends in NUL, which a CStr is, and keeps no pointer.
    if unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) } != 0 {
        return Err(std::io::Error::last_os_error()).context("cannot name the thread");
    }
    Ok(())
}

/// The other processes are being stopped, and connections to them may break.
pub static STOPPING: AtomicBool = AtomicBool::new(false);

/// A named thread whose failure ends the process: a service that lost a part shows nothing true.
pub fn thread(
    name: String,
    work: impl FnOnce() -> anyhow::Result<()> + Send + 'static,
) -> anyhow::Result<()> {
    let shown = name.clone();
    thread::Builder::new()
        .name(name)
        .spawn(move || {
            if let Err(error) = work()
                && !STOPPING.load(Ordering::SeqCst)
            {
                eprintln!("offwake-demo: {shown}: {error:#}");
                process::exit(1);
            }
        })
        .context("cannot start a thread")?;
    Ok(())
}
