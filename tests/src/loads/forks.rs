//! A process that forks so often a second. Its children end at once, and nobody waits for them.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, ensure};

use super::{Count, until_told_to_stop};
use crate::{clock::now_ns, workloads::raw::nanosleep};

const MILLISECOND: u64 = 1_000_000;

pub(super) fn run(a_second: u32) -> Result<Count> {
    let burst = a_second / 1000;
    ensure!(burst > 0, "less than 1,000 forks a second are no load");
    // The kernel collects the children.
    // SAFETY: ignores a signal that nobody here waits for.
    let ignored = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    ensure!(ignored != libc::SIG_ERR, "cannot ignore children");
    let stopped = Arc::new(AtomicBool::new(false));
    let forker = {
        let stopped = Arc::clone(&stopped);
        thread::Builder::new()
            .spawn(move || fork_until(&stopped, burst))
            .context("cannot start a thread")?
    };
    let count = until_told_to_stop();
    stopped.store(true, SeqCst);
    let forks = forker.join().map_err(|_panic| anyhow!("the forking thread panicked"))??;
    Ok(Count { forks, ..count? })
}

/// A burst each millisecond. One that took too long is not made up for.
fn fork_until(stopped: &AtomicBool, burst: u32) -> Result<u64> {
    let mut forks = 0;
    let mut due = now_ns();
    while !stopped.load(SeqCst) {
        for _ in 0..burst {
            // SAFETY: the child calls nothing but what is safe in one of a process with threads.
            match unsafe { libc::fork() } {
                -1 => return Err(io::Error::last_os_error()).context("cannot fork"),
                // SAFETY: see above.
                0 => unsafe { libc::_exit(0) },
                _child => forks += 1,
            }
        }
        due = now_ns().max(due + MILLISECOND);
        nanosleep(Duration::from_nanos(due.saturating_sub(now_ns())));
    }
    Ok(forks)
}
