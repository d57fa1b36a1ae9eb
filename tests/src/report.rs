//! The JSON report as its contract has it, of either schema. Keys that are not in the contract are passed over.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::{intervals::Interval, report_tables};

/// The whole report. All times are ns.
#[derive(Clone, Debug, Deserialize)]
pub struct Report {
    /// How it was recorded.
    pub meta: Meta,
    /// What was looked at.
    pub window: Window,
    /// What was lost.
    pub loss: Loss,
    /// Whether the recording was sound: an addition to the contract.
    pub recording: Soundness,
    /// The containers that threads were seen in: an addition to the contract.
    #[serde(default)]
    pub containers: Vec<Container>,
    /// What holds the target up: an addition to the contract.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// The CPU quotas that kept threads from running: an addition to the contract.
    #[serde(default)]
    pub quotas: Vec<Quota>,
    /// The target's threads.
    pub threads: Vec<Thread>,
    /// The wakes: which thread woke which.
    pub wakes: Vec<Wakes>,
    /// What was waited for.
    pub waits: Vec<Waits>,
}

/// Something that holds the target up.
#[derive(Clone, Debug, Deserialize)]
pub struct Finding {
    /// What kind of thing it is.
    pub kind: String,
    /// Its time, added up over all threads.
    #[serde(default)]
    pub ns: u64,
    /// It in one line.
    pub text: String,
    /// The end of its chain.
    pub cause: FindingCause,
    /// What screens show of it.
    pub lines: Vec<FindingLine>,
    /// Who waited, for whom, and so on.
    pub chain: Vec<FindingHop>,
    /// The disk that it is about.
    #[serde(default)]
    pub disk: Option<FindingDisk>,
}

/// A disk that was waited for.
#[derive(Clone, Debug, Deserialize)]
pub struct FindingDisk {
    /// The block device.
    pub device: String,
    /// The kind of the filesystem.
    pub filesystem: String,
    /// Where that is mounted.
    pub mount_point: String,
    /// The whole disks below it.
    pub disks: Vec<String>,
    /// The file.
    pub file: Option<String>,
    /// The I/O limit of those who wait for it.
    pub limit: Option<FindingIoLimit>,
    /// Who else used the disk.
    pub others: Vec<DiskUser>,
}

/// The I/O limit of a cgroup for a disk.
#[derive(Clone, Debug, Deserialize)]
pub struct FindingIoLimit {
    /// The path of the cgroup.
    pub cgroup: String,
    /// What it counts.
    pub unit: String,
    /// How much of that is allowed.
    pub per_second: u64,
    /// How much of what is allowed was used.
    pub used_share: f64,
    /// For how long it was used up.
    pub used_up_ns: Option<u64>,
    /// How long the device's own requests took.
    pub device_ns: Option<u64>,
    /// The time in which that was counted.
    pub counted_ns: u64,
    /// Whether it held anybody back.
    pub is_cause: bool,
}

/// Who else used a disk.
#[derive(Clone, Debug, Deserialize)]
pub struct DiskUser {
    /// The process, if it was one only.
    pub pid: Option<u32>,
    /// The block device, if it is another one.
    pub device: Option<String>,
    /// How much it read.
    pub read_bytes: Option<u64>,
    /// How much it wrote.
    pub written_bytes: Option<u64>,
}

/// A hop of a finding's chain.
#[derive(Clone, Debug, Deserialize)]
pub struct FindingHop {
    /// The thread, in chains of waits that had not ended.
    #[serde(default)]
    pub tid: Option<u32>,
    /// The process, if it is one.
    #[serde(default)]
    pub pid: Option<u32>,
    /// What runs there.
    #[serde(default)]
    pub program: Option<String>,
    /// The thread's name, if it is one that has a name of its own.
    #[serde(default)]
    pub thread_name: Option<String>,
    /// How many threads, at least one; 0 if the report is older.
    #[serde(default)]
    pub threads: u64,
    /// The function.
    pub function: Option<String>,
    /// The event loop that they blocked.
    #[serde(default)]
    pub blocked_loop: Option<String>,
    /// What the thread did, in words.
    pub what: String,
}

/// The end of a finding's chain.
#[derive(Clone, Debug, Deserialize)]
pub struct FindingCause {
    /// As [`Blame::kind`].
    pub kind: String,
    /// Its part of the target's active time.
    #[serde(default)]
    pub share: f64,
    /// It in words.
    pub text: String,
}

