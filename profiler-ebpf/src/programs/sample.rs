//! The sampling clock: what is on the CPU right now.

use core::ffi::c_void;

use profiler_ebpf::{
    loss::Loss,
    record::{NO_SEQ, NO_STACK, SampleRecord, kind, phase},
};

use super::{
    maps::STRIKES,
    ring::{header, now, send},
    slot,
    stack::{self, Scratch},
    switch, target,
    task::Task,
    user_stacks,
};

/// The clock struck on this CPU.
#[inline(always)]
pub fn struck(ctx: *mut c_void) {
    if let Some(strikes) = STRIKES.get_ptr_mut(0) {
        // SAFETY: this CPU's own entry, and no clock strikes on top of another.
        unsafe { *strikes += 1 };
    }
    let task = Task::current();
    let tid = task.tid();
    if tid == 0 || target::is_profiler(task) {
        return;
    }
    let mut seq = NO_SEQ;
    if let Some(slot) = slot::find(task) {
        if !target::is_in_scope(slot.thread_flags) {
            return;
        }
        switch::seen_on_cpu(slot, task, now());
        slot::introduce_once(slot, task, phase::ON_CPU);
        seq = slot.seq;
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
    if stack::wanted() {
        // A clock that struck in user code finds no kernel half: `bpf_get_stack` says so by an
        // error, and it is no loss.
        record.kernel_stack = stack::of_kernel_if_in_it(ctx, Scratch::Sample).0;
        if task.has_user_half() {
            record.user_stack = user_stacks::of_sample(ctx, task).0;
        }
    }
    let _counted =
        send((&raw const record).cast(), size_of::<SampleRecord>(), Loss::RingFullSample);
}
