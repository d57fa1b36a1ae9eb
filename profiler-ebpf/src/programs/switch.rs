//! `sched_switch`: one thread leaves a CPU, another comes to it.

use core::{ffi::c_void, ptr};

use profiler_ebpf::{
    loss::{Loss, RingLoss},
    record::{
        ExitRecord, NO_STACK, NO_TIMEOUT, PreemptionRecord, RecordHeader, WaitRecord, kind, phase,
        thread_flags, wait_flags,
    },
    run_queue_clock::{RunQueueClock, place_arrival},
    stack_counts::StackKind,
};

use super::{
    arrival, code_epoch,
    config::{CONFIG, frozen},
    current_task::{current_cgroup, current_user_half, read_current_inode},
    detail, file, interrupt_context, kernel_stack_cache,
    register_cache::RegisterKey,
    ring::{count_loss, cpu, header, now, send},
    stack::Scratch,
    sums, syscall, tags, target,
    task::{Registers, TASK_DEAD, Task},
    task_local::{self, TaskLocal},
    throttle, user_stack_copy,
};

/// `sched_switch`: `prev` leaves this CPU, `next` comes to it. The current task is still `prev`.
#[inline(always)]
pub fn on_switch(ctx: *mut c_void, preempt: u64, prev: Task, next: Task) {
    interrupt_context::leave_all();
    let now = now();
    if interrupt_context::is_clock_offset_requested() {
        learn_clock_offset(prev, now);
    }
    on_switch_out(ctx, preempt, prev, next, now);
    on_switch_in(next, now);
}

/// Learns the offset of the run queue's clock while that is fresh. A tick finds it up to 4 ms old (at
/// 250 Hz), and a CPU that was idle has had no tick.
#[inline(never)]
fn learn_clock_offset(prev: Task, now: u64) {
    arrival::learn_clock_offset(prev, RunQueueClock::Fresh, now);
}

/// `prev` leaves the CPU: opens its wait or preemption.
#[inline(always)]
fn on_switch_out(ctx: *mut c_void, preempt: u64, prev: Task, next: Task, now: u64) {
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
    // A preempted thread may have set its state because it was about to sleep, but it is runnable.
    let is_runnable = preempt != 0 || state == 0;
    let is_last = !is_runnable && state & TASK_DEAD != 0;
    let local = if is_last { task_local::find(prev) } else { task_local::find_or_create(prev) };
    let Some(local) = local else { return };
    if !is_last && target::may_change() {
        if target::contains(prev) {
            local.thread_flags |= thread_flags::TARGET;
        } else {
            local.thread_flags &= !thread_flags::TARGET;
        }
    }
    if !target::is_in_scope(local.thread_flags) {
        // Should the thread come into the scope later, the skipped number shows that something is
        // missing.
        local.seq += 1;
        local.phase = phase::UNKNOWN;
        if is_last {
            task_local::release(prev);
        }
        return;
    }
    mark_on_cpu(local, prev, RunQueueClock::Fresh, now);
    if is_last {
        send_exit(local, prev, now);
        task_local::release(prev);
        return;
    }
    let record = &mut local.record;
    record.tid = tid;
    record.tgid = prev.tgid();
    record.wait_flags = 0;
    record.off_ns = now;
    record.migrated_ns = 0;
    record.state = state;
    record.cpus = cpu();
    local.next_tid = next.tid();
    tags::check(local, Scratch::Switch, now);
    let record = &mut local.record;
    if is_runnable {
        local.phase = phase::RUNNABLE;
        if prev.is_throttled() {
            throttle::open(local, prev);
        }
        return;
    }
    record.user_stack = NO_STACK;
    if detail::is_late() {
        local.is_late = 1;
        local.phase = phase::BLOCKED;
        return;
    }
    local.is_late = 0;
    record.syscall.thread_flags = local.thread_flags;
    let registers = prev.registers();
    record_syscall_and_file(record, prev, registers, UserMemory::Readable);
    if detail::takes_stacks() {
        record_stacks(ctx, local, registers, now);
        task_local::report_distrust(local, prev);
    }
    local.phase = phase::BLOCKED;
}

/// Reads what a thread waits for, or waited for until just now, whose wait turned out to be too long to be
/// summed up: all but what is in its own memory, which it would have to read itself.
#[inline(never)]
pub fn read_late(local: &mut TaskLocal, task: Task) {
    local.is_late = 0;
    local.record.syscall.thread_flags = local.thread_flags;
    let registers = task.registers();
    record_syscall_and_file(&mut local.record, task, registers, UserMemory::NotReadable);
}

