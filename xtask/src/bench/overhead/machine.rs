//! What it was measured on, and when.

use std::{fs, process::Command, thread::available_parallelism};

use super::{bench::Bench, table::Table};
use crate::command;

/// The facts that figures depend on.
pub fn table(bench: &Bench) -> String {
    let mut table = Table::new(["what", "on this run"]);
    let mut row = |what: &str, is: Option<String>| {
        table.row([what.to_owned(), is.unwrap_or_else(|| "not known".to_owned())]);
    };
    row("date", command::ask(Command::new("date").args(["-u", "+%F %R UTC"])));
    let commit = Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .current_dir(crate::workspace::root())
        .output()
        .ok();
    row("commit", commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()));
    row("kernel", command::ask(Command::new("uname").args(["-srm"])));
    row("CPU", cpu_model());
    row("CPUs", available_parallelism().ok().map(|cpus| cpus.to_string()));
    row("load average when it began", fs::read_to_string("/proc/loadavg").ok().map(first_word));
    row("default of this build", Some(format!("--stacks {}", bench.default_mode().name())));
    table.markdown()
}

fn cpu_model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(line.trim_start_matches([' ', '\t', ':']).to_owned())
}

fn first_word(text: String) -> String {
    text.split_whitespace().next().unwrap_or_default().to_owned()
}
