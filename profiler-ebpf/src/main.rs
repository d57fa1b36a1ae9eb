//! The kernel half: the BPF programs that run at every switch, wake and interrupt.
//!
//! This file has the entry points; what they do is in `programs/`:
//!
//! | program, named after its tracepoint | its body in `programs/` |
//! |---|---|
//! | `sched_switch` | `switch::on_switch` |
//! | `sched_waking` | `waking::on_waking` |
//! | `sched_wakeup_new` | `waking::on_wakeup_new` |
//! | `sched_migrate_task` | `switch::on_migrate` |
//! | `sched_process_fork` | `lifecycle::on_fork` |
//! | `sched_process_exec` | `lifecycle::on_exec` |
//! | `sched_process_exit` | `lifecycle::on_exit` |
//! | `task_rename` | `lifecycle::on_rename` |
//! | `vm_unmapped_area` | `code_epoch::on_vm_unmapped_area` |
//! | `softirq_entry`, `softirq_exit` | `interrupt_context::enter_softirq`, `leave_softirq` |
//! | `irq_handler_entry`, `irq_handler_exit` | `interrupt_context::enter_hardirq`, `leave_hardirq` |
//! | `hrtimer_expire_entry`, `hrtimer_expire_exit` | `enter_hrtimer`, `leave_hrtimer` |
//! | `local_timer_entry`, `local_timer_exit` | `enter_system`, `leave_system` |
//! | `call_function_entry`, `call_function_exit` | `enter_system`, `leave_system` |
//! | `call_function_single_entry`, `call_function_single_exit` | `enter_system`, `leave_system` |
//! | `irq_work_entry`, `irq_work_exit` | `enter_system`, `leave_system` |
//! | `clock`, a perf event | `sample::on_clock_tick` |
//! | `block_bio_queue`, `writeback_dirty_folio` | `disk_use::on_submit`, `on_dirty_folio` |
//! | `posix_lock_inode`, `flock_lock_inode` | `file_lock::on_lock` |
//! | `faccessat2`, a function, else `sys_enter` | `marker::on_faccessat2` |
//! | `marker_probe`, wherever the user says | `marker::on_probe` |
//! | `tg_throttle_down`, `tg_unthrottle_up`, functions | `throttle::on_throttle`, `on_unthrottle` |
//! | `survey`, a task iterator | `survey::survey_thread` |
//!
//! What each does:
//!
//! - `sched_switch` opens a wait or a preemption of the thread that leaves the CPU, with its syscall,
//!   file and stacks, and sends the one of the thread that comes to the CPU.
//! - `sched_waking` adds the waker to the wakee's open wait: its context, syscall, file and stacks.
//! - `sched_wakeup_new` opens the first wait of a new thread, which the thread that created it ends.
//! - `sched_migrate_task` adds when the thread was moved to another CPU's queue.
//! - `sched_process_fork`, `sched_process_exec` and `task_rename` send the thread's properties;
//!   children of target processes become part of the target, and an exec begins an epoch of code.
//! - `sched_process_exit` takes the thread out of the target.
//! - `vm_unmapped_area` begins an epoch of a process's code when it maps what may be code.
//! - The programs at interrupts keep in which interrupt the CPU is, so that a wake from it is not
//!   blamed on the task below.
//! - `tg_throttle_down` and `tg_unthrottle_up` keep when CPU quotas were used up and refilled.
//! - `block_bio_queue` and `writeback_dirty_folio` count what each process reads from block devices,
//!   and writes to them.
//! - `posix_lock_inode` and `flock_lock_inode` send who was refused a lock on a file, who had it, and who had it next.
//! - `faccessat2` or `sys_enter` sends the markers that programs set in their own code, and
//!   `marker_probe` those that functions and probes of programs are.
//! - `clock` sends the stacks of the thread that is on the CPU.
//! - `survey` sends every thread's properties and open waits as the window opens, as it closes, and
//!   for a snapshot. Before the window it also finds the target's children.
//!
//! What happens between a switch-out and the switch-in is kept in a `TaskLocal` for each thread
//! (`task_local.rs`). Stacks are found in `kernel_stack_cache.rs` and `user_stack_copy.rs`, or
//! walked by `stack.rs`. Every map is in `maps.rs`.
//!
//! The programs are compiled for BPF by `cargo xtask build`; on any other target this is empty.