/// A line of a finding.
#[derive(Clone, Debug, Deserialize)]
pub struct FindingLine {
    /// The line.
    pub text: String,
}

/// A container.
#[derive(Clone, Debug, Deserialize)]
pub struct Container {
    /// The container's id.
    pub id: String,
    /// What texts call it.
    pub label: String,
    /// The image that it was made from.
    pub image: Option<String>,
    /// The processes that were seen in it.
    pub processes: Vec<ContainerProcess>,
}

/// A CPU quota that kept threads from running.
#[derive(Clone, Debug, Deserialize)]
pub struct Quota {
    /// The cgroup's path.
    pub path: Option<String>,
    /// The CPU time in a period.
    pub quota_ns: Option<u64>,
    /// The length of a period.
    pub period_ns: Option<u64>,
    /// How long threads were throttled, in sum.
    pub throttled_ns: u64,
    /// What the kernel counted meanwhile.
    pub counted: Option<QuotaCount>,
    /// The threads.
    pub threads: Vec<ThrottledThread>,
}

/// What the kernel counted of a quota.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct QuotaCount {
    /// Periods in which the quota was used up.
    pub throttled_periods: u64,
    /// How long the cgroup was throttled.
    pub throttled_ns: u64,
}

/// A thread that was throttled.
#[derive(Clone, Debug, Deserialize)]
pub struct ThrottledThread {
    /// The thread.
    pub tid: u32,
    /// How long.
    pub ns: u64,
}

/// A process in a container.
#[derive(Clone, Debug, Deserialize)]
pub struct ContainerProcess {
    /// The process's id in the machine's own namespace.
    pub tgid: u32,
    /// The process's id inside the container.
    pub pid_in_container: Option<u32>,
}

/// How a report was recorded.
#[derive(Clone, Debug, Deserialize)]
pub struct Meta {
    /// The target in words.
    pub target: String,
    /// How many on-CPU samples a second were taken on each CPU.
    pub sample_hz: u64,
    /// What closed the window.
    pub closed_by: String,
    /// How stacks were taken: an addition to the contract.
    #[serde(default)]
    pub stacks: String,
    /// How they were come by, another.
    #[serde(default)]
    pub stack_counts: StackCounts,
    /// Of whom a kind of stacks was walked every time, another.
    #[serde(default)]
    pub mistaken: Vec<Mistaken>,
    /// What the kernel half took, another.
    pub programs: Option<Programs>,
    /// What recording cost, and what was given up, another.
    pub overhead: Option<Overhead>,
}

/// What recording cost, and what was given up so that it was no more.
#[derive(Clone, Debug, Deserialize)]
pub struct Overhead {
    /// What the programs in the kernel took.
    pub kernel_ns: u64,
    /// What offwake's own threads took.
    pub own_ns: u64,
    /// The time of all CPUs.
    pub cpu_time_ns: u64,
    /// What it might have taken.
    pub limit_ns: Option<u64>,
    /// Which detail was recorded when.
    pub stretches: Vec<DetailStretch>,
}

/// A stretch of time in which the same detail was recorded.
#[derive(Clone, Debug, Deserialize)]
pub struct DetailStretch {
    /// Its first moment.
    pub from_ns: u64,
    /// The first moment after it.
    pub until_ns: u64,
    /// What was given up.
    pub step: String,
    /// Above which length of a wait it was not.
    pub threshold_ns: Option<u64>,
}

/// How one half of stacks was come by.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct HalfCounts {
    /// Stacks that the cache knew, without a copy or a walk.
    pub recognised: u64,
    /// Stacks that were copied or walked.
    pub taken: u64,
    /// Stacks that the cache knew and that were copied or walked as well, to compare.
    pub checked: u64,
    /// Compared stacks where the cache was wrong.
    pub disagreed: u64,
}

/// How stacks were come by.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct StackCounts {
    /// The counts of user stacks.
    pub user: HalfCounts,
    /// The counts of kernel stacks.
    pub kernel: HalfCounts,
    /// Not at all, for want of time.
    pub over_budget: u64,
    /// Kinds of stacks of single threads of which all are walked, as too many disagreed.
    pub distrusted: u64,
    /// User stacks left out by chance, as there was no time to unwind more.
    pub thinned_out: u64,
}

/// A thread of which a kind of stacks was walked every time.
#[derive(Clone, Debug, Deserialize)]
pub struct Mistaken {
    /// The thread.
    pub tid: u32,
}

