//! Short waits and preemptions, summed up in the thread's own storage instead of being sent one by one.
//!
//! ```text
//! thread    --+ w +---+ w +--+ p +---------------- on a CPU for long ------+ w +---+ w +---+ long wait +-
//! sent                                                                     ^ sum of the first three
//!                                                           sum of the two, and the long wait by itself ^
//! ```
//!
//! A sum is sent before anything else is sent of the thread that has a number, when the thread ends or becomes
//! another program, when it has grown for [`LONGEST_STRETCH_NS`], and when the thread was on a CPU for
//! [`LONGEST_BREAK_NS`]: nothing is known of the moments in it, so that it must not span what is known.

use core::ptr;

use profiler_ebpf::{
    loss::RingLoss,
    record::{
        NO_SEQ, NO_STACK, NO_SYSCALL, RecordHeader, SummedRecord, kind, phase, summed_flags,
        system_vector, wait_flags, wake_context,
    },
};

use super::{
    detail,
    maps::SUM_SCRATCH,
    ring::{cpu, send},
    task::Task,
    task_local::{self, TaskLocal},
    throttle,
};

/// The longest time on a CPU within a sum.
const LONGEST_BREAK_NS: u64 = 1_000_000;
/// The longest time from a sum's beginning until it is sent, unless the thread stays where it is.
const LONGEST_STRETCH_NS: u64 = 100_000_000;
/// How long before the switch-out a wake may come and still belong to the wait: as the timeline has it.
const EARLY_WAKE_NS: u64 = 100_000;
/// Of what has one of these, more has to be told than how long it was.
const TELLS_MORE: u32 = wait_flags::BEFORE_WINDOW
    | wait_flags::STILL_OFF
    | wait_flags::NEWBORN
    | wait_flags::SWITCH_IN_MISSED
    | wait_flags::THROTTLED;

/// Whether a sum of the thread's has not been sent.
#[inline(always)]
pub fn is_open(local: &TaskLocal) -> bool {
    detail::is_adjustable() && local.summed != 0
}

/// Whether a wait is short that ends now, however long the thread is in line for a CPU then.
#[inline(always)]
pub fn is_short_so_far(local: &TaskLocal, now: u64) -> bool {
    now.wrapping_sub(local.record.off_ns) < detail::summed_below_ns()
}

/// Notes when a wait ended that will be summed up. Should it be sent after all, nothing says who ended it: it
/// is taken for an interrupt of which nothing is known.
#[inline(always)]
pub fn note_wake(local: &mut TaskLocal, now: u64) {
    let wake = &mut local.record.wake;
    wake.ns = now;
    wake.tid = 0;
    wake.tgid = 0;
    wake.context = wake_context::SYSTEM;
    wake.vector = system_vector::UNKNOWN;
    wake.cpu = cpu();
    wake.flags = 0;
    wake.current_seq = NO_SEQ;
    wake.syscall.number = NO_SYSCALL;
    wake.user_stack = NO_STACK;
    wake.kernel_stack = NO_STACK;
}

/// Adds the time off the CPU that a thread comes back from to its sum, if it was short. Returns whether it
/// did.
#[inline(always)]
pub fn add_if_short(local: &mut TaskLocal, task: Task, now: u64) -> bool {
    let below = detail::summed_below_ns();
    let off_ns = local.record.off_ns;
    let off_for = now.wrapping_sub(off_ns);
    // Of whoever ended a wait that was read late nothing is known: it counts how long that was alone.
    let is_late = local.phase == phase::BLOCKED && local.is_late != 0;
    if !detail::is_adjustable()
        || below == 0
        || (off_for >= below && !is_late)
        || local.record.wait_flags & TELLS_MORE != 0
    {
        return false;
    }
    let woken = local.record.wake.ns;
    let (blocked, since) = match local.phase {
        phase::RUNNABLE => (0, off_ns),
        // Who ended it is not known, or it ended before it began.
        phase::BLOCKED if woken == 0 || woken.wrapping_add(EARLY_WAKE_NS) < off_ns => return false,
        phase::BLOCKED if woken < off_ns => (0, off_ns),
        phase::BLOCKED => (woken.wrapping_sub(off_ns), woken),
        _ => return false,
    };
    if blocked > off_for || blocked >= below || throttle::may_have_been(since) {
        return false;
    }
    add(local, task, blocked, now);
    true
}

