//! `offwake demo`: runs a service that is slow although its CPUs are idle, and says what holds it up.

mod gateway;
mod process;
mod service;
mod store;
mod wire;
mod worker;

use std::process::Child;

use anyhow::Context as _;
use clap::{Args as _, Command, FromArgMatches as _};

pub use service::serve;

use crate::{
    cli::{Demo, Profile},
    console::Terminal,
    outcome::Outcome,
    profile,
};

/// The hidden command that is the service.
const SERVICE: &str = "demo-service";

/// What a reader can compare the findings with.
const FAULT: &str = "
The fault of this service: every fifth query_cache keeps the lock of the cache while the store reads
its archive, which takes 50 ms. All other requests wait for that lock. The CPUs are idle meanwhile,
so a profile of on-CPU time does not show it.";

/// Runs the service, and profiles its worker as `offwake profile --pid` does with any process.
pub fn run(arguments: Demo) -> anyhow::Result<Outcome> {
    let Demo { duration, report } = arguments;
    let service = RunningService::start()?;
    Terminal::messages_on_stderr().line(&format!(
        "The demo service runs: {}.\nIts clients wait for up to 60 ms, and its CPUs are idle. What \
         holds the worker up?\n",
        service.processes
    ))?;
    let (duration, worker) = (format!("{}ms", duration.as_millis()), service.worker()?);
    let words = ["offwake demo", "--duration", &duration, "--pid", worker, "--no-inherit"];
    let matches = Profile::augment_args(Command::new("demo")).try_get_matches_from(words)?;
    let profile = Profile { report, ..Profile::from_arg_matches(&matches)? };
    let outcome = profile::run(&profile)?;
    drop(service);
    if outcome == Outcome::Done {
        Terminal::messages_on_stderr().line(FAULT)?;
    }
    Ok(outcome)
}

/// The service, which ends when this is dropped.
struct RunningService {
    gateway: Child,
    /// `gateway=PID worker=PID store=PID`
    processes: String,
}

impl RunningService {
    fn start() -> anyhow::Result<Self> {
        let (gateway, processes) = process::start(&["gateway"])?;
        Ok(Self { gateway, processes })
    }

    /// The process id of the worker.
    fn worker(&self) -> anyhow::Result<&str> {
        let mut words = self.processes.split_whitespace();
        let worker = words.find_map(|word| word.strip_prefix("worker="));
        worker.with_context(|| format!("the gateway names no worker: {}", self.processes))
    }
}

impl Drop for RunningService {
    fn drop(&mut self) {
        // It may have ended already, and its processes end with it.
        let _ended = self.gateway.kill();
        let _status = self.gateway.wait();
    }
}
