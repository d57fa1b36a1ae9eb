//! `sched_waking` and `sched_wakeup_new`: a wait is ended. Both run where the waker runs;
//! `sched_wakeup` would run on the CPU that the wakee goes to, and name a bystander.
//! <https://github.com/torvalds/linux/commit/fbd705a0c6184580d0e2fbcbd47a37b6e5822511>

use core::{ffi::c_void, ptr};

use profiler_ebpf::{
    loss::Loss,
    record::{
        NO_SEQ, NO_STACK, NO_SYSCALL, NO_TIMEOUT, Wake, phase, thread_flags, wait_flags,
        wake_context, wake_flags,
    },
    run_queue_clock::RunQueueClock,
    stack_counts::StackKind,
};

use super::{
    budget::{self, Need},
    code_epoch,
    current_task::{current_user_half, read_current_inode},
    detail, epoll, file, interrupt_context,
    kernel_stack_cache::{self, KernelStackCache, Waker, WakesFrom},
    register_cache::RegisterKey,
    ring::{count_loss, cpu, now},
    stack::{self, Scratch},
    sums, switch, syscall, tags, target,
    task::{Registers, Task, is_interruptible},
    task_address::TaskAddress,
    task_local::{self, TaskLocal},
    user_stack_copy,
};

/// `NET_TX_SOFTIRQ` and `NET_RX_SOFTIRQ`:
/// <https://github.com/torvalds/linux/blob/v6.12/include/linux/interrupt.h#L551>
const NET_TX_SOFTIRQ: u16 = 2;
const NET_RX_SOFTIRQ: u16 = 3;

/// `sched_waking`: `wakee` is about to be woken by what runs here.
#[inline(always)]
pub fn on_waking(ctx: *mut c_void, wakee: Task) {
    if wakee.tid() == 0 || target::is_profiler(wakee) {
        return;
    }
    let Some(local) = task_local::find(wakee) else {
        if task_local::has_room_for(wakee) {
            count_loss(Loss::WakeUnmatched);
        }
        return;
    };
    if !target::is_in_scope(local.thread_flags) {
        return;
    }
    let now = now();
    match local.phase {
        // The first wake that comes while the thread is off the CPU ends its wait, and there can be
        // no second: the state no longer matches. A wake from before the switch-out is overwritten.
        phase::BLOCKED if local.record.wake.ns > local.record.off_ns => {}
        phase::BLOCKED if is_late(local) && sums::is_short_so_far(local, now) => {
            sums::note_wake(local, now);
        }
        phase::BLOCKED => {
            if is_late(local) {
                switch::read_late(local, wakee);
            }
            // The reader or the writer of a pipe is woken by somebody who uses the same pipe.
            let is_on_pipe = local.record.wait_flags & wait_flags::HAS_FILE != 0
                && file::is_pipe(&local.record.file);
            let file = if is_on_pipe { WakerFile::SameAsWakee } else { WakerFile::Unknown };
            record_waker(ctx, local, wakee, file, now);
            let record = &mut local.record;
            if detail::takes_stacks()
                && record.kernel_stack == NO_STACK
                && record.wait_flags & wait_flags::KERNEL_STACK_FAILED == 0
            {
                record.kernel_stack = budget::walk(Need::WithinBudget, now, || {
                    stack::walk_blocked(wakee, Scratch::Waking)
                })
                .or_flag(&mut record.wait_flags, wait_flags::KERNEL_STACK_FAILED);
            }
        }
        // The wakee is still on the CPU, perhaps about to sleep: its next switch-in decides whether
        // this wake counts.
        phase::ON_CPU if detail::is_late() => sums::note_wake(local, now),
        phase::ON_CPU => record_waker(ctx, local, wakee, WakerFile::Unknown, now),
        _ => {}
    }
}

/// `sched_wakeup_new`: `child` is woken for the first time, by the task that created it.
#[inline(always)]
pub fn on_wakeup_new(ctx: *mut c_void, child: Task) {
    if target::is_profiler(child) {
        return;
    }
    let Some(local) = task_local::find_or_create(child) else { return };
    if !target::is_in_scope(local.thread_flags) {
        return;
    }
    let now = now();
    let address = TaskAddress::from_task(child, local);
    let record = &mut local.record;
    record.tid = child.tid();
    record.tgid = child.tgid();
    record.wait_flags = wait_flags::NEWBORN;
    record.off_ns = now;
    record.migrated_ns = 0;
    record.state = 0;
    record.cpus = cpu();
    record.syscall.number = NO_SYSCALL;
    record.syscall.thread_flags = local.thread_flags;
    record.timeout_ns = NO_TIMEOUT;
    record.cgroup = address.cgroup();
    record.user_stack = NO_STACK;
    record.kernel_stack = NO_STACK;
    record_creator(ctx, local, now);
    local.is_late = 0;
    local.phase = phase::BLOCKED;
}