#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

#[cfg(target_arch = "bpf")]
mod programs;

/// Lets a host build of the whole workspace pass.
#[cfg(not(target_arch = "bpf"))]
fn main() {}

#[cfg(target_arch = "bpf")]
mod entry {
    use core::ffi::c_void;

    use aya_ebpf::{
        EbpfContext as _,
        helpers::generated::bpf_get_attach_cookie,
        macros::{btf_tracepoint, fentry, perf_event, uprobe},
        programs::{BtfTracePointContext, FEntryContext, PerfEventContext, ProbeContext},
    };
    use profiler_ebpf::{marker::FACCESSAT2, record::system_vector, run_costs::Group};

    use crate::programs::{
        code_epoch, disk_use,
        file_lock::{self, Owner},
        interrupt_context, lifecycle, marker, run_costs, sample, survey, switch,
        task::{Registers, Task},
        throttle, waking,
    };

    /// `(bool preempt, prev, next[, unsigned int prev_state])`, the last since 5.18:
    /// <https://github.com/torvalds/linux/blob/v6.12/include/trace/events/sched.h#L220>
    #[btf_tracepoint(function = "sched_switch")]
    fn sched_switch(ctx: BtfTracePointContext) -> i32 {
        let prev = Task::from_arg(ctx.arg(1));
        let next = Task::from_arg(ctx.arg(2));
        run_costs::sample(Group::Switch, || {
            switch::on_switch(ctx.as_ptr(), ctx.arg::<u64>(0) & 1, prev, next)
        });
        0
    }

    #[btf_tracepoint(function = "sched_waking")]
    fn sched_waking(ctx: BtfTracePointContext) -> i32 {
        run_costs::sample(Group::Waking, || {
            waking::on_waking(ctx.as_ptr(), Task::from_arg(ctx.arg(0)))
        });
        0
    }

    #[btf_tracepoint(function = "sched_wakeup_new")]
    fn sched_wakeup_new(ctx: BtfTracePointContext) -> i32 {
        run_costs::time(Group::NewThread, || {
            waking::on_wakeup_new(ctx.as_ptr(), Task::from_arg(ctx.arg(0)))
        });
        0
    }

    #[btf_tracepoint(function = "sched_migrate_task")]
    fn sched_migrate_task(ctx: BtfTracePointContext) -> i32 {
        switch::on_migrate(Task::from_arg(ctx.arg(0)));
        0
    }

    #[btf_tracepoint(function = "sched_process_fork")]
    fn sched_process_fork(ctx: BtfTracePointContext) -> i32 {
        run_costs::time(Group::Life, || {
            lifecycle::on_fork(Task::from_arg(ctx.arg(0)), Task::from_arg(ctx.arg(1)))
        });
        0
    }

    #[btf_tracepoint(function = "sched_process_exec")]
    fn sched_process_exec(ctx: BtfTracePointContext) -> i32 {
        run_costs::time(Group::Life, || {
            lifecycle::on_exec(Task::from_arg(ctx.arg(0)), ctx.arg::<u64>(1) as u32)
        });
        0
    }

    #[btf_tracepoint(function = "sched_process_exit")]
    fn sched_process_exit(ctx: BtfTracePointContext) -> i32 {
        run_costs::time(Group::Life, || lifecycle::on_exit(Task::from_arg(ctx.arg(0))));
        0
    }

    /// `(struct bio *bio)`, since 5.11:
    /// <https://github.com/torvalds/linux/blob/v6.12/include/trace/events/block.h#L401>
    #[btf_tracepoint(function = "block_bio_queue")]
    fn block_bio_queue(ctx: BtfTracePointContext) -> i32 {
        run_costs::sample(Group::Disk, || disk_use::on_submit(ctx.arg(0)));
        0
    }

    /// `(struct folio *folio, struct address_space *mapping)`, since 5.18; before, there is
    /// `writeback_dirty_page` with a page:
    /// <https://github.com/torvalds/linux/blob/v6.12/include/trace/events/writeback.h#L98>
    #[btf_tracepoint(function = "writeback_dirty_folio")]
    fn writeback_dirty_folio(ctx: BtfTracePointContext) -> i32 {
        run_costs::sample(Group::Disk, || disk_use::on_dirty_folio(ctx.arg(0), ctx.arg(1)));
        0
    }

