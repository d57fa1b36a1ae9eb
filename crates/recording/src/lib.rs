#![doc = include_str!("../README.md")]

mod awaited_child;
mod clock;
mod container;
mod detail;
mod disk_use;
mod file;
mod file_lock;
mod filesystem;
mod function;
mod fuse_server;
mod interned;
mod interrupt;
mod io_limit;
mod lock_owner;
pub mod loss;
mod marker;
mod memory;
mod order;
mod pipe_holder;
mod process;
mod profiler_cost;
mod quota;
mod rebase;
mod same_stacks;
mod stack;
mod stop_origin;
pub mod stream;
mod summed;
mod tags;
mod thread;
mod unanswered;
pub mod units;
mod wait;
mod waits;

pub use awaited_child::AwaitedChild;
pub use clock::Clocks;
pub use container::{ContainerId, ContainerNames, PodName};
pub use detail::{DetailStep, DetailStretch};
pub use disk_use::DiskUse;
pub use file::{FileId, FileKind, FileTable, OpenFile, PeerProcess, SocketEnd, SocketRole};
pub use file_lock::{AwaitedFileLock, FileLockEvent, FileLockEventKind};
pub use filesystem::Filesystem;
pub use function::Function;
pub use fuse_server::FuseServer;
pub use interned::{Id, Interned};
pub use interrupt::{DeviceKind, InterruptInfo};
pub use io_limit::{DeviceRequests, IoAmounts, IoLimit, UsedUpTimes};
pub use lock_owner::{LockKind, LockOwner};
pub use loss::LossTotals;
pub use marker::{Marker, MarkerKind};
pub use pipe_holder::{PipeEnds, PipeHolder};
pub use process::{CgroupInfo, ProcessInfo};
pub use profiler_cost::{HalfCounts, ProfilerCost, ProgramTime, StackCounts};
pub use quota::{CpuQuota, QuotaCount, Throttle};
pub use stack::{
    AddressKind, AddressSpace, BuildId, Frame, FrameId, Module, ModuleId, NewStacks, Segment,
    Stack, StackEnd, StackRef, StackTable,
};
pub use stop_origin::{StopOrigin, StoppedThread};
pub use summed::SummedWaits;
pub use tags::{NotHexadecimal, SpanId, TagChange, TagName, TagSet, TagSetId, TraceId};
pub use thread::{Phase, ThreadEvent, ThreadEventReason, ThreadExit, ThreadKind};
pub use unanswered::{Unanswered, UnansweredKind};
pub use wait::{
    Begin, End, PollEvents, Preemption, ReadyFile, Sample, Syscall, SyscallTable, SystemVector,
    TaskState, ThreadRef, Wait, Wake, WakeContext,
};
pub use waits::{Call, Pattern, WaitRow, Waiter, Waits, Waker};

use std::collections::BTreeMap;

use strum::{IntoStaticStr, VariantArray};

use crate::units::{CgroupId, Nanos, Tgid, Timestamp};

/// The stretch of time that a recording covers. It opens after every program is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Its first moment.
    pub start: Timestamp,
    /// The first moment after it.
    pub end: Timestamp,
}

impl Window {
    /// How long it was.
    #[must_use]
    pub fn length(self) -> Nanos {
        self.end.since(self.start)
    }

    /// The part of `from..to` that lies inside, as a pair with `from <= to`.
    #[must_use]
    pub fn clip(self, from: Timestamp, to: Timestamp) -> (Timestamp, Timestamp) {
        let from = from.clamp(self.start, self.end);
        (from, to.clamp(from, self.end))
    }
}

/// What the recording is of, and under which settings it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The time that it covers.
    pub window: Window,
    /// The target in words: `pid 4242`, `cgroup /a/b`, `all threads`.
    pub target: String,
    /// Whether the waits of the whole machine were recorded, or the target's alone.
    pub scope: Scope,
    /// How stacks were taken.
    pub stacks: StackMode,
    /// On-CPU samples a second on each CPU; 0 if none were taken.
    pub sample_hz: u32,
    /// The options that say how it was recorded, as on a command line, defaults included.
    pub options: String,
    /// Release of the kernel (`uname -r`).
    pub kernel: String,
    /// Name of the host.
    pub host: String,
    /// The boot of that host (`/proc/sys/kernel/random/boot_id`).
    pub boot_id: String,
    /// CPU time that the profiler's own threads used inside the window.
    pub own_cpu: Nanos,
    /// Version of offwake that recorded.
    pub version: String,
    /// What closed the window.
    pub closed_by: ClosedBy,
    /// The profiler's own process, whose threads are left out.
    pub profiler: Option<Tgid>,
}

/// What closed the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ClosedBy {
    /// The time that was asked for was over.
    #[default]
    Duration,
    /// A signal: Ctrl-C, say.
    Signal,
    /// The command that was profiled had ended.
    Command,
    /// The memory for records was used up.
    Memory,
    /// Nothing did: the profiler itself was ended, or its file.
    CutOff,
    /// There was no room left on the disk.
    DiskFull,
    /// A flight recorder wrote out what it had.
    Snapshot,
    /// Something failed in the profiler itself.
    Failed,
}

impl ClosedBy {
    /// Its name in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The threads whose waits are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Scope {
    /// Every thread's: a chain can lead anywhere.
    #[default]
    Machine,
    /// The target's alone: cheaper, and one hop deep.
    Target,
}