/// What the kernel half took.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Programs {
    /// How long it was measured.
    pub measured_ns: u64,
    /// Time of the programs at switches and wakes.
    pub scheduler_ns: u64,
    /// Time of the programs in interrupts.
    pub interrupts_ns: u64,
}

/// What is wrong with the recording's file.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Soundness {
    /// Whether the recording has no end.
    pub cut_off: bool,
    /// Slices that could not be read.
    pub slices_damaged: u64,
    /// Slices that are not there.
    pub slices_missing: u64,
}

/// The time that the report is of, `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, Deserialize)]
pub struct Window {
    /// When the window opened.
    pub start_ns: u64,
    /// When the window closed.
    pub end_ns: u64,
    /// How long the window was open.
    pub duration_ns: u64,
}

/// What was lost.
#[derive(Clone, Debug, Deserialize)]
pub struct Loss {
    /// Records.
    pub records: u64,
    /// Stacks.
    pub stacks: u64,
    /// Holes in threads' timelines.
    pub gaps: u64,
    /// How long they are together.
    pub gap_ns: u64,
    /// Every way to lose something that was taken, by name: an addition to the contract.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// What did not answer: an addition to the contract.
    #[serde(default)]
    pub unanswered: Vec<Unanswered>,
}

/// What did not answer.
#[derive(Clone, Debug, Deserialize)]
pub struct Unanswered {
    /// What was asked for.
    pub kind: String,
    /// Where files lie.
    pub place: String,
    /// The process that was asked.
    pub tgid: Option<u32>,
}

/// The ledger of one thread.
#[derive(Clone, Debug, Deserialize)]
pub struct Thread {
    /// The thread.
    pub tid: u32,
    /// The process that the thread belongs to.
    pub tgid: u32,
    /// The thread's name.
    pub comm: String,
    /// How often the sampling clock found it on a CPU.
    pub samples: u64,
    /// How long it lived in the window.
    pub wall_ns: u64,
    /// Time on a CPU.
    pub on_cpu_ns: u64,
    /// Waiting for one.
    pub runnable_ns: u64,
    /// The part of it in which a CPU quota kept the thread from running: an addition.
    #[serde(default)]
    pub throttled_ns: u64,
    /// Blocked.
    pub blocked_ns: u64,
    /// The part of the blocked time that is blamed on threads.
    pub attributed_ns: u64,
    /// The part of the blocked time that is blamed on what is no thread.
    pub external_ns: u64,
    /// The part of the blocked time that is blamed on nobody.
    pub unattributed_ns: u64,
    /// The external part by kind.
    pub external: BTreeMap<String, u64>,
    /// The unattributed part by reason.
    pub unattributed: BTreeMap<String, u64>,
}

/// One edge: which thread woke which from what.
#[derive(Clone, Debug, Deserialize)]
pub struct Wakes {
    /// The waker.
    pub waker: Waker,
    /// The wakee.
    pub wakee: Wakee,
    /// From what.
    pub cause: String,
    /// How often.
    pub count: u64,
    /// How long the wakee had been blocked, in sum.
    pub blocked_ns: u64,
}

/// The waker.
#[derive(Clone, Debug, Deserialize)]
pub struct Waker {
    /// `task`, `softirq` or `hardirq`.
    pub kind: String,
    /// The thread, if it is a task.
    pub tid: Option<u32>,
    /// The process that the thread belongs to.
    pub tgid: Option<u32>,
    /// The thread's name.
    pub comm: Option<String>,
    /// Which interrupt, if it is one: a name or a number.
    pub vector: Option<serde_json::Value>,
}

/// The wakee.
#[derive(Clone, Debug, Deserialize)]
pub struct Wakee {
    /// The thread.
    pub tid: u32,
    /// The process that the thread belongs to.
    pub tgid: u32,
    /// The thread's name.
    pub comm: String,
}

/// Waits of one thread for one cause at one place.
#[derive(Clone, Debug, Deserialize)]
pub struct Waits {
    /// The thread.
    pub tid: u32,
    /// The process that the thread belongs to.
    pub tgid: u32,
    /// The thread's name.
    pub comm: String,
    /// What the waits were on.
    pub cause: String,
    /// The very thing that they were on.
    pub waited_on: Option<WaitedOn>,
    /// The syscall in which a task ended them.
    pub waker_call: Option<WakerCall>,
    /// How many.
    pub count: u64,
    /// How long in sum.
    pub blocked_ns: u64,
    /// The part of it that is idle by design: an addition to the contract.
    #[serde(default)]
    pub idle_ns: u64,
    /// The waker of these waits: an addition to the contract.
    #[serde(default)]
    pub waker: Option<Waker>,
    /// The frames from root to leaf.
    pub stack: Vec<String>,
    /// How the time divides.
    pub blame: Vec<Blame>,
}

