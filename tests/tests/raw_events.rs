//! What offwake says of every thread of the machine agrees with the kernel's own scheduler events,
//! which are traced beside it: how often each slept, and how long it ran, waited for a CPU and slept.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use anyhow::{Result, ensure};
use offwake_recording::{Begin, End, Recording, stream};
use offwake_tests::{
    intervals::Interval,
    machine_lock::MachineLock,
    offwake::Offwake,
    paths::scratch_directory,
    programs::Program,
    raw_events::{RawEvents, RawThread, Traced},
    report::{Report, Thread},
};

/// More than the recording takes.
const MEMORY: usize = 1 << 30;

/// The part of all threads' time in the window that may be lost. A kernel may hide a process of its
/// own from BPF, and with it the switch to whoever comes after it on the CPU.
const LOST_SHARE: f64 = 0.005;

/// The part of the sleeps that may be missing, and of which it may not be known who ended them, for the
/// same reason. When a thread that nobody was seen to wake began to wait for a CPU is not known.
const MISSING_SHARE: f64 = 0.001;

/// The part of all threads' time on and off the CPU of which the trace may know nothing itself.
const UNTRACED_SHARE: f64 = 0.05;

/// The part of one thread's sleeps that may be missing, where it slept at least [`MANY_SLEEPS`] times.
const MISSING_OF_ONE: f64 = 0.02;
const MANY_SLEEPS: usize = 500;

/// What each time of a thread may be off by, relative to its life in the window …
const RELATIVE: f64 = 0.007;

/// … and that of half of all threads.
const MEDIAN: f64 = 0.0005;

/// … and for each time that the thread left a CPU: the two programs that look at one event run one
/// after the other, and the trace has whole microseconds.
const EACH_SWITCH_NS: u64 = 3_000;

/// … and at the beginning and the end of its life, where the kernel does more between two events.
const EDGES_NS: u64 = 50_000;

/// The kernel says when a thread was created before it says that it was forked. In between, its creator may lose
/// its CPU, for a few turns of others.
const BUILDING_NS: u64 = 20_000_000;

/// A switch is the same one if both saw it within this time.
const SAME_SWITCH_NS: u64 = 50_000;

/// Files are read, packed and counted by three processes, which wait for the disk, for each other's
/// pipes and for a CPU.
const PACK: &str =
    "while :; do tar -c /usr/include /usr/share/doc 2>/dev/null | gzip -1 | wc -c; done";

/// Processes that live for some milliseconds.
const SHORT_LIVED: &str = "while :; do /bin/true; sleep 0.05; done";

/// That many threads must be born and end inside the window.
const ENOUGH_SHORT_LIVED: usize = 30;

/// Threads that hand items on through a queue, sleep, and wait for Python's lock.
const HAND_ON: &str = "\
import queue, threading, time
items = queue.Queue(4)
def produce():
    n = 0
    while True:
        items.put(sum(range(2000)))
        n += 1
        if n % 50 == 0:
            time.sleep(0.003)
for _ in range(3):
    threading.Thread(target=produce, daemon=True).start()
while True:
    items.get()
";

/// The whole machine under load, recorded by offwake and traced by the kernel at the same time.
struct Recorded {
    traced: Traced,
    /// offwake's first process.
    pid: u32,
    report: Report,
    recording: Recording,
}

