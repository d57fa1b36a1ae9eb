//! In which interrupt each CPU is, so that a wake from an interrupt is never blamed on the task
//! that happened to be running.
//!
//! The tracepoint at an interrupt's entry sets it, the one at its exit clears it. Nesting is not
//! counted, as the programs may be attached while a CPU is inside an interrupt. A CPU that switches
//! is in no interrupt, so the switch clears everything, in case an exit was not seen.

use core::{ffi::c_void, ptr};

use profiler_ebpf::record::{hrtimer_vector, system_vector, wake_context};

use super::{
    maps::INTERRUPT_CONTEXTS,
    task::{Registers, Task},
};

/// The interrupts that one CPU is in: for each kind 0 if the CPU is in none, else the number plus
/// one; of a high-resolution timer's callback, the timer's address.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct InterruptContext {
    softirq: u32,
    hardirq: u32,
    system: u32,
    /// Not 0 if the offset of this CPU's run queue's clock was learned at a switch since the last tick
    /// of the sampling clock. It is here because each switch writes these lines anyway.
    is_clock_learned: u32,
    hrtimer: u64,
    /// Scratch memory of [`pointer_as_number`].
    address: u64,
}

#[inline(always)]
fn this_cpu() -> Option<&'static mut InterruptContext> {
    // SAFETY: the entry is this CPU's own, and lives as long as the map.
    INTERRUPT_CONTEXTS.get_ptr_mut(0).map(|context| unsafe { &mut *context })
}

/// Whether the offset of this CPU's run queue's clock is to be learned at this switch. It is not at
/// the next ones, until [`request_clock_offset`] is called.
#[inline(always)]
pub fn is_clock_offset_requested() -> bool {
    let Some(context) = this_cpu() else { return false };
    let is_requested = context.is_clock_learned == 0;
    context.is_clock_learned = 1;
    is_requested
}

/// Has the offset of this CPU's run queue's clock learned at the next switch.
#[inline(always)]
pub fn request_clock_offset() {
    if let Some(context) = this_cpu() {
        context.is_clock_learned = 0;
    }
}

/// Whether an interrupt is handled on this CPU: the task below has nothing to do with it.
#[inline(always)]
pub fn is_in_interrupt() -> bool {
    this_cpu().is_some_and(|it| it.softirq | it.hardirq | it.system != 0 || it.hrtimer != 0)
}

/// Forgets every interrupt, as the CPU switches from one thread to another.
#[inline(always)]
pub fn leave_all() {
    if let Some(context) = this_cpu() {
        *context = InterruptContext { softirq: 0, hardirq: 0, hrtimer: 0, system: 0, ..*context };
    }
}

/// A softirq handler begins.
#[inline(always)]
pub fn enter_softirq(vector: u32) {
    if let Some(context) = this_cpu() {
        context.softirq = vector + 1;
    }
}

/// A softirq handler ends.
#[inline(always)]
pub fn leave_softirq() {
    if let Some(context) = this_cpu() {
        context.softirq = 0;
    }
}

/// A device's interrupt handler begins.
#[inline(always)]
pub fn enter_hardirq(irq: u32) {
    if let Some(context) = this_cpu() {
        context.hardirq = irq + 1;
    }
}

/// A device's interrupt handler ends.
#[inline(always)]
pub fn leave_hardirq() {
    if let Some(context) = this_cpu() {
        context.hardirq = 0;
    }
}

/// A high-resolution timer's callback begins.
#[inline(always)]
pub fn enter_hrtimer(timer: *const c_void) {
    if let Some(context) = this_cpu() {
        pointer_as_number(&mut context.hrtimer, timer.cast_mut());
    }
}

/// A high-resolution timer's callback ends.
#[inline(always)]
pub fn leave_hrtimer() {
    if let Some(context) = this_cpu() {
        context.hrtimer = 0;
    }
}

/// An interrupt without a device begins: one of [`system_vector`].
#[inline(always)]
pub fn enter_system(vector: u16) {
    if let Some(context) = this_cpu() {
        context.system = u32::from(vector) + 1;
    }
}

/// An interrupt without a device ends.
#[inline(always)]
pub fn leave_system() {
    if let Some(context) = this_cpu() {
        context.system = 0;
    }
}

/// In which context this CPU is: one of [`wake_context`], and the number of the interrupt. The
/// innermost counts: a timer's callback runs inside its interrupt, an interrupt's handler may run
/// on top of a softirq.
#[inline(always)]
pub fn current_context(ctx: *mut c_void, current: Task, registers: Registers) -> (u16, u16) {
    let Some(context) = this_cpu() else {
        return (wake_context::SYSTEM, system_vector::UNKNOWN);
    };
    if context.hrtimer != 0 {
        (wake_context::HRTIMER, 0)
    } else if context.hardirq != 0 {
        (wake_context::HARDIRQ, (context.hardirq - 1) as u16)
    } else if context.system != 0 {
        (wake_context::SYSTEM, (context.system - 1) as u16)
    } else if context.softirq != 0 {
        (wake_context::SOFTIRQ, (context.softirq - 1) as u16)
    } else if current.tid() == 0 {
        (wake_context::SYSTEM, system_vector::IDLE)
    } else if is_on_task_stack(context, ctx, current, registers) {
        (wake_context::TASK, 0)
    } else {
        (wake_context::SYSTEM, system_vector::UNKNOWN)
    }
}

