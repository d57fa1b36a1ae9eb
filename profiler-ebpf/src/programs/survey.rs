//! The survey: an iterator visits every thread once when the window opens and once when it closes,
//! so that threads which are off the CPU all along are known too, and whenever a snapshot is taken
//! of a recording that goes on.

use core::{ffi::c_void, ptr};

use aya_ebpf::EbpfContext;
use aya_log_ebpf::debug;
use profiler_ebpf::{
    loss::{Loss, RingLoss},
    record::{
        NO_STACK, PreemptionRecord, RecordHeader, WaitRecord, kind, phase, survey, thread_event,
        thread_flags, wait_flags,
    },
    syscalls::{IS_FUTEX, may_wait_for_lock},
    user_stack::purpose,
};

use super::{
    maps::{SURVEY, WAIT_SCRATCH},
    ring::{count_loss, cpu, now, send},
    stack::{self, Scratch},
    sums,
    switch::{self, UserMemory},
    syscall, target,
    task::Task,
    task_local::{self, TaskLocal},
    throttle, user_stack_copy,
};

/// The context that an iterator's program is called with, in the form that the logger takes.
pub struct IteratorContext(pub *mut c_void);

impl EbpfContext for IteratorContext {
    fn as_ptr(&self) -> *mut c_void {
        self.0
    }
}

/// Visits one thread.
#[inline(always)]
pub fn survey_thread(ctx: &IteratorContext, task: Task) {
    if task.tid() == 0 || target::is_profiler(task) || task.is_dead() {
        return;
    }
    let Some(which) = SURVEY.get(0) else { return };
    if *which == survey::CHILDREN {
        target::add_child(task);
        return;
    }
    let Some(local) = task_local::find_or_create(task) else {
        debug!(ctx, "no room for thread {} of process {}", task.tid(), task.tgid());
        return;
    };
    if *which == survey::OPENING && target::contains(task) {
        // The thread may have been seen before its process became part of the target.
        local.thread_flags |= thread_flags::TARGET;
        local.record.syscall.thread_flags |= thread_flags::TARGET;
    }
    if !target::is_in_scope(local.thread_flags) {
        return;
    }
    match *which {
        survey::OPENING => survey_opening(local, task),
        survey::CLOSING => survey_closing(local, task),
        _ => survey_snapshot(local, task),
    }
}

/// The window opens: sends the thread's properties, and opens a wait if the thread is off the CPU.
#[inline(always)]
fn survey_opening(local: &mut TaskLocal, task: Task) {
    // The programs run already: of a thread that has switched since, more is known than can be
    // found here.
    let is_on_cpu = task.is_on_cpu();
    // A thread that seems to be on a CPU, and is not, left it unseen.
    if local.phase == phase::UNKNOWN || (read_phase(local) == phase::ON_CPU && !is_on_cpu) {
        open_wait(local, task);
    }
    let phase = local.phase;
    task_local::send_thread_info(local, task, thread_event::OPENING, phase);
}

/// Finds what a thread does, and opens its wait or preemption if it is off the CPU.
#[inline(always)]
fn open_wait(local: &mut TaskLocal, task: Task) {
    if task.is_on_cpu() {
        local.phase = phase::ON_CPU;
        return;
    }
    let record = &mut local.record;
    record.tid = task.tid();
    record.tgid = task.tgid();
    record.wait_flags = wait_flags::BEFORE_WINDOW;
    record.off_ns = now();
    record.migrated_ns = 0;
    record.state = task.state();
    record.cpus = cpu();
    record.user_stack = NO_STACK;
    local.is_late = 0;
    local.next_tid = 0;
    if !task.is_blocked() {
        local.phase = phase::RUNNABLE;
        throttle::open_if_throttled(local, task);
        return;
    }
    record.syscall.thread_flags = local.thread_flags;
    let registers = task.registers();
    switch::record_syscall_and_file(record, task, registers, UserMemory::NotReadable);
    let is_target = local.thread_flags & thread_flags::TARGET != 0;
    // Whoever has a lock that the target waits for may wait for a lock itself: for which, only its
    // stack tells, and others are too many.
    let is_wanted = is_target
        || syscall::table_entry(&record.syscall) & IS_FUTEX != 0
            && may_wait_for_lock(&record.syscall.args);
    if stack::are_recorded() && is_wanted && task.has_user_half() {
        let stack = user_stack_copy::request_sleeper(task, registers, purpose::BEFORE_WINDOW);
        let record = &mut local.record;
        record.user_stack = stack.0;
    }
    local.phase = phase::BLOCKED;
}

/// The window closes: sends what is open, and the thread's properties.
#[inline(always)]
fn survey_closing(local: &mut TaskLocal, task: Task) {
    sums::send_copy(local);
    match local.phase {
        phase::BLOCKED => {
            local.seq += 1;
            if let Some(record) = copy_open_wait(local, task, local.seq) {
                send_open_wait(record);
            }
            offer_stack(&local.record, task);
        }
        phase::RUNNABLE => {
            local.seq += 1;
            throttle::send_open(local, task, local.record.off_ns, now());
            send_open_preemption(local, local.seq);
        }
        phase::ON_CPU if !task.is_on_cpu() => {
            // The switch-out was not seen.
            count_loss(Loss::SwitchOutMissed);
            local.seq += 1;
            local.phase = phase::UNKNOWN;
        }
        _ => {}
    }
    let phase = local.phase;
    task_local::send_thread_info(local, task, thread_event::CLOSING, phase);
}