/// Adds the thread that created a thread to that one's first wait. It is always the current task, in
/// its own syscall, and its kernel stack is walked: that is 2 us of a `clone` of 30 us or more, and
/// without the cache of kernel stacks the kernel verifies the program three times as fast.
#[inline(always)]
fn record_creator(ctx: *mut c_void, local: &mut TaskLocal, now: u64) {
    let current = Task::current();
    let registers = current.registers();
    let wake: &mut Wake = &mut local.record.wake;
    begin_wake(wake, current, wake_context::TASK, 0);
    record_syscall(wake, current, registers);
    let mut creator = if target::is_profiler(current) { None } else { task_local::find(current) };
    if detail::takes_waker_stacks(0) {
        wake.kernel_stack = stack::walk_kernel(ctx, Scratch::Waking)
            .or_flag(&mut wake.flags, wake_flags::KERNEL_STACK_FAILED);
        if current_user_half() != 0 {
            let epoch = code_epoch::current_epoch(wake.tgid);
            let key = RegisterKey::for_user(registers, epoch, wake.syscall.number);
            let user = match creator.as_deref_mut() {
                Some(creator) => {
                    let cache = &mut creator.stack_cache;
                    user_stack_copy::capture(ctx, StackKind::WakeUser, Some(cache), key, now)
                }
                None => user_stack_copy::capture(ctx, StackKind::WakeUser, None, key, now),
            };
            wake.user_stack = user.or_flag(&mut wake.flags, wake_flags::USER_STACK_FAILED);
        }
    }
    if let Some(creator) = creator {
        tags::check(creator, Scratch::Waking, now);
        local.record.wake.current_seq = update_waker(creator, current, now);
        task_local::report_distrust(creator, current);
    }
    local.record.wake.ns = now;
}

/// Begins the record of a wake with who wakes, and in what context.
#[inline(always)]
fn begin_wake(wake: &mut Wake, current: Task, context: u16, vector: u16) {
    wake.tid = current.tid();
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
}

/// Records the syscall that the current task wakes in.
#[inline(always)]
fn record_syscall(wake: &mut Wake, current: Task, registers: Registers) {
    if current.is_kernel_thread() {
        wake.syscall.thread_flags = thread_flags::KERNEL;
    }
    current.syscall(registers, &mut wake.syscall);
}

/// What is known of the waker's file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WakerFile {
    /// It is the file that the wakee waits on, and need not be read.
    SameAsWakee,
    /// It can be any.
    Unknown,
}

/// Adds the waker to a thread's wait: the current task, in what context it wakes, its syscall, file
/// and stacks.
#[inline(always)]
fn record_waker(ctx: *mut c_void, local: &mut TaskLocal, wakee: Task, file: WakerFile, now: u64) {
    let current = Task::current();
    let registers = current.registers();
    let (context, mut vector) = interrupt_context::current_context(ctx, current, registers);
    if context == wake_context::HRTIMER {
        vector = interrupt_context::hrtimer_vector(wakee);
    }
    let tid = current.tid();
    let wait_key = find_wait_key(local);
    let takes_stacks = detail::takes_waker_stacks(waited_ns(local, now));
    let wake: &mut Wake = &mut local.record.wake;
    begin_wake(wake, current, context, vector);
    let is_task = context == wake_context::TASK;
    // A softirq may run inside a local sender's own send, and only its stack shows that: the stack
    // is needed to name the sender even where no stacks are recorded.
    let is_packet =
        context == wake_context::SOFTIRQ && (vector == NET_RX_SOFTIRQ || vector == NET_TX_SOFTIRQ);
    let may_be_sender = is_packet && tid != 0;
    if is_task || may_be_sender {
        record_syscall(wake, current, registers);
        if file == WakerFile::Unknown {
            let entry = syscall::table_entry(&wake.syscall);
            if let Some(descriptor) = syscall::descriptor(&wake.syscall, entry)
                && read_current_inode(descriptor, &raw mut wake.file) != 0
            {
                wake.flags |= wake_flags::HAS_FILE;
            }
        }
        let mut waker_local =
            if tid == 0 || target::is_profiler(current) { None } else { task_local::find(current) };
        if tid != 0 && (takes_stacks || may_be_sender) {
            let from = if is_task { WakesFrom::Task } else { WakesFrom::Softirq };
            let waker = Waker { task: current, registers, from };
            // Apart: the verifier refuses an offset to a pointer that may be null, which is what the
            // compiler makes of an optional cache in an optional `TaskLocal`.
            match waker_local.as_deref_mut() {
                Some(local) => {
                    let cache = &mut local.stack_cache;
                    record_waker_stacks(ctx, wake, waker, cache, wait_key, now);
                }
                None => record_untracked_waker_stacks(ctx, wake, now),
            }
        }
        if let Some(waker_local) = waker_local {
            if is_task {
                tags::check(waker_local, Scratch::Waking, now);
            }
            local.record.wake.current_seq = update_waker(waker_local, current, now);
            task_local::report_distrust(waker_local, current);
        }
    }
    if is_packet && tid == 0 {
        record_packet_stack(ctx, &mut local.record.wake);
    }
    if is_packet
        && local.phase == phase::BLOCKED
        && !is_sending(&local.record.wake)
        && syscall::waits_for_epoll(&local.record.syscall)
    {
        epoll::record_ready_file(wakee, &mut local.record);
    }
    local.record.wake.ns = read_wake_time(local, now);
}

