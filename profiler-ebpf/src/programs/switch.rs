//! `sched_switch`: one thread leaves a CPU, another comes to it.

use core::{ffi::c_void, ptr};

use profiler_ebpf::{
    loss::Loss,
    record::{
        ExitRecord, NO_STACK, NO_TIMEOUT, PreemptionRecord, RecordHeader, WaitRecord, kind, phase,
        thread_flags, wait_flags,
    },
    stack_counts::Side,
};

use super::{
    context, known_stacks,
    ring::{cpu, header, lost, now, send},
    settings::{CONFIG, frozen},
    slot::{self, Slot},
    stack, syscall, target,
    task::{Registers, TASK_DEAD, Task},
    user_stacks,
};

/// `prev` leaves this CPU, `next` comes to it. The current task is still `prev`.
#[inline(always)]
pub fn switched(ctx: *mut c_void, preempt: u64, prev: Task, next: Task) {
    context::leave_all();
    let now = now();
    left(ctx, preempt, prev, next, now);
    came(next, now);
}

#[inline(always)]
fn left(ctx: *mut c_void, preempt: u64, prev: Task, next: Task, now: u64) {
    let tid = prev.tid();
    if tid == 0 || target::is_profiler(prev) {
        return;
    }
    let state = if frozen(&CONFIG.switch_has_state) != 0 {
        // SAFETY: `sched_switch` has a fourth argument on this kernel.
        unsafe { ptr::read_volatile(ctx.cast::<u64>().add(3)) as u32 }
    } else {
        prev.state()
    };
    // A preempted thread may have been about to sleep and have its state set: it is runnable.
    let is_runnable = preempt != 0 || state == 0;
    if !is_runnable && state & TASK_DEAD != 0 {
        exited(prev, now);
        return;
    }
    let Some(slot) = slot::find_or_make(prev) else { return };
    if target::may_change() {
        if target::holds(prev) {
            slot.thread_flags |= thread_flags::TARGET;
        } else {
            slot.thread_flags &= !thread_flags::TARGET;
        }
    }
    if !target::is_in_scope(slot.thread_flags) {
        // Should it come into the scope later, the number left out shows that something is missing.
        slot.seq += 1;
        slot.phase = phase::UNKNOWN;
        return;
    }
    seen_on_cpu(slot, prev, now);
    let record = &mut slot.record;
    record.tid = tid;
    record.tgid = prev.tgid();
    record.wait_flags = 0;
    record.off_ns = now;
    record.migrated_ns = 0;
    record.state = state;
    record.cpus = cpu();
    slot.next_tid = next.tid();
    if is_runnable {
        slot.phase = phase::RUNNABLE;
        return;
    }
    record.syscall.thread_flags = slot.thread_flags;
    let registers = prev.registers();
    note_what_for(record, prev, registers, Current::Yes);
    record.user_stack = NO_STACK;
    if stack::wanted() {
        note_stacks(ctx, slot, prev, now);
        slot::confess(slot, prev);
    }
    slot.phase = phase::BLOCKED;
}

#[inline(always)]
fn note_stacks(ctx: *mut c_void, slot: &mut Slot, prev: Task, now: u64) {
    if prev.has_user_half() {
        let known = &mut slot.known_stacks;
        let taken = user_stacks::of_side(ctx, Side::WaitUser, Some(known), now);
        let record = &mut slot.record;
        record.user_stack = taken.or_flag(&mut record.wait_flags, wait_flags::USER_STACK_FAILED);
    }
    let record = &slot.record;
    let kind_of_file =
        if record.wait_flags & wait_flags::HAS_FILE != 0 { record.file.mode } else { 0 };
    let about = u64::from(record.syscall.number as u32) | u64::from(kind_of_file) << 32;
    let about = about ^ u64::from(record.state) << 48;
    slot.record.kernel_stack = known_stacks::of_sleeper(ctx, &mut slot.known_stacks, about, now).0;
}

/// The thread is on this CPU, and its slot may say that it is off it: its switch-in was not seen. The
/// kernel does not run a program that runs on that CPU already, and some hide a process of theirs,
/// with every switch away from it. What is known of the time off the CPU is sent; from the wake to
/// this moment is a gap, which the sampling clock keeps short.
#[inline(always)]
pub fn seen_on_cpu(slot: &mut Slot, task: Task, now: u64) {
    if slot.phase != phase::RUNNABLE && slot.phase != phase::BLOCKED {
        return;
    }
    lost(Loss::SwitchInMissed);
    slot.record.wait_flags |= wait_flags::SWITCH_IN_MISSED;
    send_off_cpu(slot, task, now);
    slot.record.wake.ns = 0;
    slot.phase = phase::ON_CPU;
}

/// The scheduler is about to move a thread from one CPU's queue to another's: as it places one that
/// is woken, as it balances, or as somebody says where the thread may run. The thread is not running.
#[inline(always)]
pub fn migrated(task: Task) {
    if task.tid() == 0 || target::is_profiler(task) {
        return;
    }
    if let Some(slot) = slot::find(task)
        && (slot.phase == phase::RUNNABLE || slot.phase == phase::BLOCKED)
    {
        slot.record.migrated_ns = now();
    }
}