/// A snapshot is taken: sends the same as [`survey_closing`], and leaves the task-local storage as
/// it is. What is sent has the number that the record of the same wait will have when it ends.
#[inline(always)]
fn survey_snapshot(local: &mut TaskLocal, task: Task) {
    // In this order: the number changes before the phase does.
    let seq = read_seq(local);
    let mut phase = read_phase(local);
    let mut newest = seq;
    sums::send_copy(local);
    match phase {
        phase::BLOCKED => {
            newest = seq + 1;
            // A wait that has ended meanwhile is sent whole by `sched_switch`, and the copy may be
            // half of it and half of another.
            if let Some(record) = copy_open_wait(local, task, newest)
                && read_seq(local) == seq
            {
                send_open_wait(record);
            }
        }
        phase::RUNNABLE => {
            newest = seq + 1;
            throttle::send_open(local, task, local.record.off_ns, now());
            send_open_preemption(local, newest);
        }
        // The switch-out was not seen, unless the thread leaves just now. The loss is counted when
        // it comes back.
        phase::ON_CPU if !task.is_on_cpu() && read_phase(local) == phase::ON_CPU => {
            newest = seq + 1;
            phase = phase::UNKNOWN;
        }
        _ => {}
    }
    let _counted =
        task_local::send_thread_record(local, task, thread_event::CLOSING, phase, newest);
}

/// The number of the newest record as it is now: another CPU may change it at any moment.
#[inline(always)]
fn read_seq(local: &TaskLocal) -> u32 {
    // SAFETY: a reference can be read from.
    unsafe { ptr::read_volatile(&raw const local.seq) }
}

/// The phase as it is now: another CPU may change it at any moment.
#[inline(always)]
fn read_phase(local: &TaskLocal) -> u32 {
    // SAFETY: a reference can be read from.
    unsafe { ptr::read_volatile(&raw const local.phase) }
}

/// Tells user space where the stack of a thread is that has slept since before the window, if it was
/// not read as the window opened: somebody of the target may wait for that thread, and only now it
/// can be known who. 112 bytes for each such thread.
#[inline(always)]
fn offer_stack(record: &WaitRecord, task: Task) {
    let has_slept_all_along =
        record.wait_flags & wait_flags::BEFORE_WINDOW != 0 && record.wake.ns == 0;
    let is_unread = record.user_stack == NO_STACK;
    if has_slept_all_along && is_unread && stack::are_recorded() && task.has_user_half() {
        let _counted =
            user_stack_copy::request_sleeper(task, task.registers(), purpose::STILL_ASLEEP);
    }
}

#[inline(always)]
fn send_open_preemption(local: &TaskLocal, seq: u32) {
    let mut record = switch::preemption_record(local, seq, now(), 0);
    record.wait_flags |= wait_flags::STILL_OFF;
    let _counted =
        send((&raw const record).cast(), size_of::<PreemptionRecord>(), RingLoss::PREEMPTION);
}

#[inline(always)]
fn send_open_wait(record: &WaitRecord) {
    let record = ptr::from_ref(record).cast();
    let _counted = send(record, size_of::<WaitRecord>(), RingLoss::WAIT);
}

/// The record of the wait that a thread is in, as it stands.
#[inline(always)]
fn copy_open_wait(local: &TaskLocal, task: Task, seq: u32) -> Option<&'static WaitRecord> {
    let scratch = WAIT_SCRATCH.get_ptr_mut(0)?;
    let len = size_of::<WaitRecord>();
    // SAFETY: only the survey uses the scratch, and one runs at a time. The record may change while
    // it is copied: a wait that ends just now is sent whole as well, and user space drops this
    // copy.
    unsafe {
        ptr::copy_nonoverlapping(
            (&raw const local.record).cast::<u64>(),
            scratch.cast::<u64>(),
            len / 8,
        );
    }
    // SAFETY: as above.
    let record = unsafe { &mut *scratch };
    record.header = RecordHeader { kind: kind::WAIT, cpu: cpu() as u16, len: len as u32 };
    record.seq = seq;
    record.wait_flags |= wait_flags::STILL_OFF;
    record.on_ns = now();
    record.cpus = (record.cpus & 0xffff) | (cpu() << 16);
    if local.is_late != 0 {
        record.syscall.thread_flags = local.thread_flags;
        let registers = task.registers();
        switch::record_syscall_and_file(record, task, registers, UserMemory::NotReadable);
    }
    if record.wake.ns == 0 && record.kernel_stack == NO_STACK && stack::are_recorded() {
        record.kernel_stack = stack::walk_blocked(task, Scratch::Survey)
            .or_flag(&mut record.wait_flags, wait_flags::KERNEL_STACK_FAILED);
    }
    Some(record)
}
