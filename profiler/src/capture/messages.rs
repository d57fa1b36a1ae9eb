//! What the threads of a run hand each other. Nothing here does anything: the threads import this
//! module, and it imports none of them.
//!
//! ```text
//!  main ── SnapshotRequest ──▶ drain ── Lookup ──▶ look-up ──┐ LookupResults, SurveyedSnapshot
//!   │                            └──── RecordBatch ──────────┴──▶ store ── SnapshotEnd ──▶ sink
//!   └── RecordingStart, RecordingEnd ─────────────────────────────▶
//! ```

use std::collections::HashMap;

use crate::{
    awaited_threads::OpenWaits,
    decode::NewStack,
    polled_files::{OpenPoll, PolledFile},
    processes::NewProcesses,
    symbols::NamingRequest,
};
use offwake_recording::{
    AwaitedChild, AwaitedFileLock, Begin, CgroupInfo, Clocks, ClosedBy, CpuQuota, DetailStretch,
    DiskUse, FileId, FileLockEvent, Filesystem, FrameId, Function, FuseServer, InterruptInfo,
    IoLimit, LockOwner, LossTotals, Marker, Meta, NewStacks, OpenFile, PipeHolder, Preemption,
    ProcessInfo, ProfilerCost, Sample, StackRef, StoppedThread, SummedWaits, TagChange, TagName,
    TagSet, ThreadEvent, ThreadExit, Throttle, Unanswered, Wait,
    loss::Diagnostics,
    units::{CgroupId, Nanos, StackId, Tgid, Tid, Timestamp},
};

/// Something that the look-up thread is asked for.
pub(super) enum Lookup {
    Process {
        tgid: Tgid,
    },
    Fork {
        parent: Tgid,
        child: Tgid,
        at: Timestamp,
    },
    Exec {
        tgid: Tgid,
        at: Timestamp,
    },
    Exit {
        tgid: Tgid,
        at: Timestamp,
    },
    Cgroup {
        id: CgroupId,
        tgid: Tgid,
    },
    Stack(NewStack),
    File {
        file: FileId,
        tgid: Tgid,
        descriptor: u32,
        /// How long a wait on the file took that has just ended; none if it was used for something else.
        waited: Option<Nanos>,
    },
    Interrupt {
        number: u16,
    },
    /// The window has opened: what is counted is counted from now on.
    WindowOpened,
    /// The window has just closed.
    WindowClosed,
    /// Processes used block devices, of which the names are wanted: as the window closes.
    DiskUses(Vec<DiskUse>),
    /// A thread was throttled by the quota of this cgroup.
    Quota {
        cgroup: CgroupId,
        tid: Tid,
    },
    /// Somebody may wait for a filesystem that a program serves.
    FuseServers,
    /// Threads poll files that are not known.
    PolledFiles(Vec<OpenPoll>),
    /// How everybody waited as the window closed: the stacks of those that the target waits for are to
    /// be read.
    OpenWaits(Box<OpenWaits>),
    /// Everything that was looked up before this goes into the snapshot.
    Snapshot(Box<SurveyedSnapshot>),
}

/// Something for the store.
pub(super) enum StoreMessage {
    /// The window has opened.
    Start(Box<RecordingStart>),
    /// What came out of the rings: it ends a slice.
    Records(Box<RecordBatch>),
    /// What was looked up: it goes with the next records.
    LookupResults(Box<LookupResults>),
    /// The sink is to write out what it retains.
    Snapshot(Box<SurveyedSnapshot>, FrameNames),
    /// Nothing more is stored, though somebody could still send it.
    End,
}

/// What was counted before the window opened, and is no part of the recording.
pub(super) struct RecordingStart {
    pub meta: Meta,
    pub losses: LossTotals,
    pub profiler_cost: ProfilerCost,
    pub own_cpu: Nanos,
}

/// What came out of the rings since the last batch.
#[derive(Debug, Default)]
pub(super) struct RecordBatch {
    /// Everything before this moment has come.
    pub until: Timestamp,
    /// What was lost since the programs were loaded.
    pub loss: LossTotals,
    /// What the kernel half did since it was loaded.
    pub profiler_cost: ProfilerCost,
    /// CPU time that this process has used.
    pub own_cpu: Nanos,
    pub waits: Vec<Wait>,
    pub preemptions: Vec<Preemption>,
    pub summed: Vec<SummedWaits>,
    pub throttles: Vec<Throttle>,
    pub samples: Vec<Sample>,
    pub thread_events: Vec<ThreadEvent>,
    pub exits: Vec<ThreadExit>,
    /// How much detail was recorded meanwhile.
    pub detail: Vec<DetailStretch>,
    pub markers: Vec<Marker>,
    pub file_lock_events: Vec<FileLockEvent>,
    pub tag_sets: Vec<TagSet>,
    pub tag_changes: Vec<TagChange>,
}