/// Records the stack of a thread that leaves the CPU to wait: the user half, and the kernel half if
/// it is in the cache.
#[inline(always)]
fn record_stacks(ctx: *mut c_void, local: &mut TaskLocal, registers: Registers, now: u64) {
    let epoch = code_epoch::current_epoch(local.record.tgid);
    let user_key = RegisterKey::for_user(registers, epoch, local.record.syscall.number);
    if current_user_half() != 0 {
        let cache = &mut local.stack_cache;
        let stack = user_stack_copy::capture(ctx, StackKind::WaitUser, Some(cache), user_key, now);
        let record = &mut local.record;
        record.user_stack = stack.or_flag(&mut record.wait_flags, wait_flags::USER_STACK_FAILED);
    }
    let record = &local.record;
    let file_mode =
        if record.wait_flags & wait_flags::HAS_FILE != 0 { record.file.mode } else { 0 };
    let wait_key = u64::from(record.syscall.number as u32) | u64::from(file_mode) << 32;
    let wait_key = wait_key ^ u64::from(record.state) << 48;
    local.record.kernel_stack =
        kernel_stack_cache::capture_sleeper(ctx, &mut local.stack_cache, wait_key, now).0;
}

/// Marks a thread that runs on this CPU as such. If a wait or preemption of it is open, its
/// switch-in was not seen: the kernel does not run a program that runs on that CPU already, and
/// some kernels hide a process of theirs, with every switch away from it.
#[inline(always)]
pub fn mark_on_cpu(local: &mut TaskLocal, task: Task, clock: RunQueueClock, now: u64) {
    if local.phase != phase::RUNNABLE && local.phase != phase::BLOCKED {
        return;
    }
    let on_ns = find_unseen_switch_in(local, task, clock, now);
    send_off_cpu(local, task, on_ns);
    local.record.wake.ns = 0;
    local.phase = phase::ON_CPU;
}

/// Returns when a thread came to its CPU whose switch-in was not seen, by the scheduler's account. If
/// that is not known, it is `now`, and the record says that the switch-in was missed: the time from the
/// wake to this moment is a gap, which the sampling clock keeps short.
///
/// It sends nothing: with the functions that do, its stack would be too large for the verifier.
#[inline(never)]
fn find_unseen_switch_in(local: &mut TaskLocal, task: Task, clock: RunQueueClock, now: u64) -> u64 {
    count_loss(Loss::SwitchInMissed);
    if clock == RunQueueClock::Fresh {
        learn_clock_offset(task, now);
    }
    let arrival = arrival::arrival_ns(task)
        .and_then(|arrival| place_arrival(arrival, local.record.off_ns, now));
    let Some(arrival) = arrival else {
        local.record.wait_flags |= wait_flags::SWITCH_IN_MISSED;
        return now;
    };
    // A wake that came later found the thread on its CPU.
    if local.record.wake.ns > arrival {
        local.record.wake.ns = 0;
    }
    arrival
}

/// `sched_migrate_task`: the scheduler is about to move a thread from one CPU's queue to another's,
/// as it places one that is woken, as it balances, or as somebody sets where the thread may run.
/// The thread is not running.
#[inline(always)]
pub fn on_migrate(task: Task) {
    if task.tid() == 0 || target::is_profiler(task) {
        return;
    }
    if let Some(local) = task_local::find(task)
        && (local.phase == phase::RUNNABLE || local.phase == phase::BLOCKED)
    {
        let now = now();
        local.record.migrated_ns = now;
        throttle::end_at_migration(local, now);
    }
}

/// `next` comes to the CPU: sends its wait or preemption.
#[inline(always)]
fn on_switch_in(next: Task, now: u64) {
    let tid = next.tid();
    if tid == 0 || target::is_profiler(next) {
        return;
    }
    let Some(local) = task_local::find(next) else {
        // The thread was created while the programs were being attached, or has been beyond the
        // limit of threads.
        if task_local::has_room_for(next) {
            count_loss(Loss::SwitchInUnmatched);
            if let Some(local) = task_local::find_or_create(next) {
                local.phase = phase::ON_CPU;
            }
        }
        return;
    };
    if local.phase == phase::ON_CPU && target::is_in_scope(local.thread_flags) {
        // The switch-out was not seen: what the thread did meanwhile is a gap, which the skipped
        // number shows.
        count_loss(Loss::SwitchOutMissed);
        local.seq += 1;
    }
    if !sums::add_if_short(local, next, now) {
        send_off_cpu(local, next, now);
    }
    local.phase = phase::ON_CPU;
    local.record.wake.ns = 0;
}

