//! Arguments about which of the recorded threads a report is on.

use clap::Args;
use offwake::containers::ContainerQuery;
use offwake_analysis::selection::{Children, TargetSelection};
use offwake_recording::units::{Tgid, Tid};

use crate::values::{parse_container, parse_name};

/// The target of a report, where it is another than the recording's.
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Target (another than the recording's; several options narrow it further)"
)]
pub struct SelectionArguments {
    /// Processes, and all that descend from them
    #[arg(short, long, value_name = "PID", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4_194_305))]
    pub pid: Vec<u32>,

    /// With --pid: these processes alone, without their children
    #[arg(long, requires = "pid")]
    pub no_inherit: bool,

    /// Threads
    #[arg(short, long, value_name = "TID", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4_194_305))]
    pub tid: Vec<u32>,

    /// Threads of these names, as ps -L has them; longer ones are cut to 15 bytes, as the kernel does
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = parse_name)]
    pub comm: Vec<String>,

    /// A cgroup of the v2 hierarchy and all below it: a path below /sys/fs/cgroup, or as
    /// /proc/PID/cgroup has it
    #[arg(long, value_name = "PATH", value_parser = parse_name)]
    pub cgroup: Option<String>,

    /// A container by its name or the first digits of its id; pod/NAME or pod/NAME/CONTAINER
    #[arg(long, value_name = "NAME|ID", value_parser = parse_container)]
    pub container: Option<ContainerQuery>,
}

impl SelectionArguments {
    /// Which threads are the target.
    pub fn selection(&self) -> TargetSelection {
        let Self { pid, no_inherit, tid, comm, cgroup, container } = self;
        TargetSelection {
            processes: pid.iter().copied().map(Tgid).collect(),
            children: if *no_inherit { Children::Excluded } else { Children::Included },
            threads: tid.iter().copied().map(Tid).collect(),
            comms: comm.clone(),
            cgroup: cgroup.clone(),
            container: container.clone(),
        }
    }
}