    /// `(struct inode *inode, struct file_lock *fl, int ret)`:
    /// <https://github.com/torvalds/linux/blob/v6.12/include/trace/events/filelock.h#L109>
    #[btf_tracepoint(function = "posix_lock_inode")]
    fn posix_lock_inode(ctx: BtfTracePointContext) -> i32 {
        run_costs::sample(Group::FileLock, || {
            let result = ctx.arg::<u64>(2) as i32;
            file_lock::on_lock(ctx.arg(0), ctx.arg(1), result, Owner::Process)
        });
        0
    }

    /// The same arguments.
    #[btf_tracepoint(function = "flock_lock_inode")]
    fn flock_lock_inode(ctx: BtfTracePointContext) -> i32 {
        run_costs::sample(Group::FileLock, || {
            let result = ctx.arg::<u64>(2) as i32;
            file_lock::on_lock(ctx.arg(0), ctx.arg(1), result, Owner::OpenFile)
        });
        0
    }

    /// `(unsigned long addr, struct vm_unmapped_area_info *info)`, since 5.7: the kernel
    /// looks for an address for what a program maps without giving one.
    ///
    /// <https://github.com/torvalds/linux/blob/v6.12/include/trace/events/mmap.h#L10>
    #[btf_tracepoint(function = "vm_unmapped_area")]
    fn vm_unmapped_area(_ctx: BtfTracePointContext) -> i32 {
        code_epoch::on_vm_unmapped_area();
        0
    }

    #[btf_tracepoint(function = "task_rename")]
    fn task_rename(ctx: BtfTracePointContext) -> i32 {
        run_costs::time(Group::Life, || {
            lifecycle::on_rename(Task::from_arg(ctx.arg(0)), ctx.arg(1))
        });
        0
    }

    #[btf_tracepoint(function = "softirq_entry")]
    fn softirq_entry(ctx: BtfTracePointContext) -> i32 {
        run_costs::sample(Group::Interrupt, || {
            interrupt_context::enter_softirq(ctx.arg::<u64>(0) as u32)
        });
        0
    }

    #[btf_tracepoint(function = "softirq_exit")]
    fn softirq_exit(_ctx: BtfTracePointContext) -> i32 {
        interrupt_context::leave_softirq();
        0
    }

    #[btf_tracepoint(function = "irq_handler_entry")]
    fn irq_handler_entry(ctx: BtfTracePointContext) -> i32 {
        run_costs::sample(Group::Interrupt, || {
            interrupt_context::enter_hardirq(ctx.arg::<u64>(0) as u32)
        });
        0
    }

    #[btf_tracepoint(function = "irq_handler_exit")]
    fn irq_handler_exit(_ctx: BtfTracePointContext) -> i32 {
        interrupt_context::leave_hardirq();
        0
    }

    #[btf_tracepoint(function = "hrtimer_expire_entry")]
    fn hrtimer_expire_entry(ctx: BtfTracePointContext) -> i32 {
        run_costs::sample(Group::Interrupt, || {
            interrupt_context::enter_hrtimer(ctx.arg::<*const c_void>(0))
        });
        0
    }

    #[btf_tracepoint(function = "hrtimer_expire_exit")]
    fn hrtimer_expire_exit(_ctx: BtfTracePointContext) -> i32 {
        interrupt_context::leave_hrtimer();
        0
    }

    #[btf_tracepoint(function = "local_timer_entry")]
    fn local_timer_entry(_ctx: BtfTracePointContext) -> i32 {
        run_costs::sample(Group::Interrupt, || {
            interrupt_context::enter_system(system_vector::LOCAL_TIMER)
        });
        0
    }

    #[btf_tracepoint(function = "local_timer_exit")]
    fn local_timer_exit(_ctx: BtfTracePointContext) -> i32 {
        interrupt_context::leave_system();
        0
    }

    #[btf_tracepoint(function = "call_function_entry")]
    fn call_function_entry(_ctx: BtfTracePointContext) -> i32 {
        run_costs::sample(Group::Interrupt, || {
            interrupt_context::enter_system(system_vector::CALL_FUNCTION)
        });
        0
    }

