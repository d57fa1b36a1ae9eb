//! What the kernel half keeps for each thread, in the thread's own task-local storage.

use core::ptr;

use aya_ebpf::helpers::generated::bpf_task_storage_get;
use profiler_ebpf::{
    config,
    loss::{Loss, RingLoss},
    record::{SummedRecord, ThreadRecord, WaitRecord, kind, phase, thread_event, thread_flags},
};

use super::{
    atomic,
    config::{CONFIG, frozen},
    kernel_stack_cache::KernelStackCache,
    maps::{EMPTY_TASK_LOCAL, STAND_IN, THREAD_COUNT, THREADS},
    ring::{count_loss, header, now, send},
    tags::ThreadTags,
    target,
    task::Task,
    task_address::TaskAddress,
    throttle::OpenThrottle,
};

const BPF_LOCAL_STORAGE_GET_F_CREATE: u64 = 1;
const BPF_NOEXIST: u64 = 1;

/// One thread.
#[repr(C)]
pub struct TaskLocal {
    /// The wait that the thread is in, filled in as it happens; it is sent as it stands.
    pub record: WaitRecord,
    /// One of [`profiler_ebpf::record::phase`].
    pub phase: u32,
    /// How many waits and preemptions the thread has had, lost ones included.
    pub seq: u32,
    /// [`thread_flags`] without `COMPAT`.
    pub thread_flags: u32,
    /// 0 until [`initialise`] has been called.
    pub is_initialised: u32,
    /// 0 while user space does not know the thread, or knows it as it was before.
    pub is_identity_sent: u32,
    /// The thread that the CPU went to when this one left it.
    pub next_tid: u32,
    /// How many waits and preemptions are in `sum`; 0 if it is not open.
    pub summed: u32,
    /// Not 0 if it has not been read what the thread waits for.
    pub is_late: u32,
    /// The short waits that have not been sent.
    pub sum: SummedRecord,
    /// Since when a CPU quota has kept the thread from running; of the time off the CPU whose flags
    /// have `THROTTLED` alone.
    pub throttle: OpenThrottle,
    /// Memory of [`TaskAddress::from_task`].
    pub task_address: u64,
    /// The kernel stacks that the thread has had.
    pub stack_cache: KernelStackCache,
    /// What the thread says that it is doing.
    pub tags: ThreadTags,
}

/// What to do where a thread has no task-local storage.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfAbsent {
    /// Return none.
    ReturnNone,
    /// Create it, all zeroes.
    Create,
}

/// What is in a thread's own storage.
#[inline(always)]
fn find_in_storage(task: Task, if_absent: IfAbsent) -> Option<&'static mut TaskLocal> {
    if frozen(&CONFIG.stand_in_only) != 0 {
        return None;
    }
    let flags = if if_absent == IfAbsent::Create { BPF_LOCAL_STORAGE_GET_F_CREATE } else { 0 };
    // SAFETY: the map is of this value type; the task is one that the kernel vouches for.
    let local = unsafe {
        bpf_task_storage_get(
            ptr::from_ref(&THREADS).cast_mut().cast(),
            task.as_ptr().cast(),
            ptr::null_mut(),
            flags,
        )
    }
    .cast::<TaskLocal>();
    // SAFETY: a pointer that is not null is to a `TaskLocal`, and lives as long as the task does.
    (!local.is_null()).then(|| unsafe { &mut *local })
}

/// What stands in for a thread's storage where that could not be allocated.
#[inline(always)]
fn find_in_stand_in(task: Task) -> Option<&'static mut TaskLocal> {
    // SAFETY: a preallocated entry stays in place until it is removed at the thread's exit.
    STAND_IN.get_ptr_mut(task.tid()).map(|local| unsafe { &mut *local })
}

/// Finds what is kept for a thread, if anything is.
#[inline(always)]
pub fn find(task: Task) -> Option<&'static mut TaskLocal> {
    if let Some(local) = find_in_storage(task, IfAbsent::ReturnNone) {
        return Some(local);
    }
    find_in_stand_in(task)
}

/// Finds what is kept for a thread, and creates it if there is none and the limit of threads allows
/// another.
#[inline(always)]
pub fn find_or_create(task: Task) -> Option<&'static mut TaskLocal> {
    if let Some(local) = find(task) {
        return Some(local);
    }
    if !has_room_for(task) {
        count_loss(Loss::ThreadsFull);
        return None;
    }
    if let Some(local) = find_in_storage(task, IfAbsent::Create) {
        initialise(local, task);
        return Some(local);
    }
    if frozen(&CONFIG.stand_in_only) == 0 {
        count_loss(Loss::StorageFailed);
    }
    if find_in_stand_in(task).is_none()
        && STAND_IN.insert(task.tid(), EMPTY_TASK_LOCAL.get(0)?, BPF_NOEXIST).is_err()
    {
        count_loss(Loss::StandInFull);
    }
    let local = find_in_stand_in(task)?;
    initialise(local, task);
    Some(local)
}

