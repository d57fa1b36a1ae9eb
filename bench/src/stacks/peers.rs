//! What people would use instead, on the same programs.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::Context as _;
use serde_json::Value;

use super::{entry_point, program::BusyProgram, share::Share};
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
    pub fn measure(
        self,
        busy: &BusyProgram,
        seconds: u32,
        directory: &Path,
    ) -> anyhow::Result<Share> {
        match self {
            Self::PerfDwarf => record_with_perf("dwarf", busy, seconds, directory),
            Self::PerfFramePointers => record_with_perf("fp", busy, seconds, directory),
            Self::Bpftrace => record_with_bpftrace(busy, seconds),
        }
    }
}

fn record_with_perf(
    call_graph: &str,
    busy: &BusyProgram,
    seconds: u32,
    directory: &Path,
) -> anyhow::Result<Share> {
    let data = directory.join("perf.data");
    let mut record = Command::new("perf");
    record.args(["record", "--quiet", "--event", "sched:sched_switch"]);
    // Who is preempted could have gone on.
    record.args(["--filter", "prev_state != 0", "--user-callchains", "--call-graph", call_graph]);
    record.args(["--pid", &busy.pid_list()?, "--output"]).arg(&data);
    record.args(["--", "sleep", &seconds.to_string()]);
    command::run_quietly(record.stdout(Stdio::null()).stderr(Stdio::null()))?;
    let mut script = Command::new("perf");
    script.args(["script", "--no-inline", "--fields", "tid,ip,sym", "--input"]).arg(&data);
    let said = script.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let said = said.context("cannot run perf")?.stdout;
    fs::remove_file(&data).context("perf wrote nothing")?;
    Ok(parse_perf_script(&String::from_utf8_lossy(&said)))
}

/// ```text
///  4711
///     7f2c09d0e5d8 __pthread_cond_wait_common
///     5583a0f208ee [unknown]
///
/// ```
fn parse_perf_script(script: &str) -> Share {
    let mut share = Share::default();
    for sample in script.split("\n\n").filter(|sample| !sample.trim().is_empty()) {
        let frames = sample.lines().filter_map(|line| {
            let (_, function) = line.strip_prefix('\t')?.trim().split_once(' ')?;
            Some(Some(function).filter(|function| *function != "[unknown]"))
        });
        share += judge_stack(frames.collect::<Vec<_>>().iter().rev().copied());
    }
    share
}

/// Root first.
fn judge_stack<'a>(mut frames: impl Iterator<Item = Option<&'a str>>) -> Share {
    let (root, called) = (frames.next().flatten(), frames.next().flatten());
    Share::all_or_nothing(1, entry_point::is_whole(root, called))
}

fn record_with_bpftrace(busy: &BusyProgram, seconds: u32) -> anyhow::Result<Share> {
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
    parse_bpftrace_maps(&String::from_utf8_lossy(&said))
}

/// A line of JSON for each map: `{"type": "map", "data": {"@": {"\nread+19\nmain+7\n": 5}}}`.
fn parse_bpftrace_maps(lines: &str) -> anyhow::Result<Share> {
    let mut share = Share::default();
    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
        let said: Value = serde_json::from_str(line).context("bpftrace says no JSON")?;
        let stacks = said.pointer("/data/@").cloned().unwrap_or_default();
        let stacks: BTreeMap<String, u64> = serde_json::from_value(stacks).unwrap_or_default();
        for (stack, count) in stacks {
            let is_named = |function: &&str| !function.starts_with("0x");
            let frames = stack.trim().lines().rev().map(str::trim);
            let is_whole = judge_stack(frames.map(|frame| Some(frame).filter(is_named))).part == 1;
            share += Share::all_or_nothing(count, is_whole);
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
        assert_eq!(parse_perf_script(script), Share { part: 1, whole: 3 });
    }

    #[test]
    fn stacks_of_bpftrace_count_as_often_as_they_were_seen() -> anyhow::Result<()> {
        let said = r#"{"type": "attached_probes", "data": {"probes": 4}}
{"type": "map", "data": {"@": {"\n        read+19\n        __libc_start_main+5\n        0x5583\n": 5, "\n        read+19\n": 2, "": 1}}}"#;
        assert_eq!(parse_bpftrace_maps(said)?, Share { part: 5, whole: 8 });
        Ok(())
    }
}