fn record() -> Result<Recorded> {
    let _lock = MachineLock::acquire()?;
    let _pack = Program::start(Command::new("sh").args(["-c", PACK]), scratch_directory()?)?;
    let hand_on = ["-c", HAND_ON];
    let _hand_on = Program::start(Command::new("python3").args(hand_on), scratch_directory()?)?;
    let _short_lived =
        Program::start(Command::new("sh").args(["-c", SHORT_LIVED]), scratch_directory()?)?;
    let raw = RawEvents::start()?;
    let running = (Offwake::profile()?)
        .args([
            "-a",
            "-d",
            "3s",
            "--budget",
            "none",
            "--max-overhead",
            "none",
            "-o",
            "x.json",
            "-o",
            "x.offwake",
        ])
        .start()?;
    let pid = running.pid();
    let outcome = running.outcome()?;
    ensure!(outcome.status.success(), "{outcome}");
    let report = outcome.report("x.json")?;
    let traced = raw.finish(report.interval())?;
    let bytes = fs::read(outcome.path("x.offwake"))?;
    let recording = stream::read(&bytes[..], MEMORY)?;
    ensure!(report.loss.records == 0, "records were lost: {:?}", report.loss);
    Ok(Recorded { traced, pid, report, recording })
}

/// All threads that the trace or offwake saw.
#[derive(Debug, Default)]
struct Sum {
    threads: usize,
    /// Of these, those that were born and ended inside the window.
    short_lived: usize,
    /// Of which the trace does not know that they were born, as the process that the kernel hides forked them.
    unborn: usize,
    /// The threads that only offwake has, as they slept all along.
    asleep: usize,
    /// The threads that only the trace has …
    absent: Absent,
    wall_ns: u64,
    lost_ns: u64,
    unwoken: usize,
    untraced_ns: u64,
    sleeps: usize,
    /// The sleeps that only the trace has.
    missing: usize,
    /// The sleeps that only offwake has, of threads whose trace is whole.
    invented: usize,
}

/// How many threads offwake must not or need not have, by why.
#[derive(Debug, Default)]
struct Absent {
    /// It ended before the window, or was created after it.
    outside: usize,
    /// It is of offwake itself, of which nothing is recorded.
    own: usize,
    /// It is of the one process that the kernel hides from BPF, from its survey of threads too.
    hidden: usize,
    /// It ended as the window opened, or was created as the window closed: the trace has whole microseconds.
    at_edge: usize,
}

impl Absent {
    /// Counts a thread that offwake lacks. Returns whether it may.
    fn count(&mut self, whose: Whose, raw: &RawThread, window: Interval) -> bool {
        let lived_ns = raw.wall_ns();
        let is_at_edge = raw.died_ns.is_some_and(|died| died < window.start_ns + EDGES_NS)
            || raw.born_ns.is_some_and(|born| born + EDGES_NS > window.end_ns);
        if lived_ns == 0 {
            self.outside += 1;
        } else if whose == Whose::Own {
            self.own += 1;
        } else if whose == Whose::Hidden {
            self.hidden += 1;
        } else if is_at_edge && lived_ns <= EDGES_NS {
            self.at_edge += 1;
        } else {
            return false;
        }
        true
    }
}

/// Whose a thread is that offwake lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Own,
    Hidden,
    Anybodys,
}

/// The process that a kernel may hide from BPF: the first one of some virtual machines, which is their agent.
const HIDDEN: u32 = 1;

/// One thread, or all threads that had one tid after each other, as offwake has it.
#[derive(Debug, Default)]
struct Reported {
    on_cpu_ns: u64,
    runnable_ns: u64,
    blocked_ns: u64,
    lost_ns: u64,
    comms: BTreeSet<String>,
}

impl Reported {
    fn add(&mut self, thread: &Thread) {
        self.on_cpu_ns += thread.on_cpu_ns;
        self.runnable_ns += thread.runnable_ns;
        self.blocked_ns += thread.blocked_ns - thread.lost_ns();
        self.lost_ns += thread.lost_ns();
        self.comms.insert(thread.comm.clone());
    }

    fn wall_ns(&self) -> u64 {
        self.on_cpu_ns + self.runnable_ns + self.blocked_ns + self.lost_ns
    }
}

/// The name of a thread that still lives.
fn comm(tid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{tid}/comm")).ok()
}

