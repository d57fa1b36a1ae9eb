//! Every map, with its size and the reason for it.

use core::ptr;

use aya_ebpf::{
    bindings::BPF_F_NO_PREALLOC,
    btf_maps::{Array, ArrayOfMaps, HashMap, LruHashMap, PerCpuArray, RingBuf},
    macros::btf_map,
};
use profiler_ebpf::{
    code_epoch::COUNTERS,
    detail::Detail,
    disk_use::{DirtySlot, DiskUse, MAX_USERS},
    loss::LossCounters,
    marker::{MAX_PROBES, MarkerProbe},
    own_processes::{ROWS, Row},
    python::{PythonFrames, PythonProcess, PythonThreadState},
    record::{StackRecord, SummedRecord, WaitRecord},
    run_costs::RunCosts,
    stack_counts::StackCounters,
    syscalls::TABLE_LEN,
    tags::{TagSetRecord, TagSource},
    user_stack::CallSite,
};

use super::{
    budget::StackBudget,
    file_lock::ContendedLock,
    frame_slots::{SlotSearch, StackTop},
    interrupt_context::InterruptContext,
    labels::LabelScratch,
    python::FrameWords,
    rate::RecordRates,
    task_local::TaskLocal,
    throttle::QueueThrottles,
    user_stack_copy::CopyRequest,
};

/// A map that the kernel keeps inside each task: a look-up takes 9 ns, the entry is freed with the
/// task, and the map needs no size.
///
/// aya-ebpf 0.2 has no wrapper for it (aya-rs/aya#203), and the loader wants the fields flat.
#[repr(C)]
pub struct TaskStorage<T: 'static> {
    r#type: *const [i32; 29],
    key: *const i32,
    value: *const T,
    max_entries: *const [i32; 0],
    map_flags: *const [i32; 1],
}

// SAFETY: a value of this type is never read as memory; the kernel puts a map in its place.
unsafe impl<T> Sync for TaskStorage<T> {}

impl<T> TaskStorage<T> {
    const fn new() -> Self {
        Self {
            r#type: ptr::null(),
            key: ptr::null(),
            value: ptr::null(),
            max_entries: ptr::null(),
            map_flags: ptr::null(),
        }
    }
}

/// What is kept for each thread.
#[btf_map]
pub static THREADS: TaskStorage<TaskLocal> = TaskStorage::new();

/// How many threads are tracked.
#[btf_map]
pub static THREAD_COUNT: Array<u64, 1> = Array::new();

/// Stands in where task storage can't be allocated, by tid. It is small: the kernel fails to
/// allocate only under memory pressure or in a nested update.
#[btf_map]
pub static STAND_IN: HashMap<u32, TaskLocal, 4096> = HashMap::new();

/// An empty value to insert into [`STAND_IN`]: a [`TaskLocal`] is too big for the stack of a
/// program.
#[btf_map]
pub static EMPTY_TASK_LOCAL: Array<TaskLocal, 1> = Array::new();

/// The rings, one for each CPU; the loader sets how many and how big.
#[btf_map]
pub static RINGS: ArrayOfMaps<RingBuf<(), 4096>, 1> = ArrayOfMaps::new();

/// The profiler's own processes but the first.
#[btf_map]
pub static OWN_PROCESSES: Array<Row, ROWS> = Array::new();

/// The stacks that user space has: id → a second hash of the same frames. A stack that is evicted
/// is sent again. 65,536 is ten times as many distinct stacks as a busy machine has.
#[btf_map]
pub static SENT_STACKS: LruHashMap<u64, u64, 65536> = LruHashMap::new();

/// Where the record of a stack is put together, by [`Scratch`](super::stack::Scratch): of the
/// programs that share an index, none can run on top of another on one CPU.
#[btf_map]
pub static STACK_SCRATCH: PerCpuArray<StackRecord, 4> = PerCpuArray::new();

/// The tops of stacks that were read last, by [`TopIndex`](super::frame_slots::TopIndex).
#[btf_map]
pub static STACK_TOPS: PerCpuArray<StackTop, 3> = PerCpuArray::new();

