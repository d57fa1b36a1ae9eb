//! Whether `--max-overhead` is held beside floods, by other clocks than offwake's own: the kernel's
//! statistics of the programs, and `/proc` of its threads and processes.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    thread::{available_parallelism, sleep},
    time::{Duration, Instant},
};

use anyhow::Context as _;

use super::{
    bpf_times::{self, Counting},
    setup::OverheadSetup,
    workloads::Postgres,
};
use crate::process;
use xtask::markdown_table::MarkdownTable;

/// The limits, in percent of all CPUs.
const LIMITS: [u32; 3] = [1, 3, 10];
/// The limit is to be held from the second second on.
const SETTLING: Duration = Duration::from_secs(1);
/// How far above the limit is held all the same: a tenth of it.
const TOLERANCE: f64 = 1.1;

/// What floods the machine with switches.
#[derive(Clone, Copy)]
enum Flood {
    Postgres,
    Messaging,
    Forks,
}

impl Flood {
    const ALL: [Self; 3] = [Self::Postgres, Self::Messaging, Self::Forks];

    fn title(self) -> &'static str {
        match self {
            Self::Postgres => "pgbench, 4 clients",
            Self::Messaging => "`perf bench sched messaging -g 20`",
            Self::Forks => "`/bin/true` in a loop on each CPU",
        }
    }

    fn commands(self, postgres: &Postgres) -> Vec<Command> {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        match self {
            Self::Postgres => vec![postgres.benchmark()],
            Self::Messaging => {
                vec![shell("while :; do perf bench sched messaging -g 20 -l 500; done")]
            }
            Self::Forks => {
                let cpus = available_parallelism().map_or(1, usize::from);
                (0..cpus).map(|_| shell("while :; do /bin/true; done")).collect()
            }
        }
    }
}

/// A program and all that it starts; they are ended when this is dropped.
struct Group(Child);

impl Group {
    fn start(command: &mut Command) -> anyhow::Result<Self> {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(quiet.process_group(0).spawn().context("cannot start a flood")?))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Ok(group) = i32::try_from(self.0.id()) {
            // SAFETY: takes no memory. The child was not waited for yet, so that the group is its own.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
        let _ended = self.0.wait();
    }
}

/// What recording took beside a flood.
pub struct Held {
    flood: Flood,
    limit: u32,
    /// In percent of all CPUs.
    programs: f64,
    threads: f64,
}

/// Records beside each flood with each limit.
///
/// # Errors
///
/// When something can't be run.
pub fn measure(setup: &OverheadSetup) -> anyhow::Result<Vec<Held>> {
    let length = setup.effort.pick(10, 4);
    let mut all = Vec::new();
    // Its benchmark outlasts the recording, and is ended then.
    let postgres = Postgres::start(&setup.file("postgres.log"), 120)?;
    for flood in Flood::ALL {
        for limit in LIMITS {
            eprintln!("bench: {} with a limit of {limit} %", flood.title());
            all.push(record(setup, flood, limit, Duration::from_secs(length), &postgres)?);
        }
    }
    Ok(all)
}

fn record(
    setup: &OverheadSetup,
    flood: Flood,
    limit: u32,
    length: Duration,
    postgres: &Postgres,
) -> anyhow::Result<Held> {
    let recording = setup.file("limit.offwake");
    let groups: anyhow::Result<Vec<Group>> =
        flood.commands(postgres).iter_mut().map(Group::start).collect();
    let groups = groups?;
    let running = setup.record_within(&format!("{limit}%"), &recording)?;
    let pid = running.pid();
    sleep(SETTLING);
    let _counting = Counting::start()?;
    let (programs, threads, begin) =
        (bpf_times::programs_held_by(pid)?, process::cpu_seconds_of_all(pid)?, Instant::now());
    sleep(length);
    let (programs_after, threads_after) =
        (bpf_times::programs_held_by(pid)?, process::cpu_seconds_of_all(pid)?);
    let cpus = available_parallelism().map_or(1, usize::from) as f64;
    let all = begin.elapsed().as_secs_f64() * cpus / 100.0;
    running.stop()?;
    drop(groups);
    fs::remove_file(&recording)?;
    let ns: u64 =
        bpf_times::between(&programs, &programs_after).iter().map(|program| program.ns).sum();
    Ok(Held {
        flood,
        limit,
        programs: ns as f64 / 1e9 / all,
        threads: (threads_after - threads) / all,
    })
}

/// A row for each flood and limit.
pub fn table(all: &[Held]) -> String {
    let mut table = MarkdownTable::new([
        "beside",
        "limit",
        "programs",
        "own threads and processes",
        "in all",
        "held",
    ]);
    for Held { flood, limit, programs, threads } in all {
        let sum = programs + threads;
        let is_held = sum <= f64::from(*limit) * TOLERANCE;
        table.push_row([
            flood.title().to_owned(),
            format!("{limit} %"),
            format!("{programs:.2} %"),
            format!("{threads:.2} %"),
            format!("{sum:.2} %"),
            if is_held { "yes" } else { "**no**" }.to_owned(),
        ]);
    }
    table.markdown()
}