impl Scope {
    /// Its name in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// How stacks are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum StackMode {
    /// Walked every time.
    #[default]
    Exact,
    /// Not at all.
    Off,
    /// Recognised where a thread has had them before, and walked otherwise.
    Cached,
}

impl StackMode {
    /// Its name in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Everything that one run recorded.
///
/// The lists of records are sorted by time (a wait's by its switch-out), then by thread.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// What was recorded, and under which settings.
    pub meta: Meta,
    /// Waits, the still open ones included.
    pub waits: Waits,
    /// Times off the CPU of threads that could have gone on.
    pub preemptions: Vec<Preemption>,
    /// Stretches of threads' lives of which only sums are known.
    pub summed: Vec<SummedWaits>,
    /// When CPU quotas kept threads from running. No part of a stretch is in two, but a snapshot may
    /// have said one before it was over.
    pub throttles: Vec<Throttle>,
    /// Who each thread was, and when that was seen.
    pub thread_events: Vec<ThreadEvent>,
    /// Threads that ended.
    pub exits: Vec<ThreadExit>,
    /// What was on the CPUs when the sampling clock struck.
    pub samples: Vec<Sample>,
    /// Every stack that the others refer to.
    pub stacks: StackTable,
    /// The sockets, pipes and files that were waited on.
    pub files: FileTable,
    /// What `/proc` said of processes, sorted by process, then by time.
    pub processes: Vec<ProcessInfo>,
    /// Cgroups by id.
    pub cgroups: BTreeMap<CgroupId, CgroupInfo>,
    /// CPU quotas, by cgroup in the hierarchy that has the cpu controller.
    pub quotas: BTreeMap<CgroupId, CpuQuota>,
    /// Devices' interrupts that ended waits, by number.
    pub interrupts: BTreeMap<u16, InterruptInfo>,
    /// Locks on files that somebody still waited for when the window closed.
    pub file_locks: Vec<AwaitedFileLock>,
    /// Who served FUSE filesystems when the window closed, if somebody may have waited for one.
    pub fuse_servers: Vec<FuseServer>,
    /// Who held the locks in memory that somebody still waited for then.
    pub lock_owners: Vec<LockOwner>,
    /// Who had pipes open at which somebody still waited then: of each pipe everybody, or nobody.
    pub pipe_holders: Vec<PipeHolder>,
    /// What kept threads stopped then: tracers and frozen cgroups.
    pub stopped_threads: Vec<StoppedThread>,
    /// Children that somebody waited for then by a descriptor.
    pub awaited_children: Vec<AwaitedChild>,
    /// The filesystems that were on block devices or file servers when the window closed, by device.
    pub filesystems: BTreeMap<u32, Filesystem>,
    /// What each process read from block devices and wrote to them. Empty in a snapshot.
    pub disk_uses: Vec<DiskUse>,
    /// The I/O limits that processes were under. Empty in a snapshot.
    pub io_limits: Vec<IoLimit>,
    /// What programs marked in their own code. Some come from just before the window: they say in which
    /// ranges threads were as it opened.
    pub markers: Vec<Marker>,
    /// What happened to locks on files that threads were refused, in order of time.
    pub file_lock_events: Vec<FileLockEvent>,
    /// What threads said that they were doing, by id.
    pub tag_sets: BTreeMap<TagSetId, TagSet>,
    /// When threads changed from one of these to another.
    pub tag_changes: Vec<TagChange>,
    /// What processes call their labels.
    pub tag_names: Vec<TagName>,
    /// How much detail was recorded, and what that cost, in order of time.
    pub detail: Vec<DetailStretch>,
    /// The clocks, read every second or so.
    pub clocks: Vec<Clocks>,
    /// What was lost.
    pub loss: LossTotals,
    /// What the kernel half did.
    pub profiler_cost: ProfilerCost,
    /// What is wrong with the file that it was read from.
    pub damage: stream::Damage,
}

impl Recording {
    /// Returns the filesystem that a file is on; none if that is not on a block device, or is not known.
    #[must_use]
    pub fn filesystem(&self, file: FileId) -> Option<&Filesystem> {
        let is_on_it = matches!(file.kind, FileKind::Regular | FileKind::Directory);
        self.filesystems.get(&file.device).filter(|_| is_on_it)
    }

    /// Puts the lists into the order that they are promised in.
    pub fn sort(&mut self) {
        self.waits.sort();
        let key = |preemption: &Preemption| (preemption.off, preemption.tid, preemption.seq);
        order::sort_nearly_sorted(&mut self.preemptions, |a, b| key(a).cmp(&key(b)));
        self.summed.sort_by_key(|summed| (summed.from, summed.tid, summed.seq));
        self.throttles.sort_by_key(|throttle| (throttle.from, throttle.tid, throttle.until));
        self.thread_events.sort_by_key(|thread_event| (thread_event.at, thread_event.tid));
        self.exits.sort_by_key(|exit| (exit.at, exit.tid));
        self.samples.sort_by_key(|sample| (sample.at, sample.tid));
        self.markers.sort_by_key(|marker| (marker.at, marker.tid));
        self.file_lock_events.sort_by_key(|event| (event.at, event.tid));
        self.tag_changes.sort_by_key(|change| (change.at, change.tid));
        self.detail.sort_by_key(|stretch| (stretch.from, stretch.until));
        self.processes.sort_by_key(|process| (process.tgid, process.at));
    }
}
