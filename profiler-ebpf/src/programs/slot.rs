//! What is kept of each thread between its switch-out and its switch-in.

use core::ptr;

use aya_ebpf::helpers::generated::bpf_task_storage_get;
use profiler_ebpf::{
    config,
    loss::Loss,
    record::{ThreadRecord, WaitRecord, kind, phase, sighting, thread_flags},
};

use super::{
    atomic,
    known_stacks::KnownStacks,
    maps::{EMPTY_SLOT, STAND_IN, THREAD_COUNT, THREADS},
    ring::{header, lost, now, send},
    settings::{CONFIG, frozen},
    target,
    task::Task,
};

const BPF_LOCAL_STORAGE_GET_F_CREATE: u64 = 1;
const BPF_NOEXIST: u64 = 1;

/// One thread.
#[repr(C)]
pub struct Slot {
    /// The wait that it is in, filled in as it happens; it is sent as it stands.
    pub record: WaitRecord,
    /// One of [`profiler_ebpf::record::phase`].
    pub phase: u32,
    /// Counts waits and preemptions, lost ones too.
    pub seq: u32,
    /// [`thread_flags`], `COMPAT` aside.
    pub thread_flags: u32,
    /// 0 until it was found out what kind of thread this is.
    pub known: u32,
    /// 0 while user space does not know who it is, or knows it as something else.
    pub identity_sent: u32,
    /// Who got the CPU when it was preempted.
    pub next_tid: u32,
    /// The stacks that it has had.
    pub known_stacks: KnownStacks,
}

/// How a slot is looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Absent {
    /// There is none then.
    Stays,
    /// It is made, all zeroes.
    IsMade,
}

/// The slot in a thread's own storage.
#[inline(always)]
fn in_storage(task: Task, absent: Absent) -> Option<&'static mut Slot> {
    if frozen(&CONFIG.stand_in_only) != 0 {
        return None;
    }
    let flags = if absent == Absent::IsMade { BPF_LOCAL_STORAGE_GET_F_CREATE } else { 0 };
    // SAFETY: the map is of this value type; the task is one that the kernel vouches for.
    let slot = unsafe {
        bpf_task_storage_get(
            ptr::from_ref(&THREADS).cast_mut().cast(),
            task.as_ptr().cast(),
            ptr::null_mut(),
            flags,
        )
    }
    .cast::<Slot>();
    // SAFETY: what is not null is a slot, and lives as long as the task does.
    (!slot.is_null()).then(|| unsafe { &mut *slot })
}

/// The slot that stands in for a thread's storage.
#[inline(always)]
fn in_stand_in(task: Task) -> Option<&'static mut Slot> {
    // SAFETY: a preallocated entry stays in place until it is removed at the thread's exit.
    STAND_IN.get_ptr_mut(task.tid()).map(|slot| unsafe { &mut *slot })
}

/// The slot of a thread, if it has one.
#[inline(always)]
pub fn find(task: Task) -> Option<&'static mut Slot> {
    if let Some(slot) = in_storage(task, Absent::Stays) {
        return Some(slot);
    }
    in_stand_in(task)
}

/// The slot of a thread; it is made if it has none, and if there is room.
#[inline(always)]
pub fn find_or_make(task: Task) -> Option<&'static mut Slot> {
    if let Some(slot) = find(task) {
        return Some(slot);
    }
    if !has_room_for(task) {
        lost(Loss::ThreadsFull);
        return None;
    }
    if let Some(slot) = in_storage(task, Absent::IsMade) {
        recognise(slot, task);
        return Some(slot);
    }
    if frozen(&CONFIG.stand_in_only) == 0 {
        lost(Loss::StorageFailed);
    }
    if in_stand_in(task).is_none()
        && STAND_IN.insert(task.tid(), EMPTY_SLOT.get(0)?, BPF_NOEXIST).is_err()
    {
        lost(Loss::StandInFull);
    }
    let slot = in_stand_in(task)?;
    recognise(slot, task);
    Some(slot)
}

/// Gives back what stood in for a thread's storage. The storage itself goes with the task.
#[inline(always)]
pub fn forget(task: Task) {
    count(-1);
    let _absent = STAND_IN.remove(task.tid());
}

/// Whether a thread that has no slot may be given one.
#[inline(always)]
pub fn has_room_for(task: Task) -> bool {
    let count = THREAD_COUNT.get(0).copied().unwrap_or(0);
    count < u64::from(frozen(&CONFIG.max_threads))
        || (frozen(&CONFIG.target) != config::target::ALL && target::holds(task))
}

#[inline(always)]
fn count(change: i64) {
    let Some(count) = THREAD_COUNT.get_ptr_mut(0) else { return };
    // SAFETY: the entry is aligned and lives as long as the map; all CPUs change it in this way.
    unsafe { atomic::add(count, change) };
}

#[inline(always)]
fn recognise(slot: &mut Slot, task: Task) {
    if slot.known != 0 {
        return;
    }
    slot.known = 1;
    count(1);
    if task.is_kernel_thread() {
        slot.thread_flags |= thread_flags::KERNEL;
    }
    if target::holds(task) {
        slot.thread_flags |= thread_flags::TARGET;
    }
}

/// Tells user space who a thread is. Its slot remembers if that failed, and it is tried again.
#[inline(never)]
pub fn introduce(slot: &mut Slot, task: Task, why: u32, phase: u32) {
    slot.identity_sent = u32::from(send_sighting(slot, task, why, phase, slot.seq).is_ok());
}

/// Says who a thread is, with `seq` for the number of its newest record.
#[inline(always)]
pub fn send_sighting(slot: &Slot, task: Task, why: u32, phase: u32, seq: u32) -> Result<(), ()> {
    let len = size_of::<ThreadRecord>();
    let record = ThreadRecord {
        header: header(kind::THREAD, len),
        tid: task.tid(),
        tgid: task.tgid(),
        parent_tgid: task.parent_tgid(),
        thread_flags: slot.thread_flags,
        sighting: why,
        phase,
        seq,
        reserved: 0,
        ns: now(),
        start_ns: task.start_time(),
        cgroup: task.cgroup(),
        comm: task.comm(),
    };
    send((&raw const record).cast(), len, Loss::RingFullThread)
}

/// Says of a thread that stacks of it were taken for others, if that is news.
#[inline(always)]
pub fn confess(slot: &mut Slot, task: Task) {
    if slot.known_stacks.take_news() {
        introduce(slot, task, sighting::MISTAKEN, phase::UNKNOWN);
    }
}

/// Tells user space who a thread is if it does not know.
#[inline(always)]
pub fn introduce_once(slot: &mut Slot, task: Task, phase: u32) {
    if slot.identity_sent == 0 {
        introduce(slot, task, sighting::SEEN, phase);
    }
}