#[test]
fn times_and_sleeps_of_all_threads_are_those_that_the_kernel_traced() -> Result<()> {
    let Recorded { traced, pid, report, recording } = record()?;
    let window = report.interval();
    let mut reported: BTreeMap<u32, Reported> = BTreeMap::new();
    for thread in &report.threads {
        reported.entry(thread.tid).or_default().add(thread);
    }
    let mut recorded: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for wait in recording.waits.iter().filter(|wait| wait.begin == Begin::Seen) {
        recorded.entry(wait.tid.0).or_default().push(wait.off.0);
    }
    recorded.values_mut().for_each(|times| times.sort_unstable());
    let mut unwoken: BTreeMap<u32, (usize, u64)> = BTreeMap::new();
    for wait in recording.waits.iter() {
        if wait.wake.is_none() && wait.end != End::StillOff {
            let (count, ns) = unwoken.entry(wait.tid.0).or_default();
            *count += 1;
            *ns += wait.on.0.saturating_sub(wait.off.0);
        }
    }
    let mut sum = Sum::default();
    let mut created: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    for event in &recording.thread_events {
        created.entry(event.tid.0).or_default().insert(event.created.0);
    }
    let own = traced.descendants(pid);
    // The survey finds every thread that is there: who is not hidden has one at least.
    let is_hidden = report.threads.iter().all(|thread| thread.tgid != HIDDEN);
    let mut off_by_parts = Vec::new();
    let all: BTreeSet<u32> = traced.threads.keys().chain(reported.keys()).copied().collect();
    for tid in &all {
        let (raw, said) = match (traced.threads.get(tid), reported.get(tid)) {
            (Some(raw), Some(said)) => (raw, said),
            // Nothing happened to it while the events were traced: it slept.
            (None, said) => {
                let ran = said.map(|said| said.on_cpu_ns);
                ensure!(ran == Some(0), "the kernel never traced {tid}: {said:?}");
                sum.asleep += 1;
                continue;
            }
            (Some(raw), None) => {
                let whose = match own.contains(tid) {
                    true => Whose::Own,
                    false
                        if is_hidden
                            && Path::new(&format!("/proc/{HIDDEN}/task/{tid}")).exists() =>
                    {
                        Whose::Hidden
                    }
                    false => Whose::Anybodys,
                };
                let may_be = sum.absent.count(whose, raw, window);
                ensure!(may_be, "offwake lacks {tid} ({:?}): {raw:?}", comm(*tid));
                continue;
            }
        };
        ensure!(!own.contains(tid), "{tid} is of offwake itself: {said:?}");
        sum.threads += 1;
        let is_inside =
            |at: Option<u64>| at.is_some_and(|at| (window.start_ns..window.end_ns).contains(&at));
        sum.short_lived += usize::from(is_inside(raw.born_ns) && is_inside(raw.died_ns));
        sum.wall_ns += said.wall_ns();
        sum.lost_ns += said.lost_ns;
        let (unwoken, unwoken_ns) = unwoken.get(tid).copied().unwrap_or_default();
        sum.unwoken += unwoken;
        sum.untraced_ns += raw.untraced_ns;
        let switches = recorded.get(tid).map_or(&[][..], Vec::as_slice);
        let is_recorded = |&&at: &&u64| {
            let next = switches.partition_point(|&off| off + SAME_SWITCH_NS < at);
            switches.get(next).is_some_and(|&off| off <= at + SAME_SWITCH_NS)
        };
        let missing = raw.sleeps.len() - raw.sleeps.iter().filter(is_recorded).count();
        sum.sleeps += raw.sleeps.len();
        sum.missing += missing;
        ensure!(
            raw.sleeps.len() < MANY_SLEEPS
                || missing as f64 <= raw.sleeps.len() as f64 * MISSING_OF_ONE,
            "{missing} of {} sleeps of {tid} are missing: {said:?}",
            raw.sleeps.len()
        );
        if raw.untraced_ns == 0 {
            let mut left: Vec<u64> = raw.sleeps.iter().chain(&raw.sleepless).copied().collect();
            left.sort_unstable();
            let is_traced = |&&off: &&u64| {
                let next = left.partition_point(|&at| at + SAME_SWITCH_NS < off);
                left.get(next).is_some_and(|&at| at <= off + SAME_SWITCH_NS)
            };
            let inside = |&&off: &&u64| {
                window.start_ns + SAME_SWITCH_NS <= off && off + SAME_SWITCH_NS <= window.end_ns
            };
            let seen = switches.iter().filter(inside);
            sum.invented += seen.clone().count() - seen.filter(is_traced).count();
        }
        let bearable = (said.wall_ns() as f64 * RELATIVE) as u64
            + EDGES_NS
            + EACH_SWITCH_NS * switches.len().max(1) as u64
            + said.lost_ns
            + raw.untraced_ns;
        let creations = || created.get(tid).into_iter().flatten().copied();
        let building_ns = raw.born_ns.map_or(0, |born| {
            let creation = creations().rfind(|&at| at <= born && born <= at + BUILDING_NS);
            creation.map_or(0, |at| born - at)
        });
        // How long it lived before its first event that was traced is not known.
        let is_unborn =
            is_hidden && raw.born_ns.is_none() && creations().any(|at| is_inside(Some(at)));
        sum.unborn += usize::from(is_unborn);
        for (name, said_ns, raw_ns, bearable) in [
            ("ran", said.on_cpu_ns, raw.on_cpu_ns, bearable),
            (
                "waited for a CPU",
                said.runnable_ns,
                raw.runnable_ns,
                bearable + unwoken_ns + building_ns,
            ),
            ("slept", said.blocked_ns, raw.blocked_ns, bearable + unwoken_ns),
        ] {
            if is_unborn && name == "slept" {
                continue;
            }
            let off_by = said_ns.abs_diff(raw_ns);
            off_by_parts.push(off_by as f64 / said.wall_ns().max(1) as f64);
            ensure!(
                off_by <= bearable,
                "{tid} {name} for {raw_ns} ns, offwake says {said_ns}: {said:?}, {raw:?}"
            );
        }
    }
    off_by_parts.sort_by(f64::total_cmp);
    let median = off_by_parts.get(off_by_parts.len() / 2).copied().unwrap_or(1.0);
    println!(
        "{sum:?}, times are off by {median} in the median, {:?} at worst",
        off_by_parts.last()
    );
    let Sum { wall_ns, lost_ns, unwoken, untraced_ns, sleeps, missing, invented, .. } = sum;
    ensure!(sum.short_lived >= ENOUGH_SHORT_LIVED, "hardly any threads ended: {sum:?}");
    ensure!(sum.unborn * 10 <= sum.short_lived, "many were not seen to be forked: {sum:?}");
    ensure!(sum.absent.own > 0, "offwake was not traced, this proves little: {sum:?}");
    ensure!(sleeps > 1_000, "hardly anything slept, this proves nothing: {sum:?}");
    ensure!(missing as f64 <= sleeps as f64 * MISSING_SHARE, "sleeps are missing: {sum:?}");
    ensure!(
        invented as f64 <= sleeps as f64 * MISSING_SHARE,
        "the kernel traced no such sleeps: {sum:?}"
    );
    ensure!(median <= MEDIAN, "half of all times are off by {median} or more: {sum:?}");
    ensure!(lost_ns as f64 <= wall_ns as f64 * LOST_SHARE, "time is lost: {sum:?}");
    ensure!(
        unwoken as f64 <= sleeps as f64 * MISSING_SHARE,
        "nobody was seen to end many waits: {sum:?}"
    );
    ensure!(
        untraced_ns as f64 <= wall_ns as f64 * UNTRACED_SHARE,
        "the trace itself has holes, this proves little: {sum:?}"
    );
    Ok(())
}
