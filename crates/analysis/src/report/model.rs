//! The report: what `docs/report-json.md` describes, key by key.

use std::{collections::BTreeMap, sync::Arc};

use offwake_recording::units::{CgroupId, Nanos, Tgid, Tid, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    blame::{BlameClass, BlameEntryKind, Reason, cause::Cause},
    findings::Findings,
    frames::Frames,
    label::Label,
    waited_on_entry::WaitedOnEntry,
};

use super::{MarkersEntry, OverheadEntry, RecordingIntegrity};

/// Everything that a run found out. All times are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Report {
    /// `offwake.report/1`
    #[schemars(extend("const" = "offwake.report/1"))]
    pub schema: &'static str,
    /// What was recorded, and how.
    pub meta: Meta,
    /// The time that it covers.
    pub window: WindowEntry,
    /// What holds the target up: what every view begins with.
    #[serde(flatten)]
    pub findings: Findings,
    /// What is missing.
    pub loss: LossNote,
    /// Whether the recording itself was sound.
    pub recording: RecordingIntegrity,
    /// What the filter left out.
    pub filter: FilterNote,
    /// The target's processes, by tgid.
    pub processes: Vec<ProcessEntry>,
    /// Their cgroups, by id.
    pub cgroups: Vec<CgroupEntry>,
    /// The CPU quotas that kept threads from running, the target's or not; that with the most time
    /// first.
    pub quotas: Vec<QuotaEntry>,
    /// The containers of every thread that was seen, the target's or not, by id.
    pub containers: Vec<ContainerEntry>,
    /// What the target's programs marked in their own code. Absent if nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub markers: Option<MarkersEntry>,
    /// The target's threads, by tid, then by time of creation.
    pub threads: Vec<ThreadEntry>,
    /// Who woke the target's threads; those that ended the longest waiting first.
    pub wakes: Vec<WakeEntry>,
    /// What the target's threads waited for; the longest first.
    pub waits: Vec<WaitEntry>,
}

/// What was recorded, and how.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Meta {
    /// Version of offwake that recorded.
    pub offwake: String,
    /// The target in words.
    pub target: String,
    /// `machine` or `target`.
    pub scope: &'static str,
    /// `cached`, `exact` or `off`.
    pub stacks: &'static str,
    /// How they were come by.
    pub stack_counts: StackCountsEntry,
    /// The threads of which a kind of stacks was walked every time, as too many had been taken for
    /// others.
    pub mistaken: Vec<MistakenThread>,
    /// What the kernel half took, if that was measured.
    pub programs: Option<ProgramsEntry>,
    /// What recording cost, and what was given up so that it was no more; null if it was not measured.
    pub overhead: Option<OverheadEntry>,
    /// On-CPU samples a second.
    pub sample_hz: u32,
    /// Release of the kernel.
    pub kernel: String,
    /// Name of the host.
    pub host: String,
    /// CPU time of the profiler's own threads inside the window.
    pub own_cpu_ns: Nanos,
    /// What closed the window ([`offwake_recording::ClosedBy::name`]).
    pub closed_by: &'static str,
}

/// How one half of stacks was come by ([`offwake_recording::HalfCounts`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HalfCountsEntry {
    /// Recognised without being taken, those that were checked included.
    pub recognised: u64,
    /// Taken since they were not recognised: user stacks are copied, kernel stacks walked; the latter are
    /// not counted with `exact`.
    pub taken: u64,
    /// Recognised and taken all the same.
    pub checked: u64,
    /// Checked, and others than they were taken for.
    pub disagreed: u64,
    /// Of those that were recognised, those that were by registers alone.
    pub by_registers: u64,
    /// Recognised by registers alone, and taken all the same.
    pub by_registers_checked: u64,
    /// Recognised by registers alone, checked, and others than they were taken for.
    pub by_registers_disagreed: u64,
}

