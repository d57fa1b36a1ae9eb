//! Ctrl-C while another program runs in the foreground.

use std::io;

use anyhow::Context as _;

/// Lets xtask outlive the Ctrl-C that ends the program it runs, to clean up after it.
///
/// A handler and not `SIG_IGN`, which the program would inherit.
///
/// # Errors
///
/// When the kernel refuses.
pub fn leave_to_children() -> anyhow::Result<()> {
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