/// Sends the time off the CPU that a thread comes back from. The thread's properties are sent
/// before that if need be, without its phase: the number of its newest record is about to change.
#[inline(always)]
fn send_off_cpu(local: &mut TaskLocal, task: Task, now: u64) {
    sums::flush(local);
    match local.phase {
        phase::RUNNABLE => {
            task_local::send_thread_info_once(local, task, phase::UNKNOWN);
            if throttle::send_all(local, task, local.record.off_ns, now).is_err() {
                return skip_record(local);
            }
            send_preemption(local, now);
        }
        phase::BLOCKED => {
            if detail::is_adjustable() && local.is_late != 0 {
                read_late(local, task);
            }
            task_local::send_thread_info_once(local, task, phase::UNKNOWN);
            if throttle::send_all(local, task, local.record.wake.ns, now).is_err() {
                return skip_record(local);
            }
            send_wait(local, now);
        }
        _ => {}
    }
}

/// Leaves out the record of a thread's time off the CPU, which would blame other threads for
/// throttled time: its number is skipped, and the time is a gap.
#[inline(always)]
fn skip_record(local: &mut TaskLocal) {
    local.seq += 1;
}

#[inline(always)]
fn send_wait(local: &mut TaskLocal, now: u64) {
    local.seq += 1;
    let record = &mut local.record;
    if now < record.off_ns {
        count_loss(Loss::TimeBackwards);
    }
    let len = size_of::<WaitRecord>();
    record.header = RecordHeader { kind: kind::WAIT, cpu: cpu() as u16, len: len as u32 };
    record.seq = local.seq;
    record.on_ns = now;
    record.cpus = (record.cpus & 0xffff) | (cpu() << 16);
    let _counted = send(ptr::from_ref(record).cast(), len, RingLoss::WAIT);
}

#[inline(always)]
fn send_preemption(local: &mut TaskLocal, now: u64) {
    local.seq += 1;
    let record = preemption_record(local, local.seq, now, cpu());
    let _counted =
        send((&raw const record).cast(), size_of::<PreemptionRecord>(), RingLoss::PREEMPTION);
}

/// The record of the preemption that a thread is in, as of `now`.
#[inline(always)]
pub fn preemption_record(local: &TaskLocal, seq: u32, now: u64, on_cpu: u32) -> PreemptionRecord {
    PreemptionRecord {
        header: header(kind::PREEMPTION, size_of::<PreemptionRecord>()),
        tid: local.record.tid,
        tgid: local.record.tgid,
        seq,
        wait_flags: local.record.wait_flags,
        thread_flags: local.thread_flags,
        cpus: (local.record.cpus & 0xffff) | (on_cpu << 16),
        off_ns: local.record.off_ns,
        on_ns: now,
        migrated_ns: local.record.migrated_ns,
        next_tid: local.next_tid,
        reserved: 0,
    }
}

/// Sends that a thread has ended, which leaves the CPU for the last time.
#[inline(always)]
fn send_exit(local: &mut TaskLocal, task: Task, now: u64) {
    sums::flush(local);
    task_local::send_thread_info_once(local, task, phase::UNKNOWN);
    let record = ExitRecord {
        header: header(kind::EXIT, size_of::<ExitRecord>()),
        tid: task.tid(),
        tgid: task.tgid(),
        ns: now,
        seq: local.seq,
        thread_flags: local.thread_flags,
        exit_code: task.exit_code(),
        reserved: 0,
    };
    let _counted = send((&raw const record).cast(), size_of::<ExitRecord>(), RingLoss::EXIT);
}

/// Whether the user memory of a task can be read here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum UserMemory {
    /// The task is the current one.
    Readable,
    /// The task is another.
    NotReadable,
}

/// Records what a task waits on: its syscall, the file and the timeout that the syscall names, its
/// cgroup.
#[inline(always)]
pub fn record_syscall_and_file(
    record: &mut WaitRecord,
    task: Task,
    registers: Registers,
    memory: UserMemory,
) {
    task.syscall(registers, &mut record.syscall);
    record.timeout_ns = NO_TIMEOUT;
    record.kernel_stack = NO_STACK;
    let entry = syscall::table_entry(&record.syscall);
    let descriptor = syscall::descriptor(&record.syscall, entry);
    if memory == UserMemory::NotReadable {
        record.cgroup = task.cgroup();
        if let Some(file) = descriptor.and_then(|descriptor| file::read_inode(task, descriptor)) {
            record.file = file;
            record.wait_flags |= wait_flags::HAS_FILE;
        }
        return;
    }
    record.cgroup = current_cgroup();
    if let Some(descriptor) = descriptor
        && read_current_inode(descriptor, &raw mut record.file) != 0
    {
        record.wait_flags |= wait_flags::HAS_FILE;
    }
    if let Some(polled) = syscall::polled_file(&record.syscall, entry)
        && read_current_inode(polled as u32, &raw mut record.file) != 0
    {
        record.polled_fd = polled as u32;
        record.polled_events = (polled >> 32) as u32;
        record.wait_flags |= wait_flags::POLLS_ONE_FILE;
    }
    record.timeout_ns = syscall::timeout(&record.syscall, entry);
}
