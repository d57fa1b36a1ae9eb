//! The command line: its commands, and the arguments that are no group of their own.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum, error::ErrorKind};
use offwake::{
    capture::{Trigger, flight_recorder::Retention},
    containers::ContainerQuery,
    kernel::MarkerMode,
    marker_probes::ProbeRequest,
};
use offwake_recording::Scope;

use crate::{
    console::ConsoleArguments,
    name_arguments::{NameAgainArguments, NameArguments},
    report_arguments::ReportArguments,
    selection_arguments::SelectionArguments,
    stack_arguments::StackArguments,
    values::{
        BandPair, OverheadArgument, parse_bands, parse_bytes, parse_container, parse_duration,
        parse_file, parse_keep, parse_overhead, parse_recording, parse_trigger,
    },
};

/// Shows what threads wait for, and follows it to the cause
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
pub struct Cli {
    #[command(flatten)]
    pub console: ConsoleArguments,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Ends the program with a usage error, as the parser of the command line does.
pub fn usage_error(kind: ErrorKind, message: &str) -> ! {
    Cli::command().error(kind, message).exit()
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Record and report in one go (needs root)
    Profile(Box<Profile>),
    /// Record into a file, to report anywhere (needs root)
    Record(Box<Record>),
    /// Report a recording (no root needed)
    Report(Box<ReportCommand>),
    /// Watch waits live on the terminal (needs root)
    Top(Box<Top>),
    /// Write a recording as Parquet tables, for queries
    Export(ExportCommand),
    /// Find out why a service on idle CPUs is slow (needs root)
    Demo(Box<Demo>),
    /// Show what this machine allows, and how to get the rest
    Doctor,
    /// Print shell completions
    Completions(CompletionsCommand),
    /// Write the manual pages
    Man(ManCommand),
    /// The service of `offwake demo`, in one of its roles
    #[command(hide = true)]
    DemoService { role: Vec<String> },
}

/// `offwake completions`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  offwake completions bash > /etc/bash_completion.d/offwake
  offwake completions zsh > ~/.zfunc/_offwake")]
pub struct CompletionsCommand {
    /// The shell to print completions for
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `offwake man`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  offwake man | man -l -                   read the first page
  offwake man -o /usr/local/share/man/man1 all of them: offwake.1, offwake-profile.1 …")]
pub struct ManCommand {
    /// Directory for the pages, one per command. Without it, offwake.1 goes to standard output
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// `offwake profile`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo offwake profile -p 4242 -d 10s -o wait.svg     a process, for ten seconds
  sudo offwake profile --cgroup /system.slice/nginx.service -d 30s -o wait.json
  sudo offwake profile --container web -d 10s -o wait.html
  sudo offwake profile -o wait.svg -- make -j2         a command, from its start to its end
  sudo offwake profile -a -o all.json -- make -j2      the whole machine while it runs

Exit status: 0 done, 1 failed, 2 usage, 3 it ran, but there is nothing to report. If -- CMD ended by
itself: CMD's own status instead of 0, or 128 plus the signal's number if a signal ended it.")]
pub struct Profile {
    #[command(flatten)]
    pub recording: RecordingArguments,

    #[command(flatten)]
    pub names: NameArguments,

    #[command(flatten)]
    pub report: ReportArguments,

    /// Memory for records. When it is full, recording ends
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "2G")]
    pub max_memory: usize,
}

/// `offwake demo`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo offwake demo                  what holds its worker up, in the first lines
  sudo offwake demo -o wait.html     and a page to explore

The service is three processes of offwake itself: a gateway with four clients, a worker and a store.
They talk over loopback and a Unix socket, and end with the demo.

Exit status: 0 done, 1 failed, 2 usage, 3 it ran, but there is nothing to report.")]
pub struct Demo {
    /// How long to record: 10, 10s, 500ms, 2m
    #[arg(short, long, value_name = "DURATION", value_parser = parse_duration, default_value = "5s")]
    pub duration: Duration,