/// The very thing that a wait was on.
#[derive(Clone, Debug, Deserialize)]
pub struct WaitedOn {
    /// What was waited on, in words.
    pub text: String,
    /// Address of the futex, as text.
    pub futex_address: Option<String>,
}

/// The syscall in which a task ended a wait.
#[derive(Clone, Debug, Deserialize)]
pub struct WakerCall {
    /// The syscall's name.
    pub syscall: String,
    /// Address of the futex, as text.
    pub futex_address: Option<String>,
    /// What its descriptor stood for: an addition to the contract.
    #[serde(default)]
    pub file: Option<String>,
}

/// A share of the blame.
#[derive(Clone, Debug, Deserialize)]
pub struct Blame {
    /// `work`, `cpu_queue`, `timer`, `disk`, `network`, `device`, `throttled` or `unattributed`.
    pub kind: String,
    /// Why nobody is blamed, if nobody is.
    pub reason: Option<String>,
    /// The thread to blame, if one is.
    pub tid: Option<u32>,
    /// The process that the thread belongs to.
    pub tgid: Option<u32>,
    /// The thread's name.
    pub comm: Option<String>,
    /// What its container is called: an addition to the contract.
    #[serde(default)]
    pub container: Option<String>,
    /// Hops from the wait.
    pub depth: Option<u32>,
    /// How much.
    pub ns: u64,
    /// Whether some thread on the way had nothing to do: an addition to the contract.
    #[serde(default)]
    pub idle: bool,
    /// With `cpu_queue`, the thread that ran there meanwhile: an addition to the contract.
    #[serde(default)]
    pub holder: Option<Named>,
    /// The threads from the wait on, the blamed one last: an addition to the contract.
    #[serde(default)]
    pub chain: Vec<Named>,
    /// The frames of the blamed thread, from root to leaf: an addition to the contract.
    #[serde(default)]
    pub stack: Vec<String>,
}

/// A thread as the report names it.
#[derive(Clone, Debug, Deserialize)]
pub struct Named {
    /// The thread.
    pub tid: u32,
    /// The process that the thread belongs to.
    pub tgid: u32,
    /// The thread's name.
    pub comm: String,
}

impl Soundness {
    /// Whether nothing of it is missing.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.cut_off && self.slices_damaged + self.slices_missing == 0
    }
}

impl Thread {
    /// How long it was in gaps of its timeline, in ns.
    #[must_use]
    pub fn lost_ns(&self) -> u64 {
        self.unattributed.get("lost").copied().unwrap_or_default()
    }
}

impl Waits {
    /// Whether the name of a frame of its stack has this in it.
    #[must_use]
    pub fn has_frame(&self, part: &str) -> bool {
        self.stack.iter().any(|frame| frame.contains(part))
    }
}

impl Finding {
    /// The last hop, who is told to be the cause. None if it is who waits, or if the cause is not
    /// known.
    #[must_use]
    pub fn accused(&self) -> Option<&FindingHop> {
        let is_known = self.cause.kind != "unattributed" && self.chain.len() > 1;
        self.chain.last().filter(|_| is_known)
    }
}

impl Blame {
    /// The ids of the threads from the wait on.
    #[must_use]
    pub fn path(&self) -> Vec<u32> {
        self.chain.iter().map(|thread| thread.tid).collect()
    }

    /// The thread that a chain ends at: what it did then is why the wait took so long, be it work, a
    /// sleep, or a wait for a disk. None if it is the waiting thread itself, or if nobody is blamed.
    #[must_use]
    pub fn accused(&self) -> Option<&Named> {
        self.chain.last().filter(|_| self.reason.is_none() && self.kind != "unattributed")
    }

    /// The thread that the blame accuses: it worked, or was kept from its CPU.
    #[must_use]
    pub fn blamed_tid(&self) -> Option<u32> {
        self.tid.filter(|_| matches!(self.kind.as_str(), "work" | "cpu_queue"))
    }
}

impl Report {
    /// Reads a report of either schema.
    ///
    /// # Errors
    ///
    /// When it is no JSON, or lacks what the contract promises.
    pub fn parse(text: &str) -> Result<Self> {
        let report = serde_json::from_str(text).context("not a report")?;
        serde_json::from_value(report_tables::resolve(report)?).context("not a report")
    }

