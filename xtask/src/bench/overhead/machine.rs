//! What it was measured on, and when.

use std::{fs, process::Command, thread::available_parallelism};

use anyhow::Context as _;

use super::{bench::Bench, table::Table};
use crate::{command, workspace};

/// How many threads ran or wanted to, on average over the last minute.
pub struct Load(String);

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// # Errors
///
/// When the kernel does not tell.
pub fn load() -> anyhow::Result<Load> {
    let text = fs::read_to_string("/proc/loadavg").context("cannot read /proc/loadavg")?;
    Ok(Load(text.split_whitespace().next().unwrap_or_default().to_owned()))
}

/// The facts that figures depend on. `before` is from before there was anything to measure.
pub fn table(bench: &Bench, before: &Load) -> String {
    let mut table = Table::new(["what", "on this run"]);
    let mut row = |what: &str, is: Option<String>| {
        table.row([what.to_owned(), is.unwrap_or_else(|| "not known".to_owned())]);
    };
    let mut describe = Command::new("git");
    describe.args(["describe", "--always", "--dirty"]).current_dir(workspace::root());
    row("date", command::ask(Command::new("date").args(["-u", "+%F %R UTC"])));
    row("commit", command::ask(&mut describe));
    row("kernel", command::ask(Command::new("uname").args(["-srm"])));
    row("CPU", cpu_model());
    row("CPUs", available_parallelism().ok().map(|cpus| cpus.to_string()));
    row("load average before it began", Some(before.0.clone()));
    // Then slowdowns have the timing in them too.
    row("`kernel.bpf_stats_enabled`, set by somebody else", stats_enabled());
    row("default of this build", Some(format!("--stacks {}", bench.default_mode().name())));
    table.markdown()
}

fn stats_enabled() -> Option<String> {
    Some(fs::read_to_string("/proc/sys/kernel/bpf_stats_enabled").ok()?.trim().to_owned())
}

fn cpu_model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(line.trim_start_matches([' ', '\t', ':']).to_owned())
}
