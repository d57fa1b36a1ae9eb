//! What people would use instead, on the same programs.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::Context as _;
use serde_json::Value;

use super::{busy::Busy, root, share::Share};
use xtask::command;

/// A tool and how it takes stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    PerfDwarf,
    PerfFramePointers,
    Bpftrace,
}

impl Peer {
    pub const ALL: [Self; 3] = [Self::PerfDwarf, Self::PerfFramePointers, Self::Bpftrace];

    /// The column of a table.
    pub fn title(self) -> &'static str {
        match self {
            Self::PerfDwarf => "perf, `dwarf`",
            Self::PerfFramePointers => "perf, `fp`",
            Self::Bpftrace => "bpftrace",
        }
    }

    /// Looks at every switch of a program's threads to sleep, for some seconds: how many have a stack
    /// that is whole.
    ///
    /// # Errors
    ///
    /// When the tool can't be run.
    pub fn measure(self, busy: &Busy, seconds: u32, directory: &Path) -> anyhow::Result<Share> {
        match self {
            Self::PerfDwarf => perf("dwarf", busy, seconds, directory),
            Self::PerfFramePointers => perf("fp", busy, seconds, directory),
            Self::Bpftrace => bpftrace(busy, seconds),
        }
    }
}

fn perf(call_graph: &str, busy: &Busy, seconds: u32, directory: &Path) -> anyhow::Result<Share> {
    let data = directory.join("perf.data");
    let mut record = Command::new("perf");
    record.args(["record", "--quiet", "--event", "sched:sched_switch"]);
    // Who is preempted could have gone on.
    record.args(["--filter", "prev_state != 0", "--user-callchains", "--call-graph", call_graph]);
    record.args(["--pid", &busy.pid_list()?, "--output"]).arg(&data);
    record.args(["--", "sleep", &seconds.to_string()]);
    command::quietly(record.stdout(Stdio::null()).stderr(Stdio::null()))?;
    let mut script = Command::new("perf");
    script.args(["script", "--no-inline", "--fields", "tid,ip,sym", "--input"]).arg(&data);
    let said = script.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let said = said.context("cannot run perf")?.stdout;
    fs::remove_file(&data).context("perf wrote nothing")?;
    Ok(of_perf(&String::from_utf8_lossy(&said)))
}

/// ```text
///  4711
///     7f2c09d0e5d8 __pthread_cond_wait_common
///     5583a0f208ee [unknown]
///
/// ```
fn of_perf(script: &str) -> Share {
    let mut share = Share::default();
    for sample in script.split("\n\n").filter(|sample| !sample.trim().is_empty()) {
        let frames = sample.lines().filter_map(|line| {
            let (_, function) = line.strip_prefix('\t')?.trim().split_once(' ')?;
            Some(Some(function).filter(|function| *function != "[unknown]"))
        });
        share += of_stack(frames.collect::<Vec<_>>().iter().rev().copied());
    }
    share
}

/// Root first.
fn of_stack<'a>(mut frames: impl Iterator<Item = Option<&'a str>>) -> Share {
    let (root, called) = (frames.next().flatten(), frames.next().flatten());
    Share::of(1, root::is_whole(root, called))
}

fn bpftrace(busy: &Busy, seconds: u32) -> anyhow::Result<Share> {
    let known: String = busy.pids()?.iter().map(|pid| format!("@own[{pid}] = 1; ")).collect();
    let program = format!(
        "BEGIN {{ {known} }}
         tracepoint:sched:sched_switch /args->prev_state != 0 && @own[pid] == 1/ {{ @[ustack] = count(); }}
         interval:s:{seconds} {{ exit(); }}
         END {{ clear(@own); }}"
    );
    let mut bpftrace = Command::new("bpftrace");
    bpftrace.args(["-f", "json", "-e", &program]).stdin(Stdio::null()).stderr(Stdio::null());
    let said = bpftrace.output().context("cannot run bpftrace")?.stdout;
    of_bpftrace(&String::from_utf8_lossy(&said))
}

/// A line of JSON for each map: `{"type": "map", "data": {"@": {"\nread+19\nmain+7\n": 5}}}`.
fn of_bpftrace(lines: &str) -> anyhow::Result<Share> {
    let mut share = Share::default();
    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
        let said: Value = serde_json::from_str(line).context("bpftrace says no JSON")?;
        let stacks = said.pointer("/data/@").cloned().unwrap_or_default();
        let stacks: BTreeMap<String, u64> = serde_json::from_value(stacks).unwrap_or_default();
        for (stack, count) in stacks {
            let is_named = |function: &&str| !function.starts_with("0x");
            let frames = stack.trim().lines().rev().map(str::trim);
            let is_whole = of_stack(frames.map(|frame| Some(frame).filter(is_named))).part == 1;
            share += Share::of(count, is_whole);
        }
    }
    Ok(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_perf_are_judged_by_their_last_line() {
        let script = " 12\n\t7f2c read\n\t5583 main\n\t5580 _start\n\n 12\n\t7f2c read\n\t1 [unknown]\n\n 13\n\n";
        assert_eq!(of_perf(script), Share { part: 1, whole: 3 });
    }

    #[test]
    fn stacks_of_bpftrace_count_as_often_as_they_were_seen() -> anyhow::Result<()> {
        let said = r#"{"type": "attached_probes", "data": {"probes": 4}}
{"type": "map", "data": {"@": {"\n        read+19\n        __libc_start_main+5\n        0x5583\n": 5, "\n        read+19\n": 2, "": 1}}}"#;
        assert_eq!(of_bpftrace(said)?, Share { part: 5, whole: 8 });
        Ok(())
    }
}