/// How stacks were come by ([`offwake_recording::StackCounts`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StackCountsEntry {
    /// The user halves.
    pub user: HalfCountsEntry,
    /// The kernel halves.
    pub kernel: HalfCountsEntry,
    /// Not taken: the budget was used up.
    pub over_budget: u64,
    /// Kinds of stacks of single threads (the user or the kernel half, waiting or waking) that are walked
    /// every time, as too many disagreed.
    pub distrusted: u64,
    /// User stacks that were not taken, by chance, as those before them had not been unwound yet.
    pub thinned_out: u64,
}

/// A thread of which a kind of stacks was walked every time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MistakenThread {
    /// Its process.
    pub pid: Tgid,
    /// The thread.
    pub tid: Tid,
    /// Its name at that moment.
    pub comm: String,
}

/// What the programs in the kernel took, by its own statistics, which were on for moments only.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ProgramsEntry {
    /// How long it was measured.
    pub measured_ns: Nanos,
    /// What those at switches and wakes took meanwhile, on all CPUs.
    pub scheduler_ns: Nanos,
    /// What those took that say which interrupt a CPU is in.
    pub interrupts_ns: Nanos,
}

/// The time that a report covers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the keys say it")]
pub struct WindowEntry {
    pub start_ns: Timestamp,
    pub end_ns: Timestamp,
    pub duration_ns: Nanos,
    /// `start_ns` as Unix time, if the clocks were read.
    pub start_unix_ns: Option<i64>,
}

/// What is missing.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LossNote {
    /// Records that never arrived.
    pub records: u64,
    /// Stacks that never arrived.
    pub stacks: u64,
    /// Stretches of the recorded threads' lives of which nothing is known.
    pub gaps: u64,
    /// Their length, added up.
    pub gap_ns: Nanos,
    /// Records that arrived and could not be read.
    pub undecodable: u64,
    /// Records that arrived when the limit of memory was reached.
    pub over_memory: u64,
    /// Every counter of the kernel half that is not 0.
    pub counters: BTreeMap<String, u64>,
    /// When a ring was full.
    pub ring_full: Option<RingFull>,
    /// Records that overlapped the one before.
    pub overlaps: u64,
    /// Records whose times or numbers ran backwards.
    pub backwards: u64,
    /// Wakes that were too old for their wait.
    pub stale_wakes: u64,
    /// Time of which a thread's own records don't tell, because they were lost, and that the
    /// records of others prove; it is in no gap.
    pub inferred_ns: Nanos,
    /// What did not answer while recording: names or stacks from there are missing.
    pub unanswered: Vec<UnansweredNote>,
}

/// What did not answer, by place or process.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct UnansweredNote {
    /// What was asked for: `file`, `directory`, `memory`, `mappings`, `arguments`, `root`,
    /// `descriptor`; `other` for all that there was no room for.
    pub kind: &'static str,
    /// Where files lie; empty otherwise.
    pub place: String,
    /// The process that did not answer.
    pub tgid: Option<Tgid>,
    /// How many.
    pub count: u64,
}

/// When a ring was full for the first and for the last time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the keys say it")]
pub struct RingFull {
    pub first_ns: Timestamp,
    pub last_ns: Timestamp,
}

/// The filter, and what it left out of `waits` and `wakes`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FilterNote {
    /// Shortest wait.
    pub min_ns: Option<Nanos>,
    /// Longest wait.
    pub max_ns: Option<Nanos>,
    /// `all`, `user` or `kernel`.
    pub kinds: &'static str,
    /// Letters of task states.
    pub states: Option<Vec<char>>,
    /// Conditions on what the waits were: `function=LockAcquire`.
    #[serde(rename = "where")]
    pub conditions: Vec<String>,
    /// The band of requests that the waits are of: `p99–100`. Absent if those of all are shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub band: Option<String>,
    /// Waits of the target that it left out.
    pub left_out_count: u64,
    /// Their blocked time.
    pub left_out_ns: Nanos,
    /// Parts of the shown waits' blame that there is no room for: they are summed up as `report_limit`.
    pub limited_count: u64,
    /// Their time.
    pub limited_ns: Nanos,
    /// Entries of `waits` that there is no room for: they are summed up for each thread, cause and state.
    pub limited_waits: u64,
    /// Their time.
    pub limited_waits_ns: Nanos,
    /// Entries of `wakes` that there is no room for: they are left out.
    pub limited_wakes: u64,
    /// The waits' time that they ended.
    pub limited_wakes_ns: Nanos,
    /// Whether waits for the next request are left out.
    pub hide_idle: bool,
    /// What pictures leave out of the shown waits' blame: `external`, `unattributed`; and its time.
    pub hidden: BTreeMap<&'static str, Nanos>,
}