impl RecordBatch {
    /// How many records of all kinds there are.
    pub fn len(&self) -> u64 {
        let Self { waits, preemptions, summed, throttles, .. } = self;
        let Self { samples, thread_events, exits, markers, .. } = self;
        let off_cpu = waits.len() + preemptions.len() + summed.len() + throttles.len();
        let tags = self.tag_sets.len() + self.tag_changes.len();
        let of_programs = markers.len() + tags + self.file_lock_events.len();
        (off_cpu + samples.len() + thread_events.len() + exits.len() + of_programs) as u64
    }
}

/// What a closing survey found: how every thread stood at that moment.
#[derive(Clone, Debug, Default)]
pub struct OpenRecords {
    /// Waits that have not ended.
    pub waits: Vec<Wait>,
    /// Preemptions that have not ended.
    pub preemptions: Vec<Preemption>,
    /// Short waits that were summed up, and may go on.
    pub summed: Vec<SummedWaits>,
    /// One thread event of each thread.
    pub thread_events: Vec<ThreadEvent>,
    /// Locks on files that some of these waits are for.
    pub file_locks: Vec<AwaitedFileLock>,
    /// Who serves the FUSE filesystems that some of these waits may be for: the look-up thread adds it.
    pub fuse_servers: Vec<FuseServer>,
    /// Who has the locks in memory that some of these waits are for.
    pub lock_owners: Vec<LockOwner>,
    /// Who has the pipes open at which some of these waits are: of each pipe everybody, or nobody. The
    /// look-up thread adds them, which has the right to ask everybody.
    pub pipe_holders: Vec<PipeHolder>,
    /// What keeps threads stopped: tracers and frozen cgroups.
    pub stopped_threads: Vec<StoppedThread>,
    /// What processes read from block devices and wrote to them, in a window that is closed.
    pub disk_uses: Vec<DiskUse>,
    /// The I/O limits that processes were under, in a window that is closed.
    pub io_limits: Vec<IoLimit>,
    /// Children that somebody waits for by a descriptor.
    pub awaited_children: Vec<AwaitedChild>,
    /// The filesystems on block devices: the look-up thread adds them.
    pub filesystems: Vec<Filesystem>,
}

impl OpenRecords {
    /// Adds the stacks that were read last of all to the waits that have none.
    pub(super) fn add_sleepers(&mut self, sleepers: &[SleeperStack]) {
        let stacks: HashMap<Tid, StackId> =
            sleepers.iter().map(|sleeper| (sleeper.tid, sleeper.stack)).collect();
        for wait in &mut self.waits {
            let is_without = wait.begin == Begin::BeforeWindow
                && wait.wake.is_none()
                && wait.user_stack == StackRef::NotTaken;
            if let Some(&stack) = stacks.get(&wait.tid).filter(|_| is_without) {
                wait.user_stack = StackRef::Id(stack);
            }
        }
    }
}

/// What was looked up since the last time.
#[derive(Default)]
pub(super) struct LookupResults {
    pub stacks: NewStacks,
    pub processes: NewProcesses,
    pub files: Vec<(FileId, OpenFile)>,
    pub interrupts: Vec<InterruptInfo>,
    pub quotas: Vec<CpuQuota>,
    pub tag_names: Vec<TagName>,
    /// What could not be done so far, from the beginning on.
    pub diagnostics: Diagnostics,
    /// What did not answer so far.
    pub unanswered: Vec<Unanswered>,
}

impl LookupResults {
    /// About how many bytes they take that others decide about. Frames, their names and modules are
    /// bounded where they are looked up.
    pub fn memory(&self) -> usize {
        let NewProcesses { processes, cgroups } = &self.processes;
        let frames =
            self.stacks.stacks.iter().map(|(_, stack)| size_of_val(stack.frames.as_slice()));
        processes.iter().map(ProcessInfo::memory).sum::<usize>()
            + cgroups.iter().map(CgroupInfo::memory).sum::<usize>()
            + self.files.iter().map(|(_, file)| size_of::<FileId>() + file.memory()).sum::<usize>()
            + size_of_val(self.stacks.stacks.as_slice())
            + frames.sum::<usize>()
    }
}