/// The searches for frame slots in those tops, by the same index.
#[btf_map]
pub static SLOT_SEARCHES: PerCpuArray<SlotSearch, 3> = PerCpuArray::new();

/// The ring of the copies of user stacks, which user space unwinds; the loader sets its size.
#[btf_map]
pub static STACK_COPIES: RingBuf<(), 4096> = RingBuf::new();

/// How many copies each CPU has made, by [`Scratch`](super::stack::Scratch).
#[btf_map]
pub static COPY_COUNTS: PerCpuArray<[u64; 4], 1> = PerCpuArray::new();

/// The copy that is to be made next, by [`Scratch`](super::stack::Scratch).
#[btf_map]
pub static COPY_REQUESTS: PerCpuArray<CopyRequest, 3> = PerCpuArray::new();

/// The call sites whose stacks user space has cached, by key. Only user space writes; an entry that
/// it removes stays readable for a program that is reading it, as nothing is preallocated.
#[btf_map]
pub static CALL_SITES: HashMap<u64, CallSite, 65536, { BPF_F_NO_PREALLOC as usize }> =
    HashMap::new();

/// The threads that run Python, by tid, and where they keep their frames. Only user space writes.
#[btf_map]
pub static PYTHON_THREADS: HashMap<u32, PythonThreadState, 16384, { BPF_F_NO_PREALLOC as usize }> =
    HashMap::new();

/// The processes that run Python, by tgid, for those of their threads that are not among
/// [`PYTHON_THREADS`] yet. Only user space writes.
#[btf_map]
pub static PYTHON_PROCESSES: HashMap<u32, PythonProcess, 4096, { BPF_F_NO_PREALLOC as usize }> =
    HashMap::new();

/// The Python frames that were walked last, by [`Scratch`](super::stack::Scratch).
#[btf_map]
pub static PYTHON_FRAMES: PerCpuArray<PythonFrames, 3> = PerCpuArray::new();

/// What was read of the last one of those frames, by the same index.
#[btf_map]
pub static PYTHON_FRAME_WORDS: PerCpuArray<FrameWords, 3> = PerCpuArray::new();

/// How many epochs of a process's code have ended, by [`profiler_ebpf::code_epoch::counter_index`].
/// 512 KiB.
#[btf_map]
pub static CODE_EPOCHS: Array<u64, COUNTERS> = Array::new();

/// How often user space has removed stacks from its cache, or found that one was another: register
/// caches know nothing from before. Only user space writes.
#[btf_map]
pub static CACHE_GENERATION: Array<u64, 1> = Array::new();

/// Counts how stacks were obtained.
#[btf_map]
pub static STACK_COUNTS: PerCpuArray<StackCounters, 1> = PerCpuArray::new();

/// What each CPU may still spend on walking and copying stacks.
#[btf_map]
pub static STACK_BUDGETS: PerCpuArray<StackBudget, 1> = PerCpuArray::new();

/// Where the survey copies an open wait to, which may change while it is sent.
#[btf_map]
pub static WAIT_SCRATCH: PerCpuArray<WaitRecord, 1> = PerCpuArray::new();

/// Where the survey copies short waits to that were summed up.
#[btf_map]
pub static SUM_SCRATCH: PerCpuArray<SummedRecord, 1> = PerCpuArray::new();

/// How often the sampling clock has ticked on each CPU, whichever thread was there.
#[btf_map]
pub static CLOCK_TICKS: PerCpuArray<u64, 1> = PerCpuArray::new();

/// By how much the records' clock is ahead of that of each CPU's run queue; 0 if that is not known.
#[btf_map]
pub static CLOCK_OFFSETS: PerCpuArray<u64, 1> = PerCpuArray::new();

/// Counts what was lost.
#[btf_map]
pub static LOSSES: PerCpuArray<LossCounters, 1> = PerCpuArray::new();

/// How much detail is recorded. Only user space writes.
#[btf_map]
pub static DETAIL: Array<Detail, 1> = Array::new();

/// What the programs cost on each CPU.
#[btf_map]
pub static RUN_COSTS: PerCpuArray<RunCosts, 1> = PerCpuArray::new();