/// When a wake ends the wakee's wait: as this program began, unless the wakee has left its CPU since.
/// The kernel then wakes it after this program, from the wait that it is in by now, which was 9 ms long
/// where a virtual machine stopped the waker's CPU meanwhile.
///
/// ```text
/// waker   --[ sched_waking ....... stopped ....... ]--+ the wakee is put in line
///            ^ now                                 ^ returned
/// wakee   on its CPU -----| asleep                    | runnable
/// ```
#[inline(always)]
fn read_wake_time(local: &TaskLocal, begun: u64) -> u64 {
    // SAFETY: what a reference refers to can be read. Another CPU may have changed it.
    let off_ns = unsafe { ptr::read_volatile(&raw const local.record.off_ns) };
    if off_ns > begun { now() } else { begun }
}

/// Whether it has not been read what a thread waits for.
#[inline(always)]
fn is_late(local: &TaskLocal) -> bool {
    detail::is_adjustable() && local.is_late != 0
}

/// How long the wait has lasted that ends now; 0 of a thread that has not left its CPU yet.
#[inline(always)]
fn waited_ns(local: &TaskLocal, now: u64) -> u64 {
    if local.phase == phase::BLOCKED { now.wrapping_sub(local.record.off_ns) } else { 0 }
}

/// Whether the current task may be sending what ends a wait: it is in a syscall on a socket.
#[inline(always)]
fn is_sending(wake: &Wake) -> bool {
    wake.flags & wake_flags::HAS_FILE != 0 && file::is_socket(&wake.file)
}

/// Records the stack of a network softirq that runs over the idle task: it tells whether a packet
/// came from a device's driver or from this machine.
#[inline(never)]
fn record_packet_stack(ctx: *mut c_void, wake: &mut Wake) {
    wake.kernel_stack = stack::walk_kernel(ctx, Scratch::Waking)
        .or_flag(&mut wake.flags, wake_flags::KERNEL_STACK_FAILED);
}

/// What the kernel stack of who ends a wait depends on, as far as the wait tells; 0 if it tells too
/// little, as that of a thread does that has not left its CPU yet.
#[inline(always)]
fn find_wait_key(local: &TaskLocal) -> u64 {
    let record = &local.record;
    if local.phase != phase::BLOCKED
        || record.kernel_stack == NO_STACK
        || !is_interruptible(record.state)
    {
        return 0;
    }
    record.kernel_stack ^ u64::from(record.syscall.number as u32) << 32 ^ u64::from(record.state)
}

/// Records both halves of the stack of a waker, whose cache this is.
#[inline(always)]
fn record_waker_stacks(
    ctx: *mut c_void,
    wake: &mut Wake,
    waker: Waker,
    cache: &mut KernelStackCache,
    wait_key: u64,
    now: u64,
) {
    let number = wake.syscall.number;
    let epoch = code_epoch::current_epoch(wake.tgid);
    let user_key = RegisterKey::for_user(waker.registers, epoch, number);
    let kernel_key = if wait_key == 0 { RegisterKey::NONE } else { user_key.with(wait_key) };
    let kernel = kernel_stack_cache::capture_waker(ctx, cache, waker, number, kernel_key, now);
    wake.kernel_stack = kernel.or_flag(&mut wake.flags, wake_flags::KERNEL_STACK_FAILED);
    if detail::takes_stacks() && current_user_half() != 0 {
        const KIND: StackKind = StackKind::WakeUser;
        let user = user_stack_copy::capture(ctx, KIND, Some(cache), user_key, now);
        wake.user_stack = user.or_flag(&mut wake.flags, wake_flags::USER_STACK_FAILED);
    }
}

/// Records both halves of the stack of a waker that is not tracked, and has no cache. Inlined: on 6.1
/// one call more takes more stack than there is.
#[inline(always)]
fn record_untracked_waker_stacks(ctx: *mut c_void, wake: &mut Wake, now: u64) {
    wake.kernel_stack = stack::walk_kernel(ctx, Scratch::Waking)
        .or_flag(&mut wake.flags, wake_flags::KERNEL_STACK_FAILED);
    if detail::takes_stacks() && current_user_half() != 0 {
        const KIND: StackKind = StackKind::WakeUser;
        let user = user_stack_copy::capture(ctx, KIND, None, RegisterKey::NONE, now);
        wake.user_stack = user.or_flag(&mut wake.flags, wake_flags::USER_STACK_FAILED);
    }
}

/// Updates what is kept for the waker: it is on a CPU, and its properties are sent if user space
/// does not know them, as of a waker that has never waited. Returns the number of its newest
/// record.
#[inline(always)]
fn update_waker(local: &mut TaskLocal, current: Task, now: u64) -> u32 {
    // In this order: only after the first call is the number that of a thread on the CPU.
    switch::mark_on_cpu(local, current, RunQueueClock::Stale, now);
    task_local::send_thread_info_once(local, current, phase::ON_CPU);
    local.seq
}