/// What the high-resolution timer was for whose callback runs here and wakes a thread: one of
/// [`hrtimer_vector`]. The timer of a sleep with a timeout lies on the sleeper's own stack, and
/// those that send signals do not.
/// <https://github.com/torvalds/linux/blob/v6.12/kernel/time/hrtimer.c#L2051>
///
/// A thread whose epoll has a signalfd is woken for any signal, also one that the signalfd does not
/// take, and before the signal is pending. PostgreSQL's sessions are such threads.
/// <https://github.com/torvalds/linux/blob/v6.12/kernel/signal.c#L1157>
#[inline(always)]
pub fn hrtimer_vector(wakee: Task) -> u16 {
    let Some(context) = this_cpu() else { return hrtimer_vector::ANY };
    let timer = context.hrtimer;
    if !wakee.has_deliverable_signal() {
        return match wakee.is_interrupting_alarm(timer) {
            true => hrtimer_vector::SIGNAL,
            false => hrtimer_vector::ANY,
        };
    }
    let top = pointer_as_number(&mut context.address, wakee.registers().as_ptr());
    if timer >= wakee.stack() && timer < top { hrtimer_vector::ANY } else { hrtimer_vector::SIGNAL }
}

/// Whether this runs on the current task's own stack: the kernel puts the program's context, `ctx`,
/// on the stack that the program runs on, and x86 and arm64 take interrupts of kernel code on
/// another stack. This detects interrupts that no program here has a tracepoint for. The saved user
/// registers are at the stack's very top.
#[inline(always)]
fn is_on_task_stack(
    context: &mut InterruptContext,
    ctx: *mut c_void,
    current: Task,
    registers: Registers,
) -> bool {
    let address = pointer_as_number(&mut context.address, ctx);
    let top = pointer_as_number(&mut context.address, registers.as_ptr());
    address >= current.stack() && address < top
}

/// How a softirq was called on top of the current task.
pub struct SoftirqCall {
    /// The task's stack pointer at the call.
    pub sp: u64,
    /// Bytes of the task's stack above that, up to the saved user registers.
    pub bytes_above: u64,
    /// Where the caller continues.
    pub return_address: u64,
    /// Bytes of the interrupts' stack that are in use: how deep in the softirq this runs.
    pub depth: u64,
}

/// Finds how the softirq was called that this runs in. None where that can't be told.
///
/// ```text
///  task's stack     … | __dev_queue_xmit | __local_bh_enable_ip | data |
///                                                                ↑
///  interrupts' stack                           | sp | do_softirq | handle_softirqs | … | this
///                            end of the page → |
/// ```
/// <https://github.com/torvalds/linux/blob/v6.12/arch/x86/include/asm/irq_stack.h#L77>
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
pub fn find_softirq_call(
    ctx: *mut c_void,
    current: Task,
    registers: Registers,
) -> Option<SoftirqCall> {
    use super::task::peek;
    /// The bits of an address that are the offset in its page.
    const PAGE_OFFSET: u64 = 0xfff;
    let context = this_cpu()?;
    let here = pointer_as_number(&mut context.address, ctx);
    let end = here | PAGE_OFFSET;
    let sp: u64 = peek(end - 7);
    let top = pointer_as_number(&mut context.address, registers.as_ptr());
    // What was read is no stack pointer of the task: this is more than a page deep, or not on the
    // interrupts' stack at all.
    if sp < current.stack() || sp >= top {
        return None;
    }
    Some(SoftirqCall {
        sp,
        bytes_above: top - sp,
        return_address: peek(end - 15),
        depth: end - here,
    })
}

/// Other machines lay out their interrupts' stack in other ways.
#[cfg(not(bpf_target_arch = "x86_64"))]
#[inline(always)]
pub fn find_softirq_call(
    _ctx: *mut c_void,
    _current: Task,
    _registers: Registers,
) -> Option<SoftirqCall> {
    None
}

/// A pointer's value. It goes through memory, because the verifier refuses arithmetic on the
/// pointer as long as it knows its type; the accesses are volatile, so that the compiler can't
/// bypass memory.
#[inline(always)]
pub fn pointer_as_number(scratch: &mut u64, pointer: *mut c_void) -> u64 {
    // SAFETY: both go to this CPU's own scratch.
    unsafe {
        ptr::write_volatile(ptr::from_mut(scratch).cast(), pointer);
        ptr::read_volatile(scratch)
    }
}