/// In which interrupt each CPU is.
#[btf_map]
pub static INTERRUPT_CONTEXTS: PerCpuArray<InterruptContext, 1> = PerCpuArray::new();

/// The target: tgids or tids, by how they came here ([`profiler_ebpf::config::target_origin`]). A
/// child of a target process is inserted as it is forked, and a process or thread is removed as it
/// ends.
#[btf_map]
pub static TARGETS: HashMap<u32, u32, 16384> = HashMap::new();

/// The target, if it is cgroups that come and go: their ids. Only user space writes. A container
/// that is followed has a new cgroup each time that it starts.
#[btf_map]
pub static TARGET_CGROUPS: HashMap<u64, u32, 1024> = HashMap::new();

/// What the arguments of each syscall refer to ([`profiler_ebpf::syscalls`]).
#[btf_map]
pub static SYSCALLS: Array<u32, { TABLE_LEN as usize }> = Array::new();

/// The survey that is under way: one of [`profiler_ebpf::record::survey`].
#[btf_map]
pub static SURVEY: Array<u32, 1> = Array::new();

/// When the CPU quota of each queue (`cfs_rq`, by address) was used up, and when there was more.
/// Only queues with a quota, or below one, come here; of one that is evicted nothing is claimed.
#[btf_map]
pub static QUEUE_THROTTLES: LruHashMap<u64, QueueThrottles, 4096> = LruHashMap::new();

/// What each process has read from each block device and written to it, by
/// [`profiler_ebpf::disk_use::key`]. Who has used its device last is kept. 0.4 MB.
#[btf_map]
pub static DISK_USES: LruHashMap<u64, DiskUse, MAX_USERS> = LruHashMap::new();

/// What each CPU has to add to [`DISK_USES`] yet.
#[btf_map]
pub static DIRTY_SLOTS: PerCpuArray<DirtySlot, 1> = PerCpuArray::new();

/// How many entries [`DISK_USES`] was given: more than it has, if some were evicted.
#[btf_map]
pub static DISK_USERS_MET: Array<u64, 1> = Array::new();

/// When any queue was last unthrottled: what is older than a thread's time in its queue need not be
/// looked up.
#[btf_map]
pub static LAST_UNTHROTTLE: Array<u64, 1> = Array::new();

/// How many records each CPU has made in this second, of the kinds that programs can make as many of as they
/// like.
#[btf_map]
pub static RECORD_RATES: PerCpuArray<RecordRates, 1> = PerCpuArray::new();

/// The locks on files that somebody was refused last, by the address of the file's inode. Of one that is
/// evicted, nobody sees who has it next.
#[btf_map]
pub static CONTENDED_FILE_LOCKS: LruHashMap<u64, ContendedLock, 1024> = LruHashMap::new();

/// The texts of the markers that functions and probes are. Only user space writes, before they are
/// attached; the loader makes it as large as is needed.
#[btf_map]
pub static MARKER_PROBES: Array<MarkerProbe, { MAX_PROBES as usize }> = Array::new();

/// Where the threads of each process have their tags. User space writes, and an exec removes its
/// process's.
#[btf_map]
pub static TAG_SOURCES: HashMap<u32, TagSource, 4096, { BPF_F_NO_PREALLOC as usize }> =
    HashMap::new();

/// How often user space has changed [`TAG_SOURCES`]: 0 while no process has tags.
#[btf_map]
pub static TAG_EPOCH: Array<u64, 1> = Array::new();

/// The sets of tags that user space has. One that is evicted is sent again.
#[btf_map]
pub static SENT_TAGS: LruHashMap<u64, u32, 16384> = LruHashMap::new();

/// The tags that were read last, by [`Scratch`](super::stack::Scratch).
#[btf_map]
pub static TAG_SCRATCH: PerCpuArray<TagSetRecord, 2> = PerCpuArray::new();

/// Where the labels are that are being read, likewise.
#[btf_map]
pub static LABEL_SCRATCH: PerCpuArray<LabelScratch, 2> = PerCpuArray::new();