    #[command(flatten)]
    pub report: ReportArguments,
}

/// `offwake record`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo offwake record -p 4242 -d 10s -o wait.offwake   a process, for ten seconds
  sudo offwake record -o make.offwake -- make -j2       a command, from its start to its end
  offwake report wait.offwake -o wait.svg               what it waited for; no root needed
  sudo offwake record --keep 30s -o wait.offwake        a flight recorder: kill -USR1 writes the last
                                                        30 s to wait.1.offwake, and it continues
  sudo offwake record --keep 30s --trigger 'wait>200ms,comm=redis-server' -p 4242 -o wait.offwake

With --keep, FILE itself gets the last stretch when recording ends. Snapshots are FILE with a number
before the extension: the first one that is free, so those of an earlier run stay.

Exit status: 0 done, 1 failed, 2 usage, 3 it ran, but there is nothing to report. If -- CMD ended by
itself: CMD's own status instead of 0, or 128 plus the signal's number if a signal ended it.")]
pub struct Record {
    #[command(flatten)]
    pub recording: RecordingArguments,

    #[command(flatten)]
    pub names: NameArguments,

    /// The recording to write: a name that ends in .offwake, or `-` for standard output
    #[arg(short, long, value_name = "FILE", value_parser = parse_recording)]
    pub output: PathBuf,

    /// Keep only the last stretch, in memory: a time (30s, 2m) or a size (512M, 1GB). SIGUSR1
    /// writes it to a snapshot, and recording continues
    #[arg(long, value_name = "TIME|BYTES", value_parser = parse_keep)]
    pub keep: Option<Retention>,

    /// Write a snapshot when a thread of the target was blocked for too long: 'wait>200ms', or
    /// 'wait>200ms,comm=worker' for threads named worker. Name the threads: otherwise idle threads
    /// that wait for work trigger too, unless they have waited since before the recording. A wait
    /// that has not ended triggers within 1s after TIME, or within half of TIME if that is longer; one
    /// from before the recording counts from the start of the recording. Repeatable. The next
    /// snapshot comes one --keep time later at the earliest (10s if --keep is a size)
    #[arg(long, value_name = "wait>TIME[,comm=NAME]", value_parser = parse_trigger, requires = "keep")]
    pub trigger: Vec<Trigger>,

    /// How many snapshots of this run to keep; a new one replaces the oldest [default: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "keep")]
    pub max_snapshots: Option<u32>,

    /// Memory for what --keep holds. When it is full, older slices are dropped earlier [default:
    /// 2G]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, requires = "keep")]
    pub max_memory: Option<usize>,
}

/// `offwake report`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  offwake report wait.offwake                           a summary
  offwake report wait.offwake -o wait.svg -o wait.json
  offwake report all.offwake -p 4242 -o wait.html       from a whole-machine recording: a process and
  offwake report all.offwake --container web            its children, a container, threads by name
  offwake report all.offwake --comm redis-server
  offwake report wait.offwake -o blockers.svg --reverse --hide idle,external
  offwake report before.offwake --diff after.offwake -o diff.svg
  offwake report wait.offwake --diff-bands p50,p99 -o slow.svg       why are slow requests slow?
  offwake report wait.offwake --resymbolize --debug-dir ./debug -o named.offwake

Exit status: 0 done, 1 failed, 2 usage, 3 nothing to report.")]
pub struct ReportCommand {
    /// The recording; `-` is standard input
    #[arg(value_name = "FILE.offwake")]
    pub recording: PathBuf,

    #[command(flatten)]
    pub selection: SelectionArguments,

    #[command(flatten)]
    pub report: ReportArguments,

    /// Compare with a later recording: which waits got longer or shorter, per second of the window.
    /// -o takes .svg and .folded, with a value before and a value after
    #[arg(long, value_name = "LATER.offwake", conflicts_with_all = ["resymbolize", "otlp"])]
    pub diff: Option<PathBuf>,

