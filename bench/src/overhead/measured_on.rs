//! What it was measured on, and when.

use std::{fs, thread::available_parallelism};

use super::setup::OverheadSetup;
use crate::machine;
use xtask::markdown_table::MarkdownTable;

/// The facts that figures depend on. `before` is from before there was anything to measure.
pub fn table(setup: &OverheadSetup, before: &str) -> String {
    let mut table = MarkdownTable::new(["what", "on this run"]);
    let mut row = |what: &str, is: Option<String>| {
        table.push_row([what.to_owned(), is.unwrap_or_else(|| machine::UNKNOWN.to_owned())]);
    };
    row("date", machine::date());
    row("commit", machine::commit());
    row("kernel", machine::kernel());
    row("CPU", cpu_model());
    row("CPUs", available_parallelism().ok().map(|cpus| cpus.to_string()));
    row("load average before it began", Some(before.to_owned()));
    // Then slowdowns have the timing in them too.
    row("`kernel.bpf_stats_enabled`, set by somebody else", stats_enabled());
    row("default of this build", Some(format!("--stacks {}", setup.default_mode().name())));
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
