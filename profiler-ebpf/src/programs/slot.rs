//! What is kept of each thread between its switch-out and its switch-in.

use core::ptr;

use aya_ebpf::helpers::generated::bpf_task_storage_get;
use profiler_ebpf::{
    loss::Loss,
    record::{ThreadRecord, WaitRecord, kind, phase, sighting, thread_flags},
};

use super::{
    maps::{EMPTY_SLOT, STAND_IN, THREADS},
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
    /// One of [`phase`].
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
}

/// The slot of a thread, if it has one.
#[inline(always)]
pub fn find(task: Task) -> Option<&'static mut Slot> {
    // SAFETY: the map is of this value type; the task is one that the kernel vouches for. The
    // storage lives as long as the task does.
    if frozen(&CONFIG.stand_in_only) == 0 {
        let slot = unsafe {
            bpf_task_storage_get(
                ptr::from_ref(&THREADS).cast_mut().cast(),
                task.as_ptr().cast(),
                ptr::null_mut(),
                0,
            )
        }
        .cast::<Slot>();
        if !slot.is_null() {
            // SAFETY: not null, so it points to a slot.
            return Some(unsafe { &mut *slot });
        }
    }
    // SAFETY: a preallocated entry stays in place until it is removed at the thread's exit.
    STAND_IN.get_ptr_mut(task.tid()).map(|slot| unsafe { &mut *slot })
}

/// The slot of a thread; it is made if it has none.
#[inline(always)]
pub fn find_or_make(task: Task) -> Option<&'static mut Slot> {
    if frozen(&CONFIG.stand_in_only) == 0 {
        // SAFETY: as in `find`. A new slot is all zeroes.
        let slot = unsafe {
            bpf_task_storage_get(
                ptr::from_ref(&THREADS).cast_mut().cast(),
                task.as_ptr().cast(),
                ptr::null_mut(),
                BPF_LOCAL_STORAGE_GET_F_CREATE,
            )
        }
        .cast::<Slot>();
        if !slot.is_null() {
            // SAFETY: not null, so it points to a slot.
            let slot = unsafe { &mut *slot };
            recognise(slot, task);
            return Some(slot);
        }
        lost(Loss::StorageFailed);
    }
    let tid = task.tid();
    if STAND_IN.get_ptr_mut(tid).is_none() {
        let empty = EMPTY_SLOT.get(0)?;
        if STAND_IN.insert(tid, empty, BPF_NOEXIST).is_err() {
            lost(Loss::StandInFull);
        }
    }
    // SAFETY: as in `find`.
    let slot = unsafe { &mut *STAND_IN.get_ptr_mut(tid)? };
    recognise(slot, task);
    Some(slot)
}

/// Gives back what stood in for a thread's storage. The storage itself goes with the task.
#[inline(always)]
pub fn forget(task: Task) {
    let _absent = STAND_IN.remove(task.tid());
}

#[inline(always)]
fn recognise(slot: &mut Slot, task: Task) {
    if slot.known != 0 {
        return;
    }
    slot.known = 1;
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
    let len = size_of::<ThreadRecord>();
    let record = ThreadRecord {
        header: header(kind::THREAD, len),
        tid: task.tid(),
        tgid: task.tgid(),
        parent_tgid: task.parent_tgid(),
        thread_flags: slot.thread_flags,
        sighting: why,
        phase,
        seq: slot.seq,
        reserved: 0,
        ns: now(),
        start_ns: task.start_time(),
        cgroup: task.cgroup(),
        comm: task.comm(),
    };
    let sent = send((&raw const record).cast(), len, Loss::RingFullThread);
    slot.identity_sent = u32::from(sent.is_ok());
}

/// Tells user space who a thread is if it does not know.
#[inline(always)]
pub fn introduce_once(slot: &mut Slot, task: Task) {
    if slot.identity_sent == 0 {
        introduce(slot, task, sighting::SEEN, phase::UNKNOWN);
    }
}
