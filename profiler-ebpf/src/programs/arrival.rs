//! When a thread whose switch-in was not seen came to its CPU, by the scheduler's own account.
//!
//! `task_struct::sched_info.last_arrival` has it by the clock of the CPU's run queue
//! ([`sched_info_arrive`](https://github.com/torvalds/linux/blob/v6.12/kernel/sched/stats.h#L260)).
//! That clock and the one of the records differ by an offset that changes by the little that NTP
//! corrects.
//!
//! ```text
//! run queue's clock   --+---------------------+------------>
//!                       last_arrival          read at a switch: fresh
//! records' clock      --+---------------------+------------>
//!                       |<----- the same ---->| now
//! ```

use profiler_ebpf::{
    offsets::NO_OFFSET,
    run_queue_clock::{RunQueueClock, update_offset},
};

use super::{
    config::{CONFIG, frozen, offset},
    maps::CLOCK_OFFSETS,
    task::{Task, peek},
};

/// Whether the scheduler keeps what is read here: `CONFIG_SCHED_INFO` and
/// `CONFIG_FAIR_GROUP_SCHED`.
#[inline(always)]
fn is_known() -> bool {
    frozen(&CONFIG.offsets.arrival.task_last_arrival) != NO_OFFSET
}

/// Learns by how much the records' clock is ahead of this CPU's run queue's. A stale clock makes it
/// look like more than it is, so the least counts; `task` is the one that runs on this CPU.
#[inline(always)]
pub fn learn_clock_offset(task: Task, clock: RunQueueClock, now: u64) {
    if !is_known() {
        return;
    }
    let Some(known) = CLOCK_OFFSETS.get_ptr_mut(0) else { return };
    let rq: u64 = peek(task.queue() + offset(&CONFIG.offsets.arrival.queue_rq) as u64);
    let read: u64 = peek(rq + offset(&CONFIG.offsets.arrival.rq_clock) as u64);
    if read == 0 {
        return;
    }
    let found = now.wrapping_sub(read);
    // SAFETY: this CPU's own entry; an interrupt that changes it meanwhile has an offset as good.
    unsafe { *known = update_offset(*known, found, clock) };
}

/// Returns when the thread that runs on this CPU came to it, by the records' clock; none if that is not
/// known.
#[inline(always)]
pub fn arrival_ns(task: Task) -> Option<u64> {
    if !is_known() {
        return None;
    }
    let offset_ns = CLOCK_OFFSETS.get(0).copied().unwrap_or(0);
    let arrival: u64 = task.last_arrival();
    (offset_ns != 0 && arrival != 0).then(|| arrival.wrapping_add(offset_ns))
}
