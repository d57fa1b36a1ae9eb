//! What people would use instead, where Debian has it.

use std::process::{Command, Stdio};

use super::{
    setup::OverheadSetup,
    slowdown::{self, Beside, Slowdown},
    workloads::WorkloadKind,
};
use crate::running::{Running, Stop};
use xtask::{apt, command};

/// Both stacks and the waker's, added up in the kernel, as off-wake scripts do. The last probe says
/// that all of them are there.
const OFF_WAKE: &str = r#"
tracepoint:sched:sched_waking {
    @waker[args->pid] = comm; @wkstack[args->pid] = kstack; @wustack[args->pid] = ustack;
}
tracepoint:sched:sched_switch {
    if (args->prev_pid != 0) {
        @left[args->prev_pid] = nsecs; @kstack[args->prev_pid] = kstack; @ustack[args->prev_pid] = ustack;
    }
    $next = args->next_pid;
    if (@left[$next] != 0) {
        @off[args->next_comm, @kstack[$next], @ustack[$next], @waker[$next], @wkstack[$next], @wustack[$next]] =
            sum(nsecs - @left[$next]);
        delete(@left[$next]);
    }
}
interval:ms:100 { if (@ready == 0) { printf("ready\n"); @ready = 1; } }
END {
    clear(@left); clear(@kstack); clear(@ustack); clear(@waker); clear(@wkstack); clear(@wustack);
    clear(@ready);
}
"#;

/// A tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// `perf record -g` of the switches and wakes.
    PerfRecord,
    /// `perf record --off-cpu`.
    PerfOffCpu,
    /// The script above.
    Bpftrace,
}

impl Peer {
    const ALL: [Self; 3] = [Self::PerfRecord, Self::PerfOffCpu, Self::Bpftrace];

    /// The row of a table.
    pub fn title(self) -> &'static str {
        match self {
            Self::PerfRecord => "perf record -g, switch and waking",
            Self::PerfOffCpu => "perf record --off-cpu",
            Self::Bpftrace => "bpftrace, off-wake script",
        }
    }

    /// Starts it on the whole machine.
    ///
    /// # Errors
    ///
    /// When it can't be started.
    pub fn start(self, setup: &OverheadSetup) -> anyhow::Result<Running> {
        let mut perf = Command::new("perf");
        perf.args(["record", "--quiet", "-a", "-o"]).arg(setup.file("perf.data"));
        match self {
            Self::PerfRecord => {
                perf.args(["-g", "-e", "sched:sched_switch,sched:sched_waking", "--", "cat"]);
                Running::start(perf.stderr(Stdio::null()), Stop::EndOfInput)
            }
            Self::PerfOffCpu => {
                Running::start(perf.args(["--off-cpu", "--", "cat"]), Stop::EndOfInput)
            }
            Self::Bpftrace => {
                let mut bpftrace = Command::new("bpftrace");
                bpftrace.args(["-B", "line", "-e", OFF_WAKE]);
                // It says a line for each stack that it could not take.
                Running::start(bpftrace.stderr(Stdio::null()), Stop::Interrupt)
            }
        }
    }

    /// Why it can't be run here, if so.
    fn missing(self) -> Option<String> {
        match self {
            Self::PerfRecord => None,
            Self::PerfOffCpu => {
                let mut question = Command::new("perf");
                question.args(["record", "--off-cpu", "-o", "/dev/null", "--", "true"]);
                let said = question.stdin(Stdio::null()).output().ok()?.stderr;
                let said = String::from_utf8_lossy(&said);
                said.contains("is being ignored").then(|| {
                    let version = command::output(Command::new("perf").arg("--version"));
                    format!("{} was built without it", version.unwrap_or_default())
                })
            }
            Self::Bpftrace => apt::install(&["bpftrace".to_owned()])
                .err()
                .map(|error| format!("not installed, and not to be had: {error:#}")),
        }
    }
}

/// Peers beside the two workloads that tell most of them, and the peers that could not be run.
///
/// # Errors
///
/// When one that is there fails.
pub fn measure(setup: &OverheadSetup) -> anyhow::Result<(Vec<Slowdown>, Vec<String>)> {
    let mut there = Vec::new();
    let mut missing = Vec::new();
    for peer in Peer::ALL {
        match peer.missing() {
            None => there.push(Beside::Peer(peer)),
            Some(why) => missing.push(format!("{}: {why}", peer.title())),
        }
    }
    // In the same sitting, so that it can be compared.
    there.push(Beside::Offwake(setup.default_mode()));
    let mut all = Vec::new();
    for workload in [WorkloadKind::Pipe, WorkloadKind::RedisOneClient] {
        all.extend(slowdown::measure_workload(setup, workload, &there)?);
    }
    Ok((all, missing))
}