    #[btf_tracepoint(function = "call_function_exit")]
    fn call_function_exit(_ctx: BtfTracePointContext) -> i32 {
        interrupt_context::leave_system();
        0
    }

    #[btf_tracepoint(function = "call_function_single_entry")]
    fn call_function_single_entry(_ctx: BtfTracePointContext) -> i32 {
        run_costs::sample(Group::Interrupt, || {
            interrupt_context::enter_system(system_vector::CALL_FUNCTION)
        });
        0
    }

    #[btf_tracepoint(function = "call_function_single_exit")]
    fn call_function_single_exit(_ctx: BtfTracePointContext) -> i32 {
        interrupt_context::leave_system();
        0
    }

    #[btf_tracepoint(function = "irq_work_entry")]
    fn irq_work_entry(_ctx: BtfTracePointContext) -> i32 {
        run_costs::sample(Group::Interrupt, || {
            interrupt_context::enter_system(system_vector::IRQ_WORK)
        });
        0
    }

    #[btf_tracepoint(function = "irq_work_exit")]
    fn irq_work_exit(_ctx: BtfTracePointContext) -> i32 {
        interrupt_context::leave_system();
        0
    }

    /// `static int tg_throttle_down(struct task_group *tg, void *data)`, where `data` is the
    /// `struct rq`:
    /// <https://github.com/torvalds/linux/blob/v6.12/kernel/sched/fair.c>
    #[fentry(function = "tg_throttle_down")]
    fn tg_throttle_down(ctx: FEntryContext) -> i32 {
        throttle::on_throttle(ctx.arg(0), ctx.arg(1));
        0
    }

    /// The same arguments.
    #[fentry(function = "tg_unthrottle_up")]
    fn tg_unthrottle_up(ctx: FEntryContext) -> i32 {
        throttle::on_unthrottle(ctx.arg(0), ctx.arg(1));
        0
    }

    /// `long __x64_sys_faccessat2(const struct pt_regs *regs)`, or the same of another machine: the loader
    /// says which function that is.
    /// <https://github.com/torvalds/linux/blob/v6.12/arch/x86/include/asm/syscall_wrapper.h#L75>
    #[fentry(function = "__x64_sys_faccessat2")]
    fn faccessat2(ctx: FEntryContext) -> i32 {
        marker::on_faccessat2(Registers::from_arg(ctx.arg(0)));
        0
    }

    /// `(struct pt_regs *regs, long id)`, at every syscall of the machine: attached only if the user wants
    /// markers whatever they cost.
    /// <https://github.com/torvalds/linux/blob/v6.12/include/trace/events/syscalls.h#L17>
    #[btf_tracepoint(function = "sys_enter")]
    fn sys_enter(ctx: BtfTracePointContext) -> i32 {
        if ctx.arg::<u64>(1) == FACCESSAT2 && !Task::current().is_in_compat_syscall() {
            marker::on_faccessat2(Registers::from_arg(ctx.arg(0)));
        }
        0
    }

    /// At instructions of programs: it is attached to all of them, and each says which it is.
    #[uprobe]
    fn marker_probe(ctx: ProbeContext) -> u32 {
        // SAFETY: the context is what the kernel calls with; the helper reads what is kept beside it.
        marker::on_probe(unsafe { bpf_get_attach_cookie(ctx.as_ptr()) });
        0
    }

    #[perf_event]
    fn clock(ctx: PerfEventContext) -> u32 {
        run_costs::time(Group::Clock, || sample::on_clock_tick(ctx.as_ptr()));
        0
    }

    /// `struct bpf_iter__task { meta; task }`; the task is null once, at the end.
    ///
    /// <https://github.com/torvalds/linux/blob/v6.12/kernel/bpf/task_iter.c#L159>
    #[unsafe(no_mangle)]
    #[unsafe(link_section = "iter/task")]
    extern "C" fn survey(ctx: *mut c_void) -> i32 {
        // SAFETY: the kernel calls with a pointer to the two fields named above.
        let task = unsafe { ctx.cast::<*const c_void>().add(1).read_volatile() };
        if !task.is_null() {
            survey::survey_thread(&survey::IteratorContext(ctx), Task::from_arg(task));
        }
        0
    }
}

#[cfg(target_arch = "bpf")]
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

/// A panic that can be reached is an endless loop, and the verifier refuses that.
#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