    /// The window as an interval.
    #[must_use]
    pub fn interval(&self) -> Interval {
        Interval::new(self.window.start_ns, self.window.end_ns)
    }

    /// The ledger of a thread.
    ///
    /// # Errors
    ///
    /// When the report has none, or several.
    pub fn thread(&self, tid: u32) -> Result<&Thread> {
        let found: Vec<_> = self.threads.iter().filter(|thread| thread.tid == tid).collect();
        let [thread] = found[..] else {
            anyhow::bail!("wanted one ledger of thread {tid}, got {found:?}");
        };
        Ok(thread)
    }

    /// The waits of a thread for `cause`, or for anything.
    pub fn waits_of(&self, tid: u32, cause: Option<&str>) -> impl Iterator<Item = &Waits> {
        self.waits.iter().filter(move |waits| {
            waits.tid == tid && cause.is_none_or(|wanted| waits.cause == wanted)
        })
    }

    /// How long a thread was blocked on `cause`, in ns.
    #[must_use]
    pub fn blocked_ns(&self, tid: u32, cause: &str) -> u64 {
        self.waits_of(tid, Some(cause)).map(|waits| waits.blocked_ns).sum()
    }

    /// The same of waits that have ended: nobody has ended one that lasts beyond the window, and a thread on an emulated
    /// machine may be kept waiting for a CPU for long.
    #[must_use]
    pub fn ended_ns(&self, tid: u32, cause: &str) -> u64 {
        let blame = self.waits_of(tid, Some(cause)).flat_map(|waits| &waits.blame);
        let is_open = |blame: &&Blame| {
            blame.chain.is_empty() && blame.reason.as_deref() == Some("still_blocked")
        };
        let open: u64 = blame.filter(is_open).map(|blame| blame.ns).sum();
        self.blocked_ns(tid, cause) - open
    }

    /// What the blame for a thread's waits sums up to, by kind and accused thread.
    #[must_use]
    pub fn blame_of(&self, tid: u32, cause: Option<&str>) -> BTreeMap<(&str, Option<u32>), u64> {
        let mut sums = BTreeMap::new();
        for blame in self.waits_of(tid, cause).flat_map(|waits| &waits.blame) {
            *sums.entry((blame.kind.as_str(), blame.blamed_tid())).or_default() += blame.ns;
        }
        sums
    }

    /// The edges that end at a thread.
    pub fn wakes_of(&self, wakee: u32) -> impl Iterator<Item = &Wakes> {
        self.wakes.iter().filter(move |wakes| wakes.wakee.tid == wakee)
    }

    /// The ids of the target's threads.
    pub fn tids(&self) -> impl Iterator<Item = u32> {
        self.threads.iter().map(|thread| thread.tid)
    }

    /// The ids of the target's processes.
    #[must_use]
    pub fn tgids(&self) -> BTreeSet<u32> {
        self.threads.iter().map(|thread| thread.tgid).collect()
    }

    /// How often something was lost in the way of this name.
    #[must_use]
    pub fn loss_count(&self, loss: &str) -> u64 {
        self.loss.counters.get(loss).copied().unwrap_or_default()
    }

    /// Demands that no task but `wakers` ended a wait of a thread on `cause`.
    ///
    /// # Errors
    ///
    /// When another one did.
    pub fn check_wakers_among(
        &self,
        wakee: u32,
        cause: &str,
        wakers: &BTreeSet<u32>,
    ) -> Result<()> {
        for wakes in self.wakes_of(wakee).filter(|wakes| wakes.cause == cause) {
            let right = wakes.waker.tid.is_none_or(|waker| wakers.contains(&waker));
            ensure!(right, "a wrong waker: {wakes:?}");
        }
        Ok(())
    }

    /// Demands that of two threads each was woken from waits on `cause` by the other alone, and that
    /// nobody else is accused of any wait on it.
    ///
    /// # Errors
    ///
    /// When it is not so.
    pub fn check_only_each_other(&self, one: u32, other: u32, cause: &str) -> Result<()> {
        for (wakee, waker) in [(one, other), (other, one)] {
            self.check_wakers_among(wakee, cause, &BTreeSet::from([waker]))?;
        }
        for waits in self.waits.iter().filter(|waits| waits.cause == cause) {
            for blame in &waits.blame {
                let right = blame.accused().is_none_or(|it| [one, other].contains(&it.tid));
                ensure!(right, "a wrong culprit: {blame:?}");
            }
        }
        Ok(())
    }
}
