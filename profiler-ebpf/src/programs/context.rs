//! Which interrupt a CPU is in, so that a wake from one is never blamed on the task that happened
//! to be running.
//!
//! Entry sets and exit clears; nothing counts, as the programs may be attached while a CPU is
//! inside one. A CPU that switches is in none: should an exit go unseen, it is made up for there.

use core::{ffi::c_void, ptr};

use profiler_ebpf::record::{system_vector, wake_context};

use super::{
    maps::CONTEXT,
    task::{Registers, Task},
};

/// One CPU's interrupts: 0 if it is in none of that kind, else the number plus one.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct InterruptContext {
    softirq: u32,
    hardirq: u32,
    hrtimer: u32,
    system: u32,
    /// Scratch of [`as_number`].
    address: u64,
}

#[inline(always)]
fn this_cpu() -> Option<&'static mut InterruptContext> {
    // SAFETY: the entry is this CPU's own, and lives as long as the map.
    CONTEXT.get_ptr_mut(0).map(|context| unsafe { &mut *context })
}

/// The CPU switches from one thread to another.
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

/// It ends.
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

/// It ends.
#[inline(always)]
pub fn leave_hardirq() {
    if let Some(context) = this_cpu() {
        context.hardirq = 0;
    }
}

/// A high-resolution timer's callback begins.
#[inline(always)]
pub fn enter_hrtimer() {
    if let Some(context) = this_cpu() {
        context.hrtimer = 1;
    }
}

/// It ends.
#[inline(always)]
pub fn leave_hrtimer() {
    if let Some(context) = this_cpu() {
        context.hrtimer = 0;
    }
}

/// An interrupt with no device behind it begins.
#[inline(always)]
pub fn enter_system(vector: u16) {
    if let Some(context) = this_cpu() {
        context.system = u32::from(vector) + 1;
    }
}

/// It ends.
#[inline(always)]
pub fn leave_system() {
    if let Some(context) = this_cpu() {
        context.system = 0;
    }
}

/// In what context this CPU is: a [`wake_context`], and which one. The innermost counts: a timer's
/// callback runs inside its interrupt, an interrupt's handler may run over a softirq.
#[inline(always)]
pub fn now(ctx: *mut c_void, current: Task, registers: Registers) -> (u16, u16) {
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

/// Whether the program's context, which the kernel puts on the stack that it runs on, lies on the
/// current task's own: x86 and arm64 take interrupts of kernel code on another. It catches the
/// vectors that have no tracepoint here. The saved user registers are at the stack's very top.
#[inline(always)]
fn is_on_task_stack(
    context: &mut InterruptContext,
    ctx: *mut c_void,
    current: Task,
    registers: Registers,
) -> bool {
    let address = as_number(&mut context.address, ctx);
    let top = as_number(&mut context.address, registers.as_ptr());
    address >= current.stack() && address < top
}

/// Where a softirq came on top of the current task.
pub struct SoftirqCall {
    /// The task's stack pointer then.
    pub sp: u64,
    /// How much of its stack is above that, in bytes, up to the registers that it had in user space.
    pub above: u64,
    /// Where the caller goes on.
    pub caller: u64,
    /// How deep in the softirq this is, in bytes.
    pub depth: u64,
}

/// How the softirq was called that this is in. None where it can't be told.
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
pub fn call_of_softirq(
    ctx: *mut c_void,
    current: Task,
    registers: Registers,
) -> Option<SoftirqCall> {
    use super::task::peek;
    /// Bytes of a page, less one.
    const IN_PAGE: u64 = 0xfff;
    let context = this_cpu()?;
    let here = as_number(&mut context.address, ctx);
    let end = here | IN_PAGE;
    let sp: u64 = peek(end - 7);
    let top = as_number(&mut context.address, registers.as_ptr());
    // Deeper than a page, or not on the interrupts' stack at all.
    if sp < current.stack() || sp >= top {
        return None;
    }
    Some(SoftirqCall { sp, above: top - sp, caller: peek(end - 15), depth: end - here })
}

/// Other machines lay their interrupts' stack out in other ways.
#[cfg(not(bpf_target_arch = "x86_64"))]
#[inline(always)]
pub fn call_of_softirq(
    _ctx: *mut c_void,
    _current: Task,
    _registers: Registers,
) -> Option<SoftirqCall> {
    None
}

/// A pointer's value. It goes through memory, and volatile so that the compiler can't forward it,
/// since the verifier lets no arithmetic on it pass while it knows its type.
#[inline(always)]
pub fn as_number(scratch: &mut u64, pointer: *mut c_void) -> u64 {
    // SAFETY: both go to this CPU's own scratch.
    unsafe {
        ptr::write_volatile(ptr::from_mut(scratch).cast(), pointer);
        ptr::read_volatile(scratch)
    }
}
