//! Loads for the benchmarks: threads that switch on one CPU, so many, from so many places, or so
//! often, as is asked, and a process that forks. They have no truth to tell but how often they did it.
//!
//! Each runs until its standard input is closed. Once all its threads are there it prints
//! `ready`, and in the end a line of JSON ([`Count`]). By hand, for five seconds:
//!
//! ```text
//! sleep 5 | offwake-load ring 1000
//! ```

mod baton;
mod forks;
mod paths;
mod ring;
mod steady;

use std::{
    io::{self, Read as _, Write as _},
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

/// A load: the number says how many of what, see [`LOADS`].
pub type Load = fn(u32) -> Result<Count>;

/// All loads by name.
pub const LOADS: &[(&str, Load)] = &[
    // So many threads, each of which wakes the next.
    ("ring", ring::run),
    // Two threads that wait in so many places in turn, each a call path of its own.
    ("paths", paths::run),
    // Two threads that wake each other so often a second, and sleep in between.
    ("steady", steady::run),
    // A process that forks so often a second.
    ("forks", forks::run),
];

/// What was done between `ready` and the end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Count {
    /// How often the threads of this process left a CPU, of their own will or not, as the kernel
    /// counts it.
    pub switches: u64,
    /// How often it forked.
    pub forks: u64,
    /// How long the load ran.
    pub seconds: f64,
}

/// Says that the threads run, and counts their switches until standard input ends.
fn until_told_to_stop() -> Result<Count> {
    let (begin, before) = (Instant::now(), switches()?);
    let mut out = io::stdout().lock();
    writeln!(out, "ready").and_then(|()| out.flush()).context("cannot write standard output")?;
    io::stdin().lock().read_to_end(&mut Vec::new()).context("cannot read standard input")?;
    Ok(Count {
        switches: switches()?.saturating_sub(before),
        forks: 0,
        seconds: begin.elapsed().as_secs_f64(),
    })
}

/// Switches of all threads of this process so far.
fn switches() -> Result<u64> {
    // SAFETY: plain integers, of which 0 is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid place to write to.
    let got = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    ensure!(got == 0, "cannot count switches: {}", io::Error::last_os_error());
    Ok(u64::try_from(usage.ru_nvcsw)? + u64::try_from(usage.ru_nivcsw)?)
}