#[inline(always)]
fn add(local: &mut TaskLocal, task: Task, blocked: u64, now: u64) {
    let off_ns = local.record.off_ns;
    let sum = &local.sum;
    let goes_on = is_open(local)
        && sum.seq == local.seq
        && sum.tid == local.record.tid
        && sum.thread_flags == local.thread_flags
        && off_ns.wrapping_sub(sum.until_ns) < LONGEST_BREAK_NS
        && now.wrapping_sub(sum.from_ns) < LONGEST_STRETCH_NS;
    if !goes_on {
        flush(local);
        task_local::send_thread_info_once(local, task, phase::UNKNOWN);
        let sum = &mut local.sum;
        sum.tid = local.record.tid;
        sum.tgid = local.record.tgid;
        sum.thread_flags = local.thread_flags;
        sum.cpus = local.record.cpus & 0xffff;
        sum.from_ns = off_ns;
        sum.blocked_ns = 0;
        sum.runnable_ns = 0;
        sum.longest_ns = 0;
    }
    local.seq += 1;
    local.summed += 1;
    let sum = &mut local.sum;
    sum.seq = local.seq;
    sum.cpus = (sum.cpus & 0xffff) | (cpu() << 16);
    sum.until_ns = now;
    sum.blocked_ns += blocked;
    sum.runnable_ns += now.wrapping_sub(off_ns).wrapping_sub(blocked);
    if sum.longest_ns < blocked {
        sum.longest_ns = blocked;
    }
    if local.phase == phase::RUNNABLE {
        sum.preemptions += 1;
    } else {
        sum.waits += 1;
    }
}

/// Sends a thread's sum if there is one.
#[inline(always)]
pub fn flush(local: &mut TaskLocal) {
    if is_open(local) {
        send_sum(local);
    }
}

/// Sends the sum of a thread that has been on a CPU for long.
#[inline(always)]
pub fn flush_if_old(local: &mut TaskLocal, now: u64) {
    if is_open(local) && now.wrapping_sub(local.sum.from_ns) >= LONGEST_STRETCH_NS {
        send_sum(local);
    }
}

/// Sends the sum, and is verified once for each program.
#[unsafe(no_mangle)]
extern "C" fn send_sum(local: *mut TaskLocal) -> u64 {
    // SAFETY: callers pass a thread's own; the verifier checks it.
    let Some(local) = (unsafe { local.as_mut() }) else { return 0 };
    let len = size_of::<SummedRecord>();
    local.sum.header = RecordHeader { kind: kind::SUMMED, cpu: cpu() as u16, len: len as u32 };
    local.sum.flags = 0;
    let _counted = send((&raw const local.sum).cast(), len, RingLoss::WAIT);
    local.sum.waits = 0;
    local.sum.preemptions = 0;
    local.summed = 0;
    0
}

/// Sends a copy of a thread's sum, as the window closes or for a snapshot; the thread may go on with it
/// meanwhile, on another CPU. If it does so just now, the copy is not sent, and what is in it is missing.
#[inline(never)]
pub fn send_copy(local: &TaskLocal) {
    let Some(scratch) = SUM_SCRATCH.get_ptr_mut(0) else { return };
    let len = size_of::<SummedRecord>();
    let from = (&raw const local.sum).cast::<u64>();
    // SAFETY: only the survey uses the scratch, and one runs at a time.
    unsafe { ptr::copy_nonoverlapping(from, scratch.cast::<u64>(), len / 8) };
    // SAFETY: as above.
    let copy = unsafe { &mut *scratch };
    let sum = &raw const local.sum;
    // SAFETY: what a reference refers to can be read.
    let (seq, until_ns, runnable_ns) = unsafe {
        (
            ptr::read_volatile(&raw const (*sum).seq),
            ptr::read_volatile(&raw const (*sum).until_ns),
            ptr::read_volatile(&raw const (*sum).runnable_ns),
        )
    };
    let is_whole = copy.seq == seq && copy.until_ns == until_ns && copy.runnable_ns == runnable_ns;
    if !is_whole || copy.waits | copy.preemptions == 0 {
        return;
    }
    copy.header = RecordHeader { kind: kind::SUMMED, cpu: cpu() as u16, len: len as u32 };
    copy.flags = summed_flags::OPEN;
    let _counted = send(ptr::from_ref(copy).cast(), len, RingLoss::WAIT);
}
