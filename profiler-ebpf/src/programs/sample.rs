//! The sampling clock: which thread is on the CPU, and where.

use core::ffi::c_void;

use profiler_ebpf::{
    loss::RingLoss,
    record::{NO_SEQ, NO_STACK, SampleRecord, kind, phase},
    run_queue_clock::RunQueueClock,
};

use super::{
    arrival,
    current_task::current_user_half,
    detail, interrupt_context,
    maps::CLOCK_TICKS,
    ring::{header, now, send},
    stack::{self, Scratch},
    sums, switch, target,
    task::Task,
    task_local, user_stack_copy,
};

/// The clock has ticked on this CPU.
#[inline(always)]
pub fn on_clock_tick(ctx: *mut c_void) {
    if let Some(ticks) = CLOCK_TICKS.get_ptr_mut(0) {
        // SAFETY: this CPU's own entry, and no clock ticks on top of another.
        unsafe { *ticks += 1 };
    }
    let task = Task::current();
    arrival::learn_clock_offset(task, RunQueueClock::Stale, now());
    interrupt_context::request_clock_offset();
    let tid = task.tid();
    if tid == 0 || target::is_profiler(task) {
        return;
    }
    let mut seq = NO_SEQ;
    if let Some(local) = task_local::find(task) {
        if !target::is_in_scope(local.thread_flags) {
            return;
        }
        switch::mark_on_cpu(local, task, RunQueueClock::Stale, now());
        sums::flush_if_old(local, now());
        task_local::send_thread_info_once(local, task, phase::ON_CPU);
        seq = local.seq;
    }
    let mut record = SampleRecord {
        header: header(kind::SAMPLE, size_of::<SampleRecord>()),
        tid,
        tgid: task.tgid(),
        ns: now(),
        seq,
        reserved: 0,
        user_stack: NO_STACK,
        kernel_stack: NO_STACK,
    };
    if detail::takes_stacks() {
        // A clock that ticks in user code finds no kernel half: `bpf_get_stack` returns an error,
        // which is no loss.
        record.kernel_stack = stack::walk_kernel_if_any(ctx, Scratch::Sample).0;
        if current_user_half() != 0 {
            record.user_stack = user_stack_copy::capture_sample(ctx, task).0;
        }
    }
    let _counted = send((&raw const record).cast(), size_of::<SampleRecord>(), RingLoss::SAMPLE);
}
