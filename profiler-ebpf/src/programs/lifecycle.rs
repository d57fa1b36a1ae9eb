//! Threads come, change and go.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_kernel_str;
use profiler_ebpf::{
    loss::Loss,
    record::{COMM_LEN, ThreadRecord, kind, phase, sighting},
};

use super::{
    code_epoch::end_epoch,
    ring::{header, now, send},
    slot, target,
    task::Task,
};

/// `parent` made `child`, which has not run yet.
#[inline(always)]
pub fn forked(parent: Task, child: Task) {
    target::inherit(parent, child);
    if target::is_profiler(child) {
        return;
    }
    if let Some(slot) = slot::find_or_make(child) {
        slot::introduce(slot, child, sighting::FORK, phase::UNKNOWN);
    }
}

/// A process became another program; its name is the new one already.
#[inline(always)]
pub fn execed(task: Task) {
    if target::is_profiler(task) {
        return;
    }
    end_epoch(task.tgid());
    if let Some(slot) = slot::find_or_make(task) {
        slot::introduce(slot, task, sighting::EXEC, phase::ON_CPU);
    }
}

/// A thread is about to end; it may still wait for a while on its way out.
#[inline(always)]
pub fn exiting(task: Task) {
    target::leave(task);
    if target::is_profiler(task) {
        return;
    }
    if let Some(slot) = slot::find(task) {
        slot::introduce_once(slot, task, phase::UNKNOWN);
    }
}

/// A thread gets a new name; the task still has the old one.
#[inline(always)]
pub fn renamed(task: Task, comm: *const c_void) {
    if target::is_profiler(task) {
        return;
    }
    let Some(slot) = slot::find(task) else { return };
    let len = size_of::<ThreadRecord>();
    let mut record = ThreadRecord {
        header: header(kind::THREAD, len),
        tid: task.tid(),
        tgid: task.tgid(),
        parent_tgid: task.parent_tgid(),
        thread_flags: slot.thread_flags,
        sighting: sighting::RENAME,
        phase: phase::UNKNOWN,
        seq: slot.seq,
        reserved: 0,
        ns: now(),
        start_ns: task.start_time(),
        cgroup: task.cgroup(),
        comm: [0; COMM_LEN],
    };
    // SAFETY: the helper writes `COMM_LEN` bytes at most.
    unsafe {
        bpf_probe_read_kernel_str(record.comm.as_mut_ptr().cast(), COMM_LEN as u32, comm);
    }
    let sent = send((&raw const record).cast(), len, Loss::RingFullThread);
    slot.identity_sent = u32::from(sent.is_ok());
}
