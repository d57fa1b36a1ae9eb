//! Arguments about which of the recorded threads a report is on.

use clap::Args;
use offwake::containers::ContainerQuery;
use offwake_analysis::selection::{Children, TargetSelection};
use offwake_recording::{
    TraceId,
    units::{Tgid, Tid},
};

use crate::values::{parse_container, parse_name};

/// The target of a report, where it is another than the recording's.
#[derive(Debug, Args)]
#[command(next_help_heading = "Target (replaces the recording's; options must all match)")]
pub struct SelectionArguments {
    /// Processes, with all their descendants
    #[arg(short, long, value_name = "PID", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4_194_305))]
    pub pid: Vec<u32>,

    /// With --pid: only these processes, without their children
    #[arg(long, requires = "pid")]
    pub no_inherit: bool,

    /// Threads
    #[arg(short, long, value_name = "TID", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4_194_305))]
    pub tid: Vec<u32>,

    /// Threads with these names, as shown by ps -L. Longer names are cut to 15 bytes, as the kernel
    /// does
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = parse_name)]
    pub comm: Vec<String>,

    /// A cgroup (v2) and everything below it: a path below /sys/fs/cgroup, or as /proc/PID/cgroup
    /// has it
    #[arg(long, value_name = "PATH", value_parser = parse_name)]
    pub cgroup: Option<String>,

    /// A container: its name, the first digits of its id, pod/NAME or pod/NAME/CONTAINER
    #[arg(long, value_name = "NAME|ID", value_parser = parse_container)]
    pub container: Option<ContainerQuery>,

    /// A trace of the programs' own (OpenTelemetry): the threads that worked for it, and of those
    /// their waits for it alone. 32 hexadecimal digits
    #[arg(long, value_name = "ID")]
    pub trace: Option<TraceId>,
}

impl SelectionArguments {
    /// Which threads are the target.
    pub fn selection(&self) -> TargetSelection {
        let Self { pid, no_inherit, tid, comm, cgroup, container, trace } = self;
        TargetSelection {
            processes: pid.iter().copied().map(Tgid).collect(),
            children: if *no_inherit { Children::Excluded } else { Children::Included },
            threads: tid.iter().copied().map(Tid).collect(),
            comms: comm.clone(),
            cgroup: cgroup.clone(),
            container: container.clone(),
            trace: *trace,
        }
    }
}