#[inline(always)]
fn came(next: Task, now: u64) {
    let tid = next.tid();
    if tid == 0 || target::is_profiler(next) {
        return;
    }
    let Some(slot) = slot::find(next) else {
        // It came to be while the programs were being attached, or was never to be seen.
        if slot::has_room_for(next) {
            lost(Loss::SwitchInUnmatched);
            if let Some(slot) = slot::find_or_make(next) {
                slot.phase = phase::ON_CPU;
            }
        }
        return;
    };
    if slot.phase == phase::ON_CPU && target::is_in_scope(slot.thread_flags) {
        // It left unseen: what it did meanwhile is a gap, which the number left out here shows.
        lost(Loss::SwitchOutMissed);
        slot.seq += 1;
    }
    send_off_cpu(slot, next, now);
    slot.phase = phase::ON_CPU;
    slot.record.wake.ns = 0;
}

/// Sends the time off the CPU that a thread comes back from. Who it is comes before that, and so says
/// nothing of its phase: the number of its newest record is about to change.
#[inline(always)]
fn send_off_cpu(slot: &mut Slot, task: Task, now: u64) {
    match slot.phase {
        phase::RUNNABLE => {
            slot::introduce_once(slot, task, phase::UNKNOWN);
            send_preemption(slot, now);
        }
        phase::BLOCKED => {
            slot::introduce_once(slot, task, phase::UNKNOWN);
            send_wait(slot, now);
        }
        _ => {}
    }
}

#[inline(always)]
fn send_wait(slot: &mut Slot, now: u64) {
    slot.seq += 1;
    let record = &mut slot.record;
    if now < record.off_ns {
        lost(Loss::TimeBackwards);
    }
    let len = size_of::<WaitRecord>();
    record.header = RecordHeader { kind: kind::WAIT, cpu: cpu() as u16, len: len as u32 };
    record.seq = slot.seq;
    record.on_ns = now;
    record.cpus = (record.cpus & 0xffff) | (cpu() << 16);
    let _counted = send(ptr::from_ref(record).cast(), len, Loss::RingFullWait);
}

#[inline(always)]
fn send_preemption(slot: &mut Slot, now: u64) {
    slot.seq += 1;
    let record = preemption(slot, slot.seq, now, cpu());
    let _counted =
        send((&raw const record).cast(), size_of::<PreemptionRecord>(), Loss::RingFullPreemption);
}

/// The preemption that a slot is in, as of `now`.
#[inline(always)]
pub fn preemption(slot: &Slot, seq: u32, now: u64, on_cpu: u32) -> PreemptionRecord {
    PreemptionRecord {
        header: header(kind::PREEMPTION, size_of::<PreemptionRecord>()),
        tid: slot.record.tid,
        tgid: slot.record.tgid,
        seq,
        wait_flags: slot.record.wait_flags,
        thread_flags: slot.thread_flags,
        cpus: (slot.record.cpus & 0xffff) | (on_cpu << 16),
        off_ns: slot.record.off_ns,
        on_ns: now,
        migrated_ns: slot.record.migrated_ns,
        next_tid: slot.next_tid,
        reserved: 0,
    }
}

#[inline(always)]
fn exited(task: Task, now: u64) {
    let Some(slot) = slot::find(task) else { return };
    if target::is_in_scope(slot.thread_flags) {
        slot::introduce_once(slot, task, phase::UNKNOWN);
        let record = ExitRecord {
            header: header(kind::EXIT, size_of::<ExitRecord>()),
            tid: task.tid(),
            tgid: task.tgid(),
            ns: now,
            seq: slot.seq,
            thread_flags: slot.thread_flags,
            exit_code: task.exit_code(),
            reserved: 0,
        };
        let _counted =
            send((&raw const record).cast(), size_of::<ExitRecord>(), Loss::RingFullExit);
    }
    slot::forget(task);
}

/// Whether the task that is looked at is the one that runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Current {
    /// It is: its user memory can be read.
    Yes,
    /// It is another.
    No,
}

/// Notes what a task waits on: its syscall, the file and the timeout that this names, its cgroup.
#[inline(always)]
pub fn note_what_for(record: &mut WaitRecord, task: Task, registers: Registers, current: Current) {
    task.syscall(registers, &mut record.syscall);
    record.cgroup = task.cgroup();
    record.timeout_ns = NO_TIMEOUT;
    record.kernel_stack = NO_STACK;
    let about = syscall::look_up(&record.syscall);
    if let Some(file) = syscall::file(task, &record.syscall, about) {
        record.file = file;
        record.wait_flags |= wait_flags::HAS_FILE;
    }
    if current == Current::Yes {
        record.timeout_ns = syscall::timeout(&record.syscall, about);
    }
}
