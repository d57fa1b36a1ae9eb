//! Arguments about what is shown, and where.

use std::{path::PathBuf, str::FromStr, sync::Arc};

use clap::{Args, ValueEnum};
use offwake_analysis::{
    analysis::{AnalysisOptions, Extent},
    blame::{BlameGroup, ChainLimits},
    filter::{Filter, IdleWaits, ThreadKinds, WaitCondition},
    formats::OutputFormat,
    report::flame::{Direction, FlameGraphKind, FrameDetail, GroupBy, ThreadNames, View},
    requests::BandRange,
};
use offwake_recording::units::Nanos;

use crate::{
    span_arguments::SpanArguments,
    values::{States, parse_format, parse_output, parse_states, parse_wait},
};

/// What is shown, and where.
#[derive(Debug, Args)]
pub struct ReportArguments {
    /// File to write. The extension names the format: .html .md .svg .folded .json, .pftrace
    /// (Perfetto), .pb.gz (pprof), .speedscope.json, .firefox.json (Firefox Profiler),
    /// .requests.json (how long requests took), .requests.parquet (a table of them), .spans.json
    /// and .otlp.json (requests as spans), .parquet (a table of the waits), .offwake (the recording
    /// itself). `-` is standard output
    #[arg(short, long = "output", value_name = "FILE", value_parser = parse_output)]
    pub outputs: Vec<PathBuf>,

    /// The format of `-o -`: html, md, svg, folded, json, pftrace, pprof, speedscope, firefox, spans,
    /// requests, requests-parquet, otlp, parquet or offwake
    #[arg(long, value_name = "FORMAT", value_parser = parse_format)]
    pub format: Option<&'static dyn OutputFormat>,

    /// Write everything, whatever the size. Without it, a file holds what matters most, in about 20
    /// MB, and sums up the rest. JSON then stores each stack once (schema 2); with --full, in every
    /// place (schema 1)
    #[arg(long, requires = "outputs")]
    pub full: bool,

    /// Print everything about the requests that the target served or made: how long they took, and
    /// what slow ones have that fast ones do not. The summary always ends with the essentials
    #[arg(long)]
    pub requests: bool,

    /// Show only waits of requests in this band: p99 (the slowest hundredth of each class), p50
    /// (the fast half), p90-99
    #[arg(long, value_name = "BAND")]
    pub band: Option<BandRange>,

    /// Shortest wait to show: 5ms, 1s; a bare number is microseconds
    #[arg(short = 'm', long, value_name = "TIME", value_parser = parse_wait)]
    pub min_wait: Option<Nanos>,

    /// Longest wait to show
    #[arg(short = 'M', long, value_name = "TIME", value_parser = parse_wait)]
    pub max_wait: Option<Nanos>,

    /// Task states to show, as letters of ps: S, D, SD …
    #[arg(long, value_name = "LETTERS", value_parser = parse_states)]
    pub state: Option<States>,

    /// Show the waits of user threads only
    #[arg(short, long = "user-threads-only", conflicts_with = "kernel_only")]
    pub user_only: bool,

    /// Show the waits of kernel threads only
    #[arg(short, long = "kernel-threads-only")]
    pub kernel_only: bool,

    /// Show only waits that match: function=LockAcquire (anywhere in the stack), cause=futex,
    /// syscall=read, waited_on=*:5432*, label.NAME=VALUE (of the program's own), trace=ID or
    /// span=ID; `*` matches any text. Conditions with the same word are
    /// alternatives; conditions with different words must all match
    #[arg(long = "where", value_name = "WORD=TEXT")]
    pub conditions: Vec<WaitCondition>,

    #[command(flatten)]
    pub pictures: PictureArguments,

    /// Waits to leave out, as in --hide idle,external. idle is left out of every output, external and
    /// unattributed only of flame graphs and folded stacks. The ledger keeps everything
    #[arg(long, value_enum, value_name = "WHAT,…", value_delimiter = ',')]
    pub hide: Vec<Hide>,

    /// How many hops to follow a chain: the waker, who had woken that one, and so on
    #[arg(long, value_name = "HOPS", default_value_t = ChainLimits::default().depth,
          value_parser = clap::value_parser!(u16).range(1..=i64::from(ChainLimits::DEEPEST)))]
    pub max_depth: u16,

    /// How many waits of one thread to follow inside one wait
    #[arg(long, value_name = "WAITS", default_value_t = ChainLimits::default().fan_out)]
    pub max_fan_out: u32,

    /// How many waits to follow below one wait, on all levels together
    #[arg(long, value_name = "WAITS", default_value_t = ChainLimits::default().nodes)]
    pub max_nodes: u32,

    #[command(flatten)]
    pub spans: SpanArguments,
}

impl ReportArguments {
    /// What is to be found out, and how it is shown.
    ///
    /// # Errors
    ///
    /// With a message for the user, if arguments contradict each other.
    pub fn options(&self) -> Result<AnalysisOptions, &'static str> {
        Ok(AnalysisOptions {
            filter: self.filter(),
            view: self.pictures.view()?,
            limits: ChainLimits {
                depth: self.max_depth,
                fan_out: self.max_fan_out,
                nodes: self.max_nodes,
            },
            span_limits: self.spans.limits(),
            extent: if self.full { Extent::Full } else { Extent::Bounded },
        })
    }

    fn filter(&self) -> Filter {
        let idle = self.hide.contains(&Hide::Idle);
        Filter {
            min: self.min_wait,
            max: self.max_wait,
            kinds: match (self.user_only, self.kernel_only) {
                (true, _) => ThreadKinds::User,
                (false, true) => ThreadKinds::Kernel,
                (false, false) => ThreadKinds::All,
            },
            states: self.state.clone().map(|states| states.0),
            conditions: self.conditions.clone(),
            idle: if idle { IdleWaits::Hidden } else { IdleWaits::Shown },
            requests: None,
            told_apart_by: match &self.pictures.by {
                By::Label(name) => Some(Arc::clone(name)),
                _ => None,
            },
            hidden: (self.hide.iter())
                .filter_map(|hide| match hide {
                    Hide::Idle => None,
                    Hide::External => Some(BlameGroup::External),
                    Hide::Unattributed => Some(BlameGroup::Unattributed),
                })
                .collect(),
        }
    }
}