/// The stack of a thread that has slept since before the window, and that somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SleeperStack {
    pub tid: Tid,
    pub stack: StackId,
}

/// What the look-up thread returns when it ends.
pub(super) struct LastLookupResults {
    pub results: LookupResults,
    pub names: Vec<(FrameId, Vec<Function>)>,
    pub fuse_servers: Vec<FuseServer>,
    pub pipe_holders: Vec<PipeHolder>,
    pub filesystems: Vec<Filesystem>,
    pub polled_files: Vec<PolledFile>,
    pub disk_uses: Vec<DiskUse>,
    pub io_limits: Vec<IoLimit>,
    pub sleepers: Vec<SleeperStack>,
}

/// What goes into a recording last.
pub(super) struct RecordingEnd {
    /// What came out of the rings since the last batch. None if the drain has died.
    pub records: Option<RecordBatch>,
    pub open: OpenRecords,
    /// What was looked up since the last time. None if the look-up thread has died.
    pub results: Option<LookupResults>,
    pub names: Vec<(FrameId, Vec<Function>)>,
    pub closed_at: Timestamp,
    pub own_cpu: Nanos,
    pub closed_by: ClosedBy,
}

/// How many waits a recording has, those included that were not written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitCounts {
    /// All waits.
    pub waits: u64,
    /// The waits of the target.
    pub target_waits: u64,
}

/// What is wanted of the records that a survey has sent.
#[derive(Debug)]
pub(super) enum SurveyRequest {
    /// A snapshot.
    Snapshot(SnapshotRequest),
    /// The waits that have not ended and are too long for a trigger already; the rest is dropped.
    LongOpenWaits,
}

/// A snapshot that is wanted, and whose survey is done.
#[derive(Debug)]
pub(super) struct SnapshotRequest {
    pub reason: SnapshotReason,
    /// When the survey began: where the snapshot's window ends.
    pub at: Timestamp,
    pub own_cpu: Nanos,
}

/// A snapshot's request with what its survey found.
#[derive(Debug)]
pub(super) struct SurveyedSnapshot {
    pub request: SnapshotRequest,
    /// The length of the window up to now.
    pub window: Nanos,
    pub open: OpenRecords,
}

/// Why a snapshot is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotReason {
    /// Somebody asked for it by this signal.
    Signal(&'static str),
    /// A wait was too long.
    Trigger(LongWait),
    /// A live view shows it.
    View,
    /// The run is over.
    End,
}

/// A wait that was longer than a trigger allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongWait {
    /// The thread.
    pub tid: Tid,
    /// The thread's process.
    pub tgid: Tgid,
    /// The thread's name, if it is known. Another program has set it: it may hold anything.
    pub comm: String,
    /// How long the thread was blocked.
    pub blocked: Nanos,
    /// When the thread was back on a CPU, or was last seen waiting.
    pub at: Timestamp,
    /// Whether the wait was over then.
    pub progress: WaitProgress,
    /// Whether its beginning is known.
    pub began: WaitBegin,
}

/// When a wait began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitBegin {
    /// While it was recorded.
    InWindow,
    /// Earlier: the wait is longer than anybody saw.
    BeforeWindow,
}

/// Whether a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitProgress {
    /// It has ended.
    Over,
    /// Nobody has ended it yet.
    Open,
}

/// What a sink that retains slices can't know of the snapshot that it writes: how things stood at
/// the end of it.
#[derive(Clone, Debug, Default)]
pub struct SnapshotEnd {
    /// What the recording is of; its window goes from the run's beginning to the snapshot's end.
    pub meta: Meta,
    /// How every thread stood then.
    pub open: OpenRecords,
    /// What was lost since the run's beginning.
    pub loss: LossTotals,
    /// What the kernel half did since it was loaded.
    pub profiler_cost: ProfilerCost,
    /// CPU time of the profiler's own threads since then.
    pub own_cpu: Nanos,
    /// The clocks.
    pub clocks: Clocks,
    /// The number of the next slice.
    pub next_number: u64,
}

/// Names of frames that a snapshot refers to and those before it did not.
pub enum FrameNames {
    /// Names that are still to be looked up.
    Pending(NamingRequest),
    /// Names that were looked up already.
    Resolved(Vec<(FrameId, Vec<Function>)>),
}