/// A ledger; see [`crate::blame::Ledger`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the keys say it")]
pub struct LedgerEntry {
    pub wall_ns: Nanos,
    pub on_cpu_ns: Nanos,
    pub runnable_ns: Nanos,
    /// Of `runnable_ns`, that in which a CPU quota kept threads from running.
    pub throttled_ns: Nanos,
    pub blocked_ns: Nanos,
    pub attributed_ns: Nanos,
    pub external_ns: Nanos,
    pub unattributed_ns: Nanos,
    /// The parts of `attributed_ns` that are not 0: `work`, `cpu_queue`.
    pub attributed: BTreeMap<&'static str, Nanos>,
    /// The parts of `external_ns` that are not 0.
    pub external: BTreeMap<&'static str, Nanos>,
    /// The parts of `unattributed_ns` that are not 0, by reason.
    pub unattributed: BTreeMap<&'static str, Nanos>,
    /// Of `blocked_ns`, that which was idle by design; it is in the others as well.
    pub idle_ns: Nanos,
}

impl LedgerEntry {
    /// Adds another one, part by part.
    pub fn add(&mut self, other: &Self) {
        self.wall_ns += other.wall_ns;
        self.on_cpu_ns += other.on_cpu_ns;
        self.runnable_ns += other.runnable_ns;
        self.throttled_ns += other.throttled_ns;
        self.blocked_ns += other.blocked_ns;
        self.attributed_ns += other.attributed_ns;
        self.external_ns += other.external_ns;
        self.unattributed_ns += other.unattributed_ns;
        self.idle_ns += other.idle_ns;
        for (sums, parts) in [
            (&mut self.attributed, &other.attributed),
            (&mut self.external, &other.external),
            (&mut self.unattributed, &other.unattributed),
        ] {
            for (&name, &time) in parts {
                *sums.entry(name).or_default() += time;
            }
        }
    }
}

/// One of the target's processes: its threads' ledgers added up.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ProcessEntry {
    /// Its id.
    pub tgid: Tgid,
    /// Its last known name: that of its first thread.
    pub comm: String,
    /// What its container is called, if it lives in one: the `label` of one of the report's.
    pub container: Option<String>,
    /// Its own idea of its PID, if it lives in a PID namespace of its own.
    pub pid_in_container: Option<u32>,
    /// How many threads it had in the window.
    pub threads: u64,
    /// Its ledger.
    #[serde(flatten)]
    pub ledger: LedgerEntry,
}

/// A cgroup with threads of the target: their ledgers added up. A thread that moved counts where it
/// was last.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CgroupEntry {
    /// Its id: the inode number of its directory.
    pub id: CgroupId,
    /// Its path below the root of its hierarchy, if it could be found.
    pub path: Option<String>,
    /// Id of the container that it is one of, if it is.
    pub container: Option<String>,
    /// How many of the target's threads were in it.
    pub threads: u64,
    /// Its ledger.
    #[serde(flatten)]
    pub ledger: LedgerEntry,
}

/// A CPU quota that kept threads from running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct QuotaEntry {
    /// Id of the cgroup in the hierarchy that has the cpu controller: the inode number of its
    /// directory there. None if it is not known.
    pub cgroup: Option<CgroupId>,
    /// The cgroup's path below the root of that hierarchy, if it could be found.
    pub path: Option<String>,
    /// The CPU time that the cgroup's threads may use in a period, if it is known.
    pub quota_ns: Option<Nanos>,
    /// The length of a period.
    pub period_ns: Option<Nanos>,
    /// How long it kept threads from running inside the window, added up over threads.
    pub throttled_ns: Nanos,
    /// What the kernel has counted meanwhile (`cpu.stat`), to compare; none if it could not be read.
    pub counted: Option<QuotaCountEntry>,
    /// The threads that were throttled, that with the most time first; 100 at most.
    pub threads: Vec<ThrottledThread>,
}

