//! What figures depend on: the machine, the kernel, the commit and the date.

use std::{fs, process::Command};

use anyhow::Context as _;
use xtask::{command, workspace};

/// What stands in a document for a fact that nobody could be asked about.
pub const UNKNOWN: &str = "not known";

/// How many threads ran or wanted to, on average over the last minute.
///
/// # Errors
///
/// When `/proc/loadavg` can't be read.
pub fn load_average() -> anyhow::Result<String> {
    let text = fs::read_to_string("/proc/loadavg").context("cannot read /proc/loadavg")?;
    Ok(text.split_whitespace().next().unwrap_or_default().to_owned())
}

/// The current date and time, in UTC.
pub fn date() -> Option<String> {
    command::output(Command::new("date").args(["-u", "+%F %R UTC"]))
}

/// The commit that is checked out, and whether files differ from it.
pub fn commit() -> Option<String> {
    let mut describe = Command::new("git");
    describe.args(["describe", "--always", "--dirty"]).current_dir(workspace::root());
    command::output(&mut describe)
}

/// The running kernel's release and machine.
pub fn kernel() -> Option<String> {
    command::output(Command::new("uname").args(["-srm"]))
}
