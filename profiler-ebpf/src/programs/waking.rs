//! `sched_waking` and `sched_wakeup_new`: somebody ends a wait. Both run where the waker runs;
//! `sched_wakeup` would run where the wakee goes to, and name a bystander.
//! <https://github.com/torvalds/linux/commit/fbd705a0c6184580d0e2fbcbd47a37b6e5822511>

use core::ffi::c_void;

use profiler_ebpf::{
    loss::Loss,
    record::{
        NO_SEQ, NO_STACK, NO_SYSCALL, NO_TIMEOUT, Wake, phase, thread_flags, wait_flags,
        wake_context, wake_flags,
    },
    stack_counts::Side,
};

use super::{
    budget::{self, Price},
    context, file,
    known_stacks::{self, InSoftirq, Waker},
    ring::{cpu, lost, now},
    slot::{self, Slot},
    stack::{self, Scratch},
    switch, syscall, target,
    task::Task,
    user_stacks,
};

/// `NET_TX_SOFTIRQ` and `NET_RX_SOFTIRQ`:
/// <https://github.com/torvalds/linux/blob/v6.12/include/linux/interrupt.h#L551>
const NET_TX_SOFTIRQ: u16 = 2;
const NET_RX_SOFTIRQ: u16 = 3;

/// `wakee` is about to be woken by whatever runs here.
#[inline(always)]
pub fn waking(ctx: *mut c_void, wakee: Task) {
    if wakee.tid() == 0 || target::is_profiler(wakee) {
        return;
    }
    let Some(slot) = slot::find(wakee) else {
        if slot::has_room_for(wakee) {
            lost(Loss::WakeUnmatched);
        }
        return;
    };
    if !target::is_in_scope(slot.thread_flags) {
        return;
    }
    let now = now();
    match slot.phase {
        // The first wake that comes while the thread is off the CPU ends its wait, and no second
        // can be: the state no longer matches. What was there from before the switch-out gives way.
        phase::BLOCKED if slot.record.wake.ns > slot.record.off_ns => {}
        phase::BLOCKED => {
            // Who wakes the reader or the writer of a pipe does it through this pipe.
            let is_on_pipe = slot.record.wait_flags & wait_flags::HAS_FILE != 0
                && file::is_pipe(&slot.record.file);
            let through = if is_on_pipe { Through::Same } else { Through::Unknown };
            note_waker(ctx, slot, through, now);
            let record = &mut slot.record;
            if stack::wanted()
                && record.kernel_stack == NO_STACK
                && record.wait_flags & wait_flags::KERNEL_STACK_FAILED == 0
            {
                record.kernel_stack = budget::walk(Price::WithinBudget, now, || {
                    stack::of_blocked(wakee, Scratch::Waking)
                })
                .or_flag(&mut record.wait_flags, wait_flags::KERNEL_STACK_FAILED);
            }
        }
        // Still on the CPU, on its way to sleep perhaps: the next switch-in will tell.
        phase::ON_CPU => note_waker(ctx, slot, Through::Unknown, now),
        _ => {}
    }
}

/// `child` is woken for the first time, by the task that made it.
#[inline(always)]
pub fn newborn(ctx: *mut c_void, child: Task) {
    if target::is_profiler(child) {
        return;
    }
    let Some(slot) = slot::find_or_make(child) else { return };
    if !target::is_in_scope(slot.thread_flags) {
        return;
    }
    let now = now();
    let record = &mut slot.record;
    record.tid = child.tid();
    record.tgid = child.tgid();
    record.wait_flags = wait_flags::NEWBORN;
    record.off_ns = now;
    record.migrated_ns = 0;
    record.state = 0;
    record.cpus = cpu();
    record.syscall.number = NO_SYSCALL;
    record.syscall.thread_flags = slot.thread_flags;
    record.timeout_ns = NO_TIMEOUT;
    record.cgroup = child.cgroup();
    record.user_stack = NO_STACK;
    record.kernel_stack = NO_STACK;
    note_waker(ctx, slot, Through::Unknown, now);
    slot.phase = phase::BLOCKED;
}

/// What the waker's file can be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Through {
    /// The one that is waited on; it need not be looked at.
    Same,
    /// Any.
    Unknown,
}

#[inline(always)]
fn note_waker(ctx: *mut c_void, slot: &mut Slot, through: Through, now: u64) {
    let current = Task::current();
    let registers = current.registers();
    let (context, vector) = context::now(ctx, current, registers);
    let tid = current.tid();
    let wake: &mut Wake = &mut slot.record.wake;
    wake.tid = tid;
    wake.tgid = current.tgid();
    wake.context = context;
    wake.vector = vector;
    wake.cpu = cpu();
    wake.flags = 0;
    wake.current_seq = NO_SEQ;
    wake.user_stack = NO_STACK;
    wake.kernel_stack = NO_STACK;
    wake.syscall.number = NO_SYSCALL;
    wake.syscall.thread_flags = 0;
    let is_task = context == wake_context::TASK;
    // A softirq may run inside a local sender's own send, and only its stack shows that: it is
    // needed to name the sender even where no stacks are wanted.
    let may_be_sender = context == wake_context::SOFTIRQ
        && (vector == NET_RX_SOFTIRQ || vector == NET_TX_SOFTIRQ)
        && tid != 0;
    if is_task || may_be_sender {
        if current.is_kernel_thread() {
            wake.syscall.thread_flags = thread_flags::KERNEL;
        }
        current.syscall(registers, &mut wake.syscall);
        if through == Through::Unknown {
            let about = syscall::look_up(&wake.syscall);
            if let Some(file) = syscall::file(current, &wake.syscall, about) {
                wake.file = file;
                wake.flags |= wake_flags::HAS_FILE;
            }
        }
        let mut own =
            if tid == 0 || target::is_profiler(current) { None } else { slot::find(current) };
        if tid != 0 && (stack::wanted() || may_be_sender) {
            let softirq = if is_task { InSoftirq::No } else { InSoftirq::Yes };
            let waker = Waker { task: current, registers, softirq };
            note_stacks_of_waker(ctx, wake, waker, own.as_deref_mut(), now);
        }
        if let Some(own) = own {
            slot.record.wake.current_seq = look_at_waker(own, current, now);
            slot::confess(own, current);
        }
    }
    slot.record.wake.ns = now;
}

#[inline(always)]
fn note_stacks_of_waker(
    ctx: *mut c_void,
    wake: &mut Wake,
    waker: Waker,
    own: Option<&mut Slot>,
    now: u64,
) {
    let number = wake.syscall.number;
    let mut known = own.map(|own| &mut own.known_stacks);
    let kernel = match known.as_deref_mut() {
        Some(known) => known_stacks::of_waker(ctx, known, waker, number, now),
        // Nothing has been seen of it yet.
        None => stack::of_kernel(ctx, Scratch::Waking),
    };
    wake.kernel_stack = kernel.or_flag(&mut wake.flags, wake_flags::KERNEL_STACK_FAILED);
    if stack::wanted() && waker.task.has_user_half() {
        let user = user_stacks::of_side(ctx, Side::WakeUser, known, now);
        wake.user_stack = user.or_flag(&mut wake.flags, wake_flags::USER_STACK_FAILED);
    }
}

/// A waker that never waited itself has not been introduced yet; and whoever wakes is on a CPU. Gives
/// back the number of its newest record.
#[inline(always)]
fn look_at_waker(own: &mut Slot, current: Task, now: u64) -> u32 {
    // In this order: the number is the right one for a thread on the CPU only after this.
    switch::seen_on_cpu(own, current, now);
    slot::introduce_once(own, current, phase::ON_CPU);
    own.seq
}