/// What the kernel has counted of a CPU quota between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct QuotaCountEntry {
    /// When it was first read.
    pub from_ns: Timestamp,
    /// When it was last read.
    pub to_ns: Timestamp,
    /// Periods in which the cgroup's threads wanted to run.
    pub periods: u64,
    /// Those of them in which the quota was used up.
    pub throttled_periods: u64,
    /// How long the cgroup was throttled, added up over CPUs, whatever the number of threads there.
    pub throttled_ns: Nanos,
}

/// A thread that was throttled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ThrottledThread {
    /// Which.
    #[serde(flatten)]
    pub thread: ThreadName,
    /// How long.
    pub ns: Nanos,
}

/// A container, and the processes that were seen in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ContainerEntry {
    /// Its id, in full.
    pub id: String,
    /// It in one word, as every text has it: its name, that of its pod before it, or the beginning of
    /// its id.
    pub label: String,
    /// Its name, if anybody knew it.
    pub name: Option<String>,
    /// The image that it was made from.
    pub image: Option<String>,
    /// The Kubernetes pod that it is a part of: `namespace/name`.
    pub pod: Option<String>,
    /// Its processes, by tgid.
    pub processes: Vec<ContainerProcess>,
}

/// A process in a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ContainerProcess {
    /// Its id outside: that of all of the report.
    pub tgid: Tgid,
    /// Its last known name.
    pub comm: String,
    /// Its id inside, if it has another one there and `/proc` could be asked in time.
    pub pid_in_container: Option<u32>,
}

/// One of the target's threads.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ThreadEntry {
    /// Its id.
    pub tid: Tid,
    /// Its process.
    pub tgid: Tgid,
    /// Its last known name.
    pub comm: String,
    /// When it was created; none if that is not known.
    pub created_ns: Option<Timestamp>,
    /// How often the sampling clock found it on a CPU.
    pub samples: u64,
    /// Its ledger.
    #[serde(flatten)]
    pub ledger: LedgerEntry,
}

/// In what context a wake was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WakerKind {
    /// A task.
    Task,
    /// A softirq.
    Softirq,
    /// An interrupt.
    Hardirq,
}

/// Who made a wake.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct WakerEntry {
    /// In what context.
    pub kind: WakerKind,
    /// The task; none for an interrupt, which is nobody's.
    pub tid: Option<Tid>,
    /// Its process.
    pub tgid: Option<Tgid>,
    /// Its name at the time.
    pub comm: Option<String>,
    /// What its container is called, if it lives in one.
    pub container: Option<String>,
    /// Which interrupt: `NET_RX`, `irq 24`, `hrtimer`, `local_timer`. With a task: the softirq that
    /// ran inside its send.
    pub vector: Option<String>,
    /// Of a device's interrupt: what its handler is called, `nvme0q1`, if that is known.
    pub device: Option<String>,
}

/// A thread, its name at the time, and what its container is called, if it lives in one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the keys say it")]
pub struct ThreadName {
    pub tid: Tid,
    pub tgid: Tgid,
    pub comm: String,
    pub container: Option<String>,
}

/// All wakes of one thread by one waker out of waits of one cause.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct WakeEntry {
    /// The thread or interrupt that woke them.
    pub waker: WakerEntry,
    /// The thread that waited.
    pub wakee: ThreadName,
    /// What the waits were on.
    pub cause: Cause,
    /// How many.
    pub count: u64,
    /// How long the wakee had been blocked, added up.
    pub blocked_ns: Nanos,
}

