//! `offwake.report/2`: the report with each stack and each hop once.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use indexmap::{IndexMap, IndexSet};
use offwake_recording::units::{CgroupId, Nanos, Tgid, Tid};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    blame::{BlameEntryKind, Reason, cause::Cause},
    findings::Findings,
    frames::Frames,
    label::Label,
    report::{
        BlameEntry, CgroupEntry, ContainerEntry, FilterNote, HopEntry, LossNote, MarkersEntry,
        Meta, ProcessEntry, QuotaEntry, RecordingIntegrity, Report, ThreadEntry, ThreadName,
        WaitEntry, WakeEntry, WakerCallEntry, WakerEntry, WindowEntry,
    },
    waited_on_entry::WaitedOnEntry,
};

/// Name of the schema.
pub(super) const SCHEMA: &str = "offwake.report/2";

/// Everything that a run found out. All times are in nanoseconds.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Report")]
pub(super) struct CompactReport<'r> {
    /// `offwake.report/2`
    #[schemars(extend("const" = "offwake.report/2"))]
    schema: &'static str,
    /// What was recorded, and how.
    meta: &'r Meta,
    /// The time that it covers.
    window: &'r WindowEntry,
    /// What holds the target up: what every view begins with.
    #[serde(flatten)]
    findings: &'r Findings,
    /// What is missing.
    loss: &'r LossNote,
    /// Whether the recording itself was sound.
    recording: &'r RecordingIntegrity,
    /// What the filter and the limits of the file left out.
    filter: &'r FilterNote,
    /// The target's processes, by tgid.
    processes: &'r [ProcessEntry],
    /// Their cgroups, by id.
    cgroups: &'r [CgroupEntry],
    /// The containers of every thread that was seen, the target's or not, by id.
    containers: &'r [ContainerEntry],
    /// The CPU quotas that kept threads from running, the target's or not; that with the most time
    /// first.
    quotas: &'r [QuotaEntry],
    /// What the target's programs marked in their own code. Absent if nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    markers: Option<&'r MarkersEntry>,
    /// The target's threads, by tid, then by time of creation.
    threads: &'r [ThreadEntry],
    /// Who woke the target's threads; those that ended the longest waiting first.
    wakes: &'r [WakeEntry],
    /// What the target's threads waited for; the longest first.
    waits: Vec<CompactWait<'r>>,
    /// The hops of all chains: `hop_ids` are places in this list.
    hops: Vec<CompactHop<'r>>,
    /// All stacks, each root first: `stack_id` is a place in this list.
    stacks: Vec<Vec<&'r str>>,
}

/// Whether waits are not told apart by a label.
fn are_missing(labels: &&BTreeMap<String, String>) -> bool {
    labels.is_empty()
}

/// Waits of one thread that are alike in everything but their time.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "WaitEntry")]
struct CompactWait<'r> {
    /// The thread.
    tid: Tid,
    /// Its process.
    tgid: Tgid,
    /// Its name at the time.
    comm: &'r str,
    /// The cgroup that the thread was in last, if that is known: one of the report's.
    cgroup: Option<CgroupId>,
    /// What its container is called, if it lives in one.
    container: Option<&'r str>,
    /// What they were on.
    cause: Cause,
    /// The function of `label`.
    seen_in: Option<&'r str>,
    /// The frame that they are best known by.
    label: Option<&'r Label>,
    /// The very thing that they were on.
    waited_on: Option<&'r WaitedOnEntry>,
    /// The syscall that they were in.
    syscall: Option<&'static str>,
    /// The timeout, if all of them had the same.
    timeout_ns: Option<Nanos>,
    /// Letter of the state.
    state: char,
    /// How many.
    count: u64,
    /// How many of them were retries: a thread that was woken found nothing, and went on waiting.
    retries: u64,
    /// How long they were blocked, added up.
    blocked_ns: Nanos,
    /// Of that, idle by design.
    idle_ns: Nanos,
    /// The longest of them.
    longest_ns: Nanos,
    /// How many smaller entries are summed up here; 0 for an entry that is one of its own.
    summed_up: u64,
    /// In which ranges the thread was that its program marked, the outermost first: `Training:forward`.
    /// Absent if in none.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    markers: &'r [Arc<str>],
    /// The program's own label by which these waits are told apart, by its name; missing without it,
    /// and unless `--by label:NAME` is given.
    #[serde(skip_serializing_if = "are_missing")]
    labels: &'r BTreeMap<String, String>,
    /// Where they waited: a place in `stacks`.
    stack_id: usize,
    /// Who ended them; none if nobody was seen to.
    waker: Option<&'r WakerEntry>,
    /// What the waker was doing; none for an interrupt, or if nobody was seen.
    waker_call: Option<&'r WakerCallEntry>,
    /// What `blocked_ns` was spent on; adds up to it.
    blame: Vec<CompactBlame<'r>>,
}

/// A thread that was waited for.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "HopEntry")]
struct CompactHop<'r> {
    /// Which.
    #[serde(flatten)]
    thread: &'r ThreadName,
    /// The frame that its stack is best known by.
    label: Option<&'r Label>,
    /// In which ranges it was that its program marked, the outermost first: when it ended the wait, or during
    /// what the chain goes on with. Absent if in none.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    markers: &'r [Arc<str>],
    /// Its stack when it ended the wait of the one before: a place in `stacks`.
    stack_id: usize,
}