    /// Compare two bands of requests, per request: p50,p99 shows what the slowest hundredth waits
    /// for that the fast half does not. -o takes .svg and .folded
    #[arg(long, value_name = "BAND,BAND", value_parser = parse_bands, conflicts_with_all = ["diff", "band", "otlp"])]
    pub diff_bands: Option<BandPair>,

    #[command(flatten)]
    pub names: NameAgainArguments,

    /// Memory for records
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "8G")]
    pub max_memory: usize,
}

/// `offwake export`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  offwake export wait.offwake tables
  duckdb -c \"FROM 'tables/waits/**/*.parquet' LIMIT 10\"

Recordings of many hosts can share one directory; each keeps its own files.
The columns are in docs/format.md.

Exit status: 0 done, 1 failed, 2 usage.")]
pub struct ExportCommand {
    /// The recording; `-` is standard input
    #[arg(value_name = "FILE.offwake")]
    pub recording: PathBuf,

    /// Where to write: DIR/<table>/host=<host>/date=YYYY-MM-DD/hour=HH/<recording>.parquet, in UTC
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// Memory for records
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "8G")]
    pub max_memory: usize,
}

/// `offwake top`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo offwake top                                      the whole machine
  sudo offwake top -p 4242                              a process: what it waits for, and for whom
  sudo offwake top -p 4242 --window 30s --refresh 2s
  sudo offwake top -- make -j2                          a command; its output is not shown

Keys: h help, q quit, Enter into a wait, / filter, o sort, w sums since the start, p pause, s save.
`s` saves what is on screen as FILE with a number; `offwake report` shows the same figures.

Exit status: 0 done, 1 failed, 2 usage. If -- CMD ended by itself: CMD's own status instead of 0, or
128 plus the signal's number if a signal ended it.")]
pub struct Top {
    #[command(flatten)]
    pub recording: RecordingArguments,

    /// Shortest time between two screens; it takes longer when there is much to do
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1s")]
    pub refresh: Duration,

    /// How much time a screen covers: at least twice --refresh
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "10s")]
    pub window: Duration,

    /// Where `s` saves what is on screen; a number goes before the extension
    #[arg(short, long, value_name = "FILE", value_parser = parse_file, default_value = "offwake-top.offwake")]
    pub output: PathBuf,

    /// Memory for the stretch on screen: this much to store it, and as much again to analyse it
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "1G")]
    pub max_memory: usize,
}

/// What is recorded, and how.
#[derive(Debug, Args)]
pub struct RecordingArguments {
    #[command(flatten)]
    pub target: TargetArguments,

    /// Keep recording --container across restarts: wait until it runs, and continue with the next
    /// container of that name when it ends
    #[arg(long, requires = "container")]
    pub follow: bool,

    /// With --pid or a command: only that process, without the children it has or forks (like
    /// perf's --no-inherit)
    #[arg(long, conflicts_with_all = ["tid", "cgroup", "container", "all"])]
    pub no_inherit: bool,

    /// Command to run and profile from its first instruction to its end, as in `-- make -j2`. With
    /// another target, as in `-p 4242 -- ./load-test`, that target is profiled while the command runs
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,

    /// How long to record: 10, 10s, 500ms, 2m. Without it, until Ctrl-C or until the command ends
    #[arg(short, long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true)]
    pub duration: Option<Duration>,