/// The syscall in which a task made a wake: the other end of what was waited on.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct WakerCallEntry {
    /// Its name; `exit_group` for a thread that ended.
    pub syscall: &'static str,
    /// The descriptor that it was on, in the waker's process.
    pub fd: Option<u32>,
    /// Address of the futex in the waker's process, as hexadecimal text.
    pub futex_address: Option<String>,
    /// What the descriptor stood for, in words.
    pub file: Option<String>,
}

/// Waits of one thread that are alike in everything but their time.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct WaitEntry {
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub tgid: Tgid,
    /// Its name at the time.
    pub comm: String,
    /// The cgroup that the thread was in last, if that is known: one of the report's.
    pub cgroup: Option<CgroupId>,
    /// What its container is called, if it lives in one.
    pub container: Option<String>,
    /// What they were on.
    pub cause: Cause,
    /// The function of `label`.
    pub seen_in: Option<String>,
    /// The frame that they are best known by.
    pub label: Option<Label>,
    /// The very thing that they were on.
    pub waited_on: Option<WaitedOnEntry>,
    /// The syscall that they were in.
    pub syscall: Option<&'static str>,
    /// The timeout, if all of them had the same.
    pub timeout_ns: Option<Nanos>,
    /// Letter of the state.
    pub state: char,
    /// How many.
    pub count: u64,
    /// How many of them were retries: a thread that was woken found nothing, and went on waiting.
    pub retries: u64,
    /// How long they were blocked, added up.
    pub blocked_ns: Nanos,
    /// Of that, idle by design.
    pub idle_ns: Nanos,
    /// The longest of them.
    pub longest_ns: Nanos,
    /// How many smaller entries are summed up here; 0 for an entry that is one of its own.
    pub summed_up: u64,
    /// In which ranges the thread was that its program marked, the outermost first: `Training:forward`.
    /// Absent if in none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub markers: Vec<Arc<str>>,
    /// The program's own label by which these waits are told apart, by its name; missing without it,
    /// and unless `--by label:NAME` is given.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Where they waited.
    pub stack: Frames,
    /// Who ended them; none if nobody was seen to.
    pub waker: Option<WakerEntry>,
    /// What the waker was doing; none for an interrupt, or if nobody was seen.
    pub waker_call: Option<WakerCallEntry>,
    /// What `blocked_ns` was spent on; adds up to it.
    pub blame: Vec<BlameEntry>,
}

/// A thread that was waited for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct HopEntry {
    /// Which.
    #[serde(flatten)]
    pub thread: ThreadName,
    /// The frame that `stack` is best known by.
    pub label: Option<Label>,
    /// In which ranges it was that its program marked, the outermost first: when it ended the wait, or during
    /// what the chain goes on with. Absent if in none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub markers: Vec<Arc<str>>,
    /// Its stack when it ended the wait of the one before.
    pub stack: Frames,
}

/// A share of some waits' time.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct BlameEntry {
    /// What it is on.
    pub kind: BlameEntryKind,
    /// Why it can't be attributed.
    pub reason: Option<Reason>,
    /// The thread that is blamed.
    pub tid: Option<Tid>,
    /// Its process.
    pub tgid: Option<Tgid>,
    /// Its name at the time.
    pub comm: Option<String>,
    /// What its container is called, if it lives in one.
    pub container: Option<String>,
    /// Hops from the wait.
    pub depth: u16,
    /// How much.
    pub ns: Nanos,
    /// Whether it is idle time by design.
    pub idle: bool,
    /// With `cpu_queue`: who ran there meanwhile, if that is known.
    pub holder: Option<ThreadName>,
    /// With `work`: the frame that `stack` is best known by.
    pub label: Option<Label>,
    /// The last thread's stack: while it worked, else when it ended the wait before it.
    pub stack: Frames,
    /// The threads from the wait on, `depth` of them.
    pub chain: Vec<Arc<HopEntry>>,
}

impl BlameEntry {
    /// Returns the class by which the blame is coloured.
    #[must_use]
    pub fn class(&self) -> BlameClass {
        if self.idle { BlameClass::Idle } else { BlameClass::from_kind(self.kind, self.reason) }
    }
}