/// A share of some waits' time.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BlameEntry")]
struct CompactBlame<'r> {
    /// What it is on.
    kind: BlameEntryKind,
    /// Why it can't be attributed.
    reason: Option<Reason>,
    /// The thread that is blamed.
    tid: Option<Tid>,
    /// Its process.
    tgid: Option<Tgid>,
    /// Its name at the time.
    comm: Option<&'r str>,
    /// What its container is called, if it lives in one.
    container: Option<&'r str>,
    /// Hops from the wait.
    depth: u16,
    /// How much.
    ns: Nanos,
    /// Whether it is idle time by design.
    idle: bool,
    /// With `cpu_queue`: who ran there meanwhile, if that is known.
    holder: Option<&'r ThreadName>,
    /// With `work`: the frame that the stack is best known by.
    label: Option<&'r Label>,
    /// The last thread's stack: while it worked, else when it ended the wait before it. A place in
    /// `stacks`.
    stack_id: usize,
    /// The threads from the wait on, `depth` of them: places in `hops`.
    hop_ids: Vec<usize>,
}

impl<'r> CompactReport<'r> {
    /// Gives each stack and each hop an id, in the order in which the waits mention them.
    pub(super) fn new(report: &'r Report) -> Self {
        let mut tables = Tables::default();
        let waits = report.waits.iter().map(|wait| tables.wait(wait)).collect();
        let Tables { stacks, hops, .. } = tables;
        Self {
            schema: SCHEMA,
            meta: &report.meta,
            window: &report.window,
            findings: &report.findings,
            loss: &report.loss,
            recording: &report.recording,
            filter: &report.filter,
            processes: &report.processes,
            cgroups: &report.cgroups,
            containers: &report.containers,
            quotas: &report.quotas,
            markers: report.markers.as_ref(),
            threads: &report.threads,
            wakes: &report.wakes,
            waits,
            hops: hops.into_values().collect(),
            stacks: stacks.into_iter().collect(),
        }
    }
}

/// What tells hops apart: the thread, its stack by id, and the ranges that it was in.
type HopKey<'r> = (&'r ThreadName, usize, &'r [Arc<str>]);

/// What is stored once.
#[derive(Default)]
struct Tables<'r> {
    stacks: IndexSet<Vec<&'r str>>,
    hops: IndexMap<HopKey<'r>, CompactHop<'r>, foldhash::fast::RandomState>,
    /// The ids of the stacks and hops in memory that were met: most are met again and again, and need not
    /// be compared.
    known_stacks: HashMap<(usize, usize), usize, foldhash::fast::RandomState>,
    known_hops: HashMap<usize, usize, foldhash::fast::RandomState>,
}

impl<'r> Tables<'r> {
    fn stack(&mut self, frames: &'r Frames) -> usize {
        let names = frames.names();
        let place = (names.as_ptr().addr(), names.len());
        if let Some(&known) = self.known_stacks.get(&place) {
            return known;
        }
        let texts = names.iter().map(|name| &*name.text).collect();
        let (id, _) = self.stacks.insert_full(texts);
        self.known_stacks.insert(place, id);
        id
    }

    fn hop(&mut self, hop: &'r HopEntry) -> usize {
        let place = std::ptr::from_ref(hop).addr();
        if let Some(&known) = self.known_hops.get(&place) {
            return known;
        }
        let HopEntry { thread, label, markers, stack } = hop;
        let stack_id = self.stack(stack);
        let entry = self.hops.entry((thread, stack_id, markers));
        let id = entry.index();
        entry.or_insert(CompactHop { thread, label: label.as_ref(), markers, stack_id });
        self.known_hops.insert(place, id);
        id
    }

    fn wait(&mut self, wait: &'r WaitEntry) -> CompactWait<'r> {
        CompactWait {
            tid: wait.tid,
            tgid: wait.tgid,
            comm: &wait.comm,
            cgroup: wait.cgroup,
            container: wait.container.as_deref(),
            cause: wait.cause,
            seen_in: wait.seen_in.as_deref(),
            label: wait.label.as_ref(),
            waited_on: wait.waited_on.as_ref(),
            syscall: wait.syscall,
            timeout_ns: wait.timeout_ns,
            state: wait.state,
            count: wait.count,
            retries: wait.retries,
            blocked_ns: wait.blocked_ns,
            idle_ns: wait.idle_ns,
            longest_ns: wait.longest_ns,
            summed_up: wait.summed_up,
            markers: &wait.markers,
            labels: &wait.labels,
            stack_id: self.stack(&wait.stack),
            waker: wait.waker.as_ref(),
            waker_call: wait.waker_call.as_ref(),
            blame: wait.blame.iter().map(|part| self.blame(part)).collect(),
        }
    }

    fn blame(&mut self, part: &'r BlameEntry) -> CompactBlame<'r> {
        CompactBlame {
            kind: part.kind,
            reason: part.reason,
            tid: part.tid,
            tgid: part.tgid,
            comm: part.comm.as_deref(),
            container: part.container.as_deref(),
            depth: part.depth,
            ns: part.ns,
            idle: part.idle,
            holder: part.holder.as_ref(),
            label: part.label.as_ref(),
            stack_id: self.stack(&part.stack),
            hop_ids: part.chain.iter().map(|hop| self.hop(hop)).collect(),
        }
    }
}