/// Stops tracking a thread that has ended, and frees what stood in for its storage. The storage
/// itself is freed with the task.
#[inline(always)]
pub fn release(task: Task) {
    add_to_thread_count(-1);
    let _absent = STAND_IN.remove(task.tid());
}

/// Whether a thread that is not tracked may be.
#[inline(always)]
pub fn has_room_for(task: Task) -> bool {
    let count = THREAD_COUNT.get(0).copied().unwrap_or(0);
    count < u64::from(frozen(&CONFIG.max_threads))
        || (frozen(&CONFIG.target) != config::target::ALL && target::contains(task))
}

#[inline(always)]
fn add_to_thread_count(change: i64) {
    let Some(count) = THREAD_COUNT.get_ptr_mut(0) else { return };
    // SAFETY: the entry is aligned and lives as long as the map; all CPUs change it in this way.
    unsafe { atomic::add(count, change) };
}

/// Counts a thread that is new here, and sets its flags.
#[inline(always)]
fn initialise(local: &mut TaskLocal, task: Task) {
    if local.is_initialised != 0 {
        return;
    }
    local.is_initialised = 1;
    add_to_thread_count(1);
    if task.is_kernel_thread() {
        local.thread_flags |= thread_flags::KERNEL;
    }
    if target::contains(task) {
        local.thread_flags |= thread_flags::TARGET;
    }
}

/// Sends a thread's properties to user space, and remembers if that failed: then they are sent
/// before the thread's next record.
#[inline(always)]
pub fn send_thread_info(local: &mut TaskLocal, task: Task, event: u32, phase: u32) {
    let _found = TaskAddress::from_task(task, local);
    send_properties(local, event, phase);
}

/// Sends the properties of the thread whose address was found, and is verified once for each program.
#[unsafe(no_mangle)]
extern "C" fn send_properties(local: *mut TaskLocal, event: u32, phase: u32) -> u64 {
    // SAFETY: callers pass a thread's own; the verifier checks it.
    let Some(local) = (unsafe { local.as_mut() }) else { return 0 };
    let record = thread_record(local, TaskAddress::last_found(local), event, phase, local.seq);
    local.is_identity_sent = u32::from(send_record(&record).is_ok());
    0
}

/// Sends the properties of a thread that has executed another program.
#[inline(never)]
pub fn send_exec(local: &mut TaskLocal, task: Task, old_tid: u32) {
    let address = TaskAddress::from_task(task, local);
    let mut record = thread_record(local, address, thread_event::EXEC, phase::ON_CPU, local.seq);
    record.old_tid = old_tid;
    local.is_identity_sent = u32::from(send_record(&record).is_ok());
}

/// Sends a thread's properties, with `seq` for the number of its newest record.
#[inline(always)]
pub fn send_thread_record(
    local: &mut TaskLocal,
    task: Task,
    event: u32,
    phase: u32,
    seq: u32,
) -> Result<(), ()> {
    let address = TaskAddress::from_task(task, local);
    send_record(&thread_record(local, address, event, phase, seq))
}

/// The record of a thread's properties.
#[inline(always)]
pub fn thread_record(
    local: &TaskLocal,
    task: TaskAddress,
    event: u32,
    phase: u32,
    seq: u32,
) -> ThreadRecord {
    ThreadRecord {
        header: header(kind::THREAD, size_of::<ThreadRecord>()),
        tid: task.tid(),
        tgid: task.tgid(),
        parent_tgid: task.parent_tgid(),
        thread_flags: local.thread_flags,
        event,
        phase,
        seq,
        old_tid: 0,
        ns: now(),
        start_ns: task.start_time(),
        cgroup: task.cgroup(),
        comm: task.comm(),
    }
}

#[inline(always)]
fn send_record(record: &ThreadRecord) -> Result<(), ()> {
    send(ptr::from_ref(record).cast(), size_of::<ThreadRecord>(), RingLoss::THREAD)
}

/// Reports that a kind of a thread's stacks is not found in the cache any more, once for each kind.
#[inline(always)]
pub fn report_distrust(local: &mut TaskLocal, task: Task) {
    if local.stack_cache.take_unreported_distrust() {
        send_thread_info(local, task, thread_event::STACKS_DISTRUSTED, phase::UNKNOWN);
    }
}

/// Sends a thread's properties if user space does not know them.
#[inline(always)]
pub fn send_thread_info_once(local: &mut TaskLocal, task: Task, phase: u32) {
    if local.is_identity_sent == 0 {
        send_thread_info(local, task, thread_event::FIRST_RECORD, phase);
    }
}