/// What flame graphs and folded stacks show.
#[derive(Debug, Args)]
#[command(next_help_heading = "Flame graphs and folded stacks")]
pub struct PictureArguments {
    /// How much of each chain of wakers to draw
    #[arg(long, value_enum, value_name = "KIND", default_value_t = Flame::Chain)]
    pub flame: Flame,

    /// What the first frame is: thread, process (with all threads merged), cgroup (then the process),
    /// cause (what it waited on, then the thread), or label:NAME (a label of the program's own). A
    /// label also tells waits apart in .json and .pb.gz
    #[arg(long, value_name = "WHAT", default_value = "thread")]
    pub by: By,

    /// Start with the causes instead of the waiting threads: each cause, and whom it kept waiting
    #[arg(long)]
    pub reverse: bool,

    /// How much .svg shows of each hop [default: hops; all with --flame off-wake, --flame off-cpu,
    /// --by or --reverse]
    #[arg(long, value_enum, value_name = "DETAIL", hide_default_value = true)]
    pub frames: Option<Frames>,
}

impl PictureArguments {
    /// What flame graphs and folded stacks show; or what contradicts itself.
    fn view(&self) -> Result<View, &'static str> {
        // A picture by hops merges threads of one program and shows whole chains.
        let is_chain_of_waiters =
            self.flame == Flame::Chain && self.by == By::Thread && !self.reverse;
        if self.frames == Some(Frames::Hops) && !is_chain_of_waiters {
            return Err(
                "--frames hops shows programs and whole chains: --flame, --by and --reverse go with --frames all",
            );
        }
        Ok(View {
            frames: match self.frames {
                Some(Frames::Hops) => FrameDetail::Hops,
                Some(Frames::All) => FrameDetail::All,
                None if is_chain_of_waiters => FrameDetail::Hops,
                None => FrameDetail::All,
            },
            graph: match self.flame {
                Flame::Chain => FlameGraphKind::Chain,
                Flame::OffWake => FlameGraphKind::OffWake,
                Flame::OffCpu => FlameGraphKind::OffCpu,
            },
            by: match &self.by {
                By::Thread => GroupBy::Thread,
                By::Process => GroupBy::Process,
                By::Cgroup => GroupBy::Cgroup,
                By::Cause => GroupBy::Cause,
                By::Label(_) => GroupBy::Label,
            },
            direction: if self.reverse { Direction::FromCulprit } else { Direction::FromWaiter },
            names: ThreadNames::WithIds,
        })
    }
}

/// How much a picture shows of each hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Frames {
    /// One box: which program, what it waits for, and in which function of its own.
    Hops,
    /// Each thread, and all frames of its stacks.
    All,
}

/// How far a flame graph goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Flame {
    /// The whole chain: the wait, its waker, what that one waited for, and so on to the cause.
    Chain,
    /// The waiting thread's stack and its waker's, as bcc's offwaketime.
    OffWake,
    /// Only the waiting thread's stack, as bcc's offcputime.
    OffCpu,
}

/// What a flame graph's first frame is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// The waiting thread.
    Thread,
    /// Its process, with all threads merged.
    Process,
    /// Its cgroup, then the process.
    Cgroup,
    /// What it waited on, then the thread.
    Cause,
    /// The label of this name, then the thread.
    Label(Arc<str>),
}

impl FromStr for By {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text, text.strip_prefix("label:")) {
            (_, Some(name)) if !name.is_empty() => Ok(Self::Label(name.into())),
            ("thread", _) => Ok(Self::Thread),
            ("process", _) => Ok(Self::Process),
            ("cgroup", _) => Ok(Self::Cgroup),
            ("cause", _) => Ok(Self::Cause),
            _ => Err("one of thread, process, cgroup, cause, label:NAME is wanted"),
        }
    }
}

/// What can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Hide {
    /// Waits of threads without work: event loops, pools, accept.
    Idle,
    /// Parts of waits for timers, disks, the network, devices.
    External,
    /// Parts of waits whose cause is unknown.
    Unattributed,
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command};
    use offwake_analysis::formats::FORMATS;

    use super::ReportArguments;

    #[test]
    fn the_help_has_every_format() {
        let command = ReportArguments::augment_args(Command::new("report"));
        let help = |id: &str| {
            let argument = command.get_arguments().find(|argument| argument.get_id() == id);
            argument.and_then(|argument| argument.get_help()).unwrap().to_string()
        };
        let words = |text: String| -> Vec<String> {
            let word = |word: &str| word.trim_matches([',', '(', ')']).to_owned();
            text.split_whitespace().map(word).collect()
        };
        let (extensions, names) = (words(help("outputs")), words(help("format")));
        for format in FORMATS {
            assert!(extensions.contains(&format!(".{}", format.extension())), "{format:?}");
            assert!(names.contains(&format.name().to_owned()), "{format:?}");
        }
        let can_diff = FORMATS.into_iter().filter(|format| format.as_diff_format().is_some());
        // `--diff` and its usage error name these.
        assert_eq!(can_diff.map(|format| format.name()).collect::<Vec<_>>(), ["folded", "svg"]);
    }
}