    /// How long after the end of recording names of functions, files and processes may be looked up.
    /// Those that were not by then are missing, and offwake says which
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "3m")]
    pub end_within: Duration,

    #[command(flatten)]
    pub stacks: StackArguments,

    /// Limit for what recording costs, in percent of the time of all CPUs, idle ones included (10%,
    /// 0.5%, none). Above it, offwake records less detail, step by step, and the report says what
    /// and when
    #[arg(long, value_name = "PERCENT", value_parser = parse_overhead, default_value = "none")]
    pub max_overhead: OverheadArgument,

    /// On-CPU stack samples per second on each CPU; 0 for none
    #[arg(long, value_name = "HZ", default_value_t = 199, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub sample: u32,

    /// Whose waits to record: those of the whole machine, so that blame can follow wakers, or only
    /// those of the target
    #[arg(long, value_enum, default_value_t = ScopeArgument::Machine)]
    pub scope: ScopeArgument,

    /// Whether to record ranges and instants that programs mark with faccessat2(…, -975): only where
    /// that costs nobody else anything, or also where it slows down every syscall of the machine
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = MarkerArgument::Auto)]
    pub markers: MarkerArgument,

    /// Record a function as a range, or a USDT probe as an instant or a range: PATH:FUNCTION,
    /// usdt:PROVIDER:NAME or usdt:PATH:PROVIDER:NAME. May be given several times. Each call
    /// costs whoever makes it microseconds, on virtual machines tens of them, in every process
    #[arg(long, value_name = "WHAT")]
    pub marker: Vec<ProbeRequest>,

    /// Size of each CPU's ring buffer (a power of two; 64K, 8M). CPUs that are offline get at most
    /// 64K [default: 128M over all online CPUs, at most 8M each]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub ring_size: Option<usize>,

    /// How many threads to track at once, at 2 KiB of kernel memory each. Others are left out and
    /// counted; threads of the target never are, unless it is the whole machine
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_threads: u32,

    /// How many processes the target can have, forked children included
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    pub max_targets: u32,

    /// For tests: passes task storage over, and gives what stands in for it so many entries
    #[arg(long, hide = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub stand_in: Option<u32>,
}

/// What to profile.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct TargetArguments {
    /// Processes, with all their threads and all their descendants, also those forked earlier
    #[arg(short, long, value_name = "PID", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4_194_305))]
    pub pid: Vec<u32>,

    /// Threads
    #[arg(short, long, value_name = "TID", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4_194_305))]
    pub tid: Vec<u32>,

    /// A cgroup (v2) and everything below it: a path in the file system, or as /proc/PID/cgroup has
    /// it
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,

    /// A container of Docker, Podman, containerd or CRI-O, with everything started in it later: its
    /// name or the first digits of its id; for Kubernetes pod/NAME or pod/NAME/CONTAINER
    #[arg(long, value_name = "NAME|ID", value_parser = parse_container)]
    pub container: Option<ContainerQuery>,

    /// Every thread of the machine (the default)
    #[arg(short, long)]
    pub all: bool,
}

/// Whether markers are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MarkerArgument {
    /// Where the kernel lets the one syscall be followed.
    Auto,
    /// Else at every syscall.
    Always,
    /// Not at all.
    Never,
}

impl From<MarkerArgument> for MarkerMode {
    fn from(when: MarkerArgument) -> Self {
        match when {
            MarkerArgument::Auto => Self::IfCheap,
            MarkerArgument::Always => Self::Always,
            MarkerArgument::Never => Self::Never,
        }
    }
}

/// Whose waits are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScopeArgument {
    /// Those of every thread.
    Machine,
    /// Only those of the target.
    Target,
}

impl From<ScopeArgument> for Scope {
    fn from(scope: ScopeArgument) -> Self {
        match scope {
            ScopeArgument::Machine => Self::Machine,
            ScopeArgument::Target => Self::Target,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use clap::Parser as _;
    use offwake_analysis::spans::SpanLimits;

    use super::{Cli, Command};

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn spans_are_limited_as_the_library_says_unless_told_otherwise() {
        let cli = Cli::try_parse_from(["offwake", "report", "x.offwake"]).unwrap();
        let Command::Report(arguments) = cli.command else { panic!("{cli:?}") };
        assert_eq!(arguments.report.spans.limits(), SpanLimits::default());
    }
}
