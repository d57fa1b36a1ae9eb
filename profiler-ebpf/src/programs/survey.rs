//! The survey: every thread is looked at once when the window opens and once when it closes, so
//! that those which are off the CPU all along are known too.

use core::{ffi::c_void, ptr};

use aya_ebpf::EbpfContext;
use aya_log_ebpf::debug;
use profiler_ebpf::{
    loss::Loss,
    record::{
        NO_STACK, PreemptionRecord, RecordHeader, WaitRecord, kind, phase, sighting, wait_flags,
    },
};

use super::{
    maps::{SURVEY, WAIT_SCRATCH},
    ring::{cpu, lost, now, send},
    slot::{self, Slot},
    stack::{self, Scratch},
    switch::{self, Current},
    target,
    task::Task,
};

/// What an iterator's program is called with, for the logger's use.
pub struct Context(pub *mut c_void);

impl EbpfContext for Context {
    fn as_ptr(&self) -> *mut c_void {
        self.0
    }
}

/// Looks at one thread.
#[inline(always)]
pub fn looked_at(ctx: &Context, task: Task) {
    if task.tid() == 0 || target::is_profiler(task) || task.is_dead() {
        return;
    }
    let Some(survey) = SURVEY.get(0) else { return };
    let Some(slot) = slot::find_or_make(task) else {
        debug!(ctx, "no room for thread {} of process {}", task.tid(), task.tgid());
        return;
    };
    if !target::is_in_scope(slot.thread_flags) {
        return;
    }
    if *survey == sighting::OPENING {
        opening(slot, task);
    } else {
        closing(slot, task);
    }
}

#[inline(always)]
fn opening(slot: &mut Slot, task: Task) {
    // The programs run already: a thread that has switched since is known better than this can tell.
    if slot.phase == phase::UNKNOWN {
        begin(slot, task);
    }
    let now = slot.phase;
    slot::introduce(slot, task, sighting::OPENING, now);
}

#[inline(always)]
fn begin(slot: &mut Slot, task: Task) {
    if task.is_on_cpu() {
        slot.phase = phase::ON_CPU;
        return;
    }
    let record = &mut slot.record;
    record.tid = task.tid();
    record.tgid = task.tgid();
    record.wait_flags = wait_flags::BEFORE_WINDOW;
    record.off_ns = now();
    record.state = task.state();
    record.cpus = cpu();
    record.user_stack = NO_STACK;
    slot.next_tid = 0;
    if !task.is_blocked() {
        slot.phase = phase::RUNNABLE;
        return;
    }
    record.syscall.thread_flags = slot.thread_flags;
    switch::note_what_for(record, task, Current::No);
    slot.phase = phase::BLOCKED;
}

#[inline(always)]
fn closing(slot: &mut Slot, task: Task) {
    match slot.phase {
        phase::BLOCKED => {
            slot.seq += 1;
            send_open_wait(slot, task);
        }
        phase::RUNNABLE => {
            slot.seq += 1;
            let mut record = switch::preemption(slot, now(), 0);
            record.wait_flags |= wait_flags::STILL_OFF;
            let _counted = send(
                (&raw const record).cast(),
                size_of::<PreemptionRecord>(),
                Loss::RingFullPreemption,
            );
        }
        phase::ON_CPU if !task.is_on_cpu() => {
            // It left unseen.
            lost(Loss::SwitchOutMissed);
            slot.seq += 1;
            slot.phase = phase::UNKNOWN;
        }
        _ => {}
    }
    let now = slot.phase;
    slot::introduce(slot, task, sighting::CLOSING, now);
}

#[inline(always)]
fn send_open_wait(slot: &mut Slot, task: Task) {
    let Some(scratch) = WAIT_SCRATCH.get_ptr_mut(0) else { return };
    let len = size_of::<WaitRecord>();
    // SAFETY: only the survey uses the scratch, and one runs at a time. The slot may change while
    // it is copied: a wait that ends just now is sent whole as well, and user space drops this one.
    unsafe {
        ptr::copy_nonoverlapping(
            (&raw const slot.record).cast::<u64>(),
            scratch.cast::<u64>(),
            len / 8,
        );
    }
    // SAFETY: as above.
    let record = unsafe { &mut *scratch };
    record.header = RecordHeader { kind: kind::WAIT, cpu: cpu() as u16, len: len as u32 };
    record.seq = slot.seq;
    record.wait_flags |= wait_flags::STILL_OFF;
    record.on_ns = now();
    record.cpus = (record.cpus & 0xffff) | (cpu() << 16);
    if record.wake.ns == 0 && record.kernel_stack == NO_STACK && stack::wanted() {
        record.kernel_stack = stack::of_blocked(task, Scratch::Survey)
            .or_flag(&mut record.wait_flags, wait_flags::KERNEL_STACK_FAILED);
    }
    let _counted = send(ptr::from_ref(record).cast(), len, Loss::RingFullWait);
}
