//! Ctrl-C: while another program runs in the foreground, and as another program gets it.

use std::{io, process::Child};

use anyhow::Context as _;

/// Lets xtask outlive the Ctrl-C that ends the program it runs, to clean up after it.
///
/// A handler and not `SIG_IGN`, which the program would inherit.
///
/// # Errors
///
/// When the kernel refuses.
pub fn leave_interrupt_to_children() -> anyhow::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = nothing;
    // SAFETY: the handler does nothing, so whatever it interrupts finds everything as it was; glibc
    // restarts what it interrupted.
    let previous = unsafe { libc::signal(libc::SIGINT, handler as libc::sighandler_t) };
    if previous == libc::SIG_ERR {
        return Err(io::Error::last_os_error()).context("cannot handle Ctrl-C");
    }
    Ok(())
}

/// Sends a program what Ctrl-C would.
///
/// # Errors
///
/// When it has ended and was waited for already.
pub fn send_interrupt(child: &Child) -> anyhow::Result<()> {
    let pid = libc::pid_t::try_from(child.id()).context("a process id that no process has")?;
    // SAFETY: takes plain integers. The id is not another's: the child has not been waited for, as
    // that would need it to be borrowed mutably.
    let sent = unsafe { libc::kill(pid, libc::SIGINT) };
    if sent != 0 {
        return Err(io::Error::last_os_error()).context("cannot interrupt a program");
    }
    Ok(())
}
