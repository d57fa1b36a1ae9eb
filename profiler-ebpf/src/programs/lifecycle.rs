//! Threads are created, change and end.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_kernel_str;
use profiler_ebpf::{
    loss::RingLoss,
    record::{COMM_LEN, ThreadRecord, phase, thread_event},
};

use super::{
    code_epoch::begin_next_epoch, own_processes, ring::send, sums, tags, target, task::Task,
    task_address::TaskAddress, task_local,
};

/// `sched_process_fork`: `parent` created `child`, which has not run yet.
#[inline(always)]
pub fn on_fork(parent: Task, child: Task) {
    own_processes::note_fork(parent, child);
    target::inherit(parent, child);
    if target::is_profiler(child) {
        return;
    }
    if let Some(local) = task_local::find_or_create(child) {
        task_local::send_thread_info(local, child, thread_event::FORK, phase::UNKNOWN);
    }
}

/// `sched_process_exec`: a process executed another program; the task has its new name already, and
/// the tid of its process. `old_tid` is the one that it had before
/// ([`exec_binprm`](https://github.com/torvalds/linux/blob/v6.12/fs/exec.c#L1774)).
#[inline(always)]
pub fn on_exec(task: Task, old_tid: u32) {
    if target::is_profiler(task) {
        return;
    }
    begin_next_epoch(task.tgid());
    if let Some(local) = task_local::find_or_create(task) {
        sums::flush(local);
        tags::forget(local, task.tgid());
        task_local::send_exec(local, task, old_tid);
    }
}

/// `sched_process_exit`: a thread is about to end; it may still wait for a while on its way out.
#[inline(always)]
pub fn on_exit(task: Task) {
    target::remove(task);
    if target::is_profiler(task) {
        return;
    }
    if let Some(local) = task_local::find(task) {
        task_local::send_thread_info_once(local, task, phase::UNKNOWN);
    }
}

/// `task_rename`: a thread gets a new name; the task still has the old one.
#[inline(always)]
pub fn on_rename(task: Task, comm: *const c_void) {
    if target::is_profiler(task) {
        return;
    }
    let Some(local) = task_local::find(task) else { return };
    let address = TaskAddress::from_task(task, local);
    let (event, seq) = (thread_event::RENAME, local.seq);
    let mut record = task_local::thread_record(local, address, event, phase::UNKNOWN, seq);
    record.comm = [0; COMM_LEN];
    // SAFETY: the helper writes `COMM_LEN` bytes at most.
    unsafe {
        bpf_probe_read_kernel_str(record.comm.as_mut_ptr().cast(), COMM_LEN as u32, comm);
    }
    let sent = send((&raw const record).cast(), size_of::<ThreadRecord>(), RingLoss::THREAD);
    local.is_identity_sent = u32::from(sent.is_ok());
}
