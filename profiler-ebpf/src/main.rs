//! The kernel half: what runs inside the kernel at every switch, wake and interrupt.
//!
//! Entry points only; the bodies are in `programs/`. It is compiled for BPF by `cargo xtask build`
//! and is empty on any other target.

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
        macros::{btf_tracepoint, perf_event},
        programs::{BtfTracePointContext, PerfEventContext},
    };
    use profiler_ebpf::record::system_vector;

    use crate::programs::{
        code_epoch, context, lifecycle, sample, survey, switch, task::Task, waking,
    };

    /// `(bool preempt, prev, next[, unsigned int prev_state])`, the last since 5.18:
    /// <https://github.com/torvalds/linux/blob/v6.12/include/trace/events/sched.h#L220>
    #[btf_tracepoint(function = "sched_switch")]
    fn sched_switch(ctx: BtfTracePointContext) -> i32 {
        let prev = Task::from_arg(ctx.arg(1));
        let next = Task::from_arg(ctx.arg(2));
        switch::switched(ctx.as_ptr(), ctx.arg::<u64>(0) & 1, prev, next);
        0
    }

    #[btf_tracepoint(function = "sched_waking")]
    fn sched_waking(ctx: BtfTracePointContext) -> i32 {
        waking::waking(ctx.as_ptr(), Task::from_arg(ctx.arg(0)));
        0
    }

    #[btf_tracepoint(function = "sched_wakeup_new")]
    fn sched_wakeup_new(ctx: BtfTracePointContext) -> i32 {
        waking::newborn(ctx.as_ptr(), Task::from_arg(ctx.arg(0)));
        0
    }

    #[btf_tracepoint(function = "sched_migrate_task")]
    fn sched_migrate_task(ctx: BtfTracePointContext) -> i32 {
        switch::migrated(Task::from_arg(ctx.arg(0)));
        0
    }

    #[btf_tracepoint(function = "sched_process_fork")]
    fn sched_process_fork(ctx: BtfTracePointContext) -> i32 {
        lifecycle::forked(Task::from_arg(ctx.arg(0)), Task::from_arg(ctx.arg(1)));
        0
    }

    #[btf_tracepoint(function = "sched_process_exec")]
    fn sched_process_exec(ctx: BtfTracePointContext) -> i32 {
        lifecycle::execed(Task::from_arg(ctx.arg(0)));
        0
    }

    #[btf_tracepoint(function = "sched_process_exit")]
    fn sched_process_exit(ctx: BtfTracePointContext) -> i32 {
        lifecycle::exiting(Task::from_arg(ctx.arg(0)));
        0
    }

    /// `(unsigned long addr, struct vm_unmapped_area_info *info)`, since 5.7: room for what a program
    /// does not map to a certain address.
    ///
    /// <https://github.com/torvalds/linux/blob/v6.12/include/trace/events/mmap.h#L10>
    #[btf_tracepoint(function = "vm_unmapped_area")]
    fn vm_unmapped_area(_ctx: BtfTracePointContext) -> i32 {
        code_epoch::room_is_wanted();
        0
    }

    #[btf_tracepoint(function = "task_rename")]
    fn task_rename(ctx: BtfTracePointContext) -> i32 {
        lifecycle::renamed(Task::from_arg(ctx.arg(0)), ctx.arg(1));
        0
    }

    #[btf_tracepoint(function = "softirq_entry")]
    fn softirq_entry(ctx: BtfTracePointContext) -> i32 {
        context::enter_softirq(ctx.arg::<u64>(0) as u32);
        0
    }

    #[btf_tracepoint(function = "softirq_exit")]
    fn softirq_exit(_ctx: BtfTracePointContext) -> i32 {
        context::leave_softirq();
        0
    }

    #[btf_tracepoint(function = "irq_handler_entry")]
    fn irq_handler_entry(ctx: BtfTracePointContext) -> i32 {
        context::enter_hardirq(ctx.arg::<u64>(0) as u32);
        0
    }

    #[btf_tracepoint(function = "irq_handler_exit")]
    fn irq_handler_exit(_ctx: BtfTracePointContext) -> i32 {
        context::leave_hardirq();
        0
    }

    #[btf_tracepoint(function = "hrtimer_expire_entry")]
    fn hrtimer_expire_entry(_ctx: BtfTracePointContext) -> i32 {
        context::enter_hrtimer();
        0
    }

    #[btf_tracepoint(function = "hrtimer_expire_exit")]
    fn hrtimer_expire_exit(_ctx: BtfTracePointContext) -> i32 {
        context::leave_hrtimer();
        0
    }

    #[btf_tracepoint(function = "local_timer_entry")]
    fn local_timer_entry(_ctx: BtfTracePointContext) -> i32 {
        context::enter_system(system_vector::LOCAL_TIMER);
        0
    }

    #[btf_tracepoint(function = "local_timer_exit")]
    fn local_timer_exit(_ctx: BtfTracePointContext) -> i32 {
        context::leave_system();
        0
    }

    #[btf_tracepoint(function = "call_function_entry")]
    fn call_function_entry(_ctx: BtfTracePointContext) -> i32 {
        context::enter_system(system_vector::CALL_FUNCTION);
        0
    }

    #[btf_tracepoint(function = "call_function_exit")]
    fn call_function_exit(_ctx: BtfTracePointContext) -> i32 {
        context::leave_system();
        0
    }

    #[btf_tracepoint(function = "call_function_single_entry")]
    fn call_function_single_entry(_ctx: BtfTracePointContext) -> i32 {
        context::enter_system(system_vector::CALL_FUNCTION);
        0
    }

    #[btf_tracepoint(function = "call_function_single_exit")]
    fn call_function_single_exit(_ctx: BtfTracePointContext) -> i32 {
        context::leave_system();
        0
    }

    #[btf_tracepoint(function = "irq_work_entry")]
    fn irq_work_entry(_ctx: BtfTracePointContext) -> i32 {
        context::enter_system(system_vector::IRQ_WORK);
        0
    }

    #[btf_tracepoint(function = "irq_work_exit")]
    fn irq_work_exit(_ctx: BtfTracePointContext) -> i32 {
        context::leave_system();
        0
    }

    #[perf_event]
    fn clock(ctx: PerfEventContext) -> u32 {
        sample::struck(ctx.as_ptr());
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
            survey::looked_at(&survey::Context(ctx), Task::from_arg(task));
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
