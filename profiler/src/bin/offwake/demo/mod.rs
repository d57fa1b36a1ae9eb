//! `offwake demo`: runs a service that is slow although its CPUs are idle, and says what holds it up.

mod gateway;
mod process;
mod service;
mod store;
mod wire;
mod worker;

use std::{env, ffi::OsString};

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
pub const SERVICE: &str = "demo-service";

/// What a reader can compare the findings with.
const FAULT: &str = "
The fault of this service: every fifth query_cache keeps the lock of the cache while the store reads
its archive, which takes 50 ms. All other requests wait for that lock. The CPUs are idle meanwhile,
so a profile of on-CPU time does not show it.";

/// Profiles the service for a while, as `offwake profile -- CMD` does with any command.
pub fn run(arguments: Demo) -> anyhow::Result<Outcome> {
    let Demo { duration, report } = arguments;
    let program = env::current_exe().context("cannot find the path of this program")?;
    let duration = format!("{}ms", duration.as_millis());
    let words = ["offwake demo", "--duration", &duration, "--"].map(OsString::from);
    let service = [program.into_os_string(), OsString::from(SERVICE)];
    let parser = Profile::augment_args(Command::new("demo"));
    let matches = parser.try_get_matches_from(words.into_iter().chain(service))?;
    let profile = Profile { report, ..Profile::from_arg_matches(&matches)? };
    let outcome = profile::run(&profile)?;
    if outcome == Outcome::Done {
        Terminal::messages_on_stderr().line(FAULT)?;
    }
    Ok(outcome)
}
