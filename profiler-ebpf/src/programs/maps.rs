//! Every map, with its size and why.

use core::ptr;

use aya_ebpf::{
    bindings::BPF_F_NO_PREALLOC,
    btf_maps::{Array, ArrayOfMaps, HashMap, LruHashMap, PerCpuArray, RingBuf},
    macros::btf_map,
};
use profiler_ebpf::{
    code_epoch::COUNTED,
    loss::LossCounters,
    python::{Chain, Thread},
    record::{StackRecord, WaitRecord},
    stack_counts::StackCounters,
    syscalls::TABLE_LEN,
    user_stack::Place,
};

use super::{
    budget::WalkingTime,
    context::InterruptContext,
    python::FrameWords,
    slot::Slot,
    user_stacks::Wanted,
    witnesses::{Learning, Top},
};

/// A map that the kernel keeps inside each task: found in 9 ns, freed with the task, needs no size.
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

// SAFETY: it is never read as memory; the kernel replaces it by a map.
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

/// What is known of each thread.
#[btf_map]
pub static THREADS: TaskStorage<Slot> = TaskStorage::new();

/// How many threads have a slot.
#[btf_map]
pub static THREAD_COUNT: Array<u64, 1> = Array::new();

/// Stands in where task storage can't be had, by tid. Small: the kernel fails there only under
/// memory pressure or in a nested update.
#[btf_map]
pub static STAND_IN: HashMap<u32, Slot, 4096> = HashMap::new();

/// An empty slot to copy from: a slot is too big for the stack of a program.
#[btf_map]
pub static EMPTY_SLOT: Array<Slot, 1> = Array::new();

/// The rings, one a CPU; the loader sets how many and how big.
#[btf_map]
pub static RINGS: ArrayOfMaps<RingBuf<(), 4096>, 1> = ArrayOfMaps::new();

/// The stacks that user space has: id → a second hash of the same frames. Forgetting one costs no
/// more than sending it again. 65,536 is ten times what a busy machine has of distinct stacks.
#[btf_map]
pub static SENT_STACKS: LruHashMap<u64, u64, 65536> = LruHashMap::new();

/// Where a stack is put together. One a program kind: of those that share an index none can run on
/// top of another on one CPU.
#[btf_map]
pub static STACK_SCRATCH: PerCpuArray<StackRecord, 4> = PerCpuArray::new();

/// The top of the stack that is looked at, by [`LookedAt`](super::witnesses::LookedAt).
#[btf_map]
pub static TOPS: PerCpuArray<Top, 3> = PerCpuArray::new();

/// What is found out of it, by the same index.
#[btf_map]
pub static LEARNING: PerCpuArray<Learning, 3> = PerCpuArray::new();

/// Where user stacks are sent that are to be unwound; the loader sets its size.
#[btf_map]
pub static COPIES: RingBuf<(), 4096> = RingBuf::new();

/// Copies that each CPU has made, by [`Scratch`](super::stack::Scratch).
#[btf_map]
pub static COPY_COUNTS: PerCpuArray<[u64; 4], 1> = PerCpuArray::new();

/// What is copied next, by [`Scratch`](super::stack::Scratch).
#[btf_map]
pub static WANTED: PerCpuArray<Wanted, 3> = PerCpuArray::new();

/// The places that user space knows. It alone writes; what it takes out stays readable for whoever
/// reads it just now, as nothing is preallocated.
#[btf_map]
pub static PLACES: HashMap<u64, Place, 65536, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// The threads that run Python, by tid, and where they keep their frames. User space alone writes.
#[btf_map]
pub static PYTHON_THREADS: HashMap<u32, Thread, 16384, { BPF_F_NO_PREALLOC as usize }> =
    HashMap::new();

/// The Python frames that were walked last, by [`Scratch`](super::stack::Scratch).
#[btf_map]
pub static PYTHON_CHAINS: PerCpuArray<Chain, 3> = PerCpuArray::new();

/// What is read of one of them, likewise.
#[btf_map]
pub static PYTHON_FRAME: PerCpuArray<FrameWords, 3> = PerCpuArray::new();

/// The epochs of processes' code, by [`profiler_ebpf::code_epoch::of`]. 512 KiB.
#[btf_map]
pub static CODE_EPOCHS: Array<u64, COUNTED> = Array::new();

/// How stacks were come by.
#[btf_map]
pub static STACK_COUNTS: PerCpuArray<StackCounters, 1> = PerCpuArray::new();

/// What each CPU may still spend on walking stacks.
#[btf_map]
pub static WALKING_TIME: PerCpuArray<WalkingTime, 1> = PerCpuArray::new();

/// Where the survey copies a wait to, as its slot may change while it is read.
#[btf_map]
pub static WAIT_SCRATCH: PerCpuArray<WaitRecord, 1> = PerCpuArray::new();

/// How often the sampling clock struck on each CPU, whoever was there.
#[btf_map]
pub static STRIKES: PerCpuArray<u64, 1> = PerCpuArray::new();

/// What was lost.
#[btf_map]
pub static LOSSES: PerCpuArray<LossCounters, 1> = PerCpuArray::new();

/// Which interrupt each CPU is in.
#[btf_map]
pub static CONTEXT: PerCpuArray<InterruptContext, 1> = PerCpuArray::new();

/// The target: tgids or tids. Children of a target process are put in here as they are forked, and
/// whoever ends is taken out.
#[btf_map]
pub static TARGETS: HashMap<u32, u32, 16384> = HashMap::new();

/// The target, if it is cgroups that come and go: their ids. User space alone writes. A container that
/// is followed has a new one each time that it starts.
#[btf_map]
pub static TARGET_CGROUPS: HashMap<u64, u32, 1024> = HashMap::new();

/// What to know of each syscall ([`profiler_ebpf::syscalls`]).
#[btf_map]
pub static SYSCALLS: Array<u32, { TABLE_LEN as usize }> = Array::new();

/// Which survey is under way: one of [`profiler_ebpf::record::survey`].
#[btf_map]
pub static SURVEY: Array<u32, 1> = Array::new();
