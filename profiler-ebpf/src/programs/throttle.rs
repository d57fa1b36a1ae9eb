//! CPU quotas: from when until when one kept a thread from running that could have run.
//!
//! A cgroup's quota is for each period, and handed out to its queues (`cfs_rq`), one on each CPU. A
//! queue that has used up its share is *throttled* until a timer of the kernel's brings more.
//!
//! - Since 6.18 a throttled queue's threads go on until they are about to return to user code; each
//!   is taken off the queue there, and comes back as the queue is unthrottled. So a thread is
//!   throttled from its switch-out until then, and from then on it waits for a CPU like any other.
//!   When that was follows from how long the queue was throttled, which the kernel adds up: nothing
//!   has to be attached
//!   ([`throttle_cfs_rq_work`, `tg_unthrottle_up`](https://github.com/torvalds/linux/blob/v6.18/kernel/sched/fair.c)).
//! - Before, the queue as a whole is taken out: whoever is in it is throttled for as long as the
//!   queue is, which [`on_throttle`] and [`on_unthrottle`] see
//!   ([`throttle_cfs_rq`](https://github.com/torvalds/linux/blob/v6.12/kernel/sched/fair.c)).
//!
//! All of it is under the lock of the queue's CPU, as the switch is.

use profiler_ebpf::{
    loss::RingLoss,
    offsets::NO_OFFSET,
    record::{ThrottleRecord, kind, wait_flags},
};

use super::{
    config::{CONFIG, frozen, offset},
    maps::{LAST_UNTHROTTLE, QUEUE_THROTTLES},
    ring::{header, now, send},
    task::{Task, cgroup_id_at, peek},
    task_local::TaskLocal,
};

/// How many of a queue's throttles are kept. Who waits for a CPU for longer than they took is not
/// said to have been throttled.
const KEPT: usize = 8;
/// The most levels of cgroups that are climbed in search of the one with the quota.
const MAX_LEVELS: usize = 16;
/// How far a scheduler's clock may be from that of the records, over the time that a thread is off
/// its CPU.
const MAX_SKEW_NS: u64 = 1_000_000;
/// The flags of [`QUEUE_THROTTLES`]' updates: any.
const BPF_ANY: u64 = 0;

/// The throttles of one queue.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct QueueThrottles {
    /// Since when the queue is throttled; 0 if it is not, or if that is not followed.
    since_ns: u64,
    /// How often the queue was unthrottled.
    count: u64,
    /// When throttles began, by their number modulo [`KEPT`].
    from_ns: [u64; KEPT],
    /// When they ended.
    until_ns: [u64; KEPT],
}

/// A throttle that a thread is in, or was in since it left its CPU.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct OpenThrottle {
    /// The queue that the thread was taken from.
    queue: u64,
    /// What the queue's throttled time would be if it were unthrottled at the thread's switch-out.
    throttled_ns: u64,
    /// When the thread was first moved to another CPU's queue; 0 if it was not.
    migrated_ns: u64,
    /// The cgroup whose quota was used up.
    cgroup: u64,
}

/// A stretch of time.
#[derive(Clone, Copy)]
struct Stretch {
    from_ns: u64,
    until_ns: u64,
}

/// Whether threads are throttled one by one.
#[inline(always)]
fn is_by_thread() -> bool {
    frozen(&CONFIG.offsets.quota.task_throttled) != NO_OFFSET
}

/// Whether the kernel knows quotas.
#[inline(always)]
fn is_known() -> bool {
    frozen(&CONFIG.offsets.quota.is_known) != 0
}

/// A thread that is throttled leaves its CPU.
#[inline(never)]
pub fn open(local: &mut TaskLocal, task: Task) {
    let queue = queue_of_entity(task.scheduling_entity());
    let rq: u64 = peek(queue + offset(&CONFIG.offsets.quota.queue_rq) as u64);
    let clock: u64 = peek(rq + offset(&CONFIG.offsets.quota.rq_clock) as u64);
    let since: u64 = peek(queue + offset(&CONFIG.offsets.quota.queue_throttled_since) as u64);
    local.throttle = OpenThrottle {
        queue,
        // Another thread of the queue may have been taken off it before.
        throttled_ns: throttled_time(queue) + if since == 0 { 0 } else { clock - since },
        migrated_ns: 0,
        cgroup: limiting_cgroup(task.scheduling_entity()),
    };
    local.record.wait_flags |= wait_flags::THROTTLED;
}

/// The same of a thread that is not running, and may cease to be throttled just now.
#[inline(always)]
pub fn open_if_throttled(local: &mut TaskLocal, task: Task) {
    if is_by_thread() && task.is_throttled() {
        open(local, task);
        // If it still is, its queue has not been unthrottled since its time was read.
        if !task.is_throttled() {
            local.record.wait_flags &= !wait_flags::THROTTLED;
        }
    }
}

/// A thread is moved to another CPU's queue. If it was throttled, what comes later is not known to
/// be.
#[inline(always)]
pub fn end_at_migration(local: &mut TaskLocal, now: u64) {
    if local.record.wait_flags & wait_flags::THROTTLED != 0 && local.throttle.migrated_ns == 0 {
        local.throttle.migrated_ns = now;
    }
}

/// Sends in which stretches a thread was throttled that comes to a CPU, and could have run from
/// `since` on.
#[inline(always)]
pub fn send_all(local: &TaskLocal, task: Task, since: u64, now: u64) -> Result<(), ()> {
    if is_by_thread() {
        if local.record.wait_flags & wait_flags::THROTTLED != 0 {
            return send_ended(local, now);
        }
    } else if is_known()
        && since != 0
        && let Some(&last) = LAST_UNTHROTTLE.get(0)
        && last > since
    {
        return send_of_queue(local, task, since.max(local.record.migrated_ns));
    }
    Ok(())
}

/// Whether a thread that could have run from `since` on may have been throttled meanwhile, as far as its own
/// flags don't say so.
#[inline(always)]
pub fn may_have_been(since: u64) -> bool {
    !is_by_thread() && is_known() && LAST_UNTHROTTLE.get(0).is_some_and(|&last| last > since)
}

/// Sends the stretch in which a thread is throttled as the window closes, if it is.
#[inline(never)]
pub fn send_open(local: &TaskLocal, task: Task, since: u64, now: u64) {
    let mut stretch = Stretch { from_ns: since, until_ns: now };
    let mut cgroup = local.throttle.cgroup;
    if is_by_thread() {
        if local.record.wait_flags & wait_flags::THROTTLED == 0 {
            return;
        }
        if !task.is_throttled() || local.throttle.migrated_ns != 0 {
            let _counted = send_ended(local, now);
            return;
        }
    } else {
        if !is_known() || since == 0 {
            return;
        }
        let since = since.max(local.record.migrated_ns);
        let _counted = send_of_queue(local, task, since);
        let entity = task.scheduling_entity();
        let queue = queue_of_entity(entity);
        // SAFETY: an entry that is evicted keeps its memory until this program is over.
        let Some(throttles) = (unsafe { QUEUE_THROTTLES.get(queue) }) else { return };
        if throttles.since_ns == 0 {
            return;
        }
        stretch.from_ns = since.max(throttles.since_ns);
        cgroup = limiting_cgroup(entity);
    }
    let _counted = send_stretch(local, cgroup, stretch);
}

/// Sends the stretch in which a thread was throttled by itself: it ended as its queue was
/// unthrottled, or as it was moved. If neither was seen, nothing is claimed.
///
/// ```text
/// queue throttled   |--------------------------------|     the kernel adds its length as it ends
/// thread            .    | off                       | runnable
///                   |----|  the time at switch-out
/// ```
#[inline(never)]
fn send_ended(local: &TaskLocal, now: u64) -> Result<(), ()> {
    let OpenThrottle { queue, throttled_ns, migrated_ns, cgroup } = local.throttle;
    let off_ns = local.record.off_ns;
    let off_for = now.saturating_sub(off_ns);
    let mut length = if migrated_ns == 0 { u64::MAX } else { migrated_ns - off_ns };
    // If the queue has not been unthrottled, or is gone, that is less than nothing or too much.
    let ended_after = throttled_time(queue).wrapping_sub(throttled_ns);
    if ended_after <= off_for + MAX_SKEW_NS {
        length = length.min(ended_after);
    }
    if length == u64::MAX {
        return Ok(());
    }
    let stretch = Stretch { from_ns: off_ns, until_ns: off_ns + length.min(off_for) };
    send_stretch(local, cgroup, stretch)
}

/// Sends in which stretches a thread's queue was throttled since `since`, up to the last one that
/// has ended.
#[inline(never)]
fn send_of_queue(local: &TaskLocal, task: Task, since: u64) -> Result<(), ()> {
    let entity = task.scheduling_entity();
    // SAFETY: as above.
    let Some(throttles) = (unsafe { QUEUE_THROTTLES.get(queue_of_entity(entity)) }) else {
        return Ok(());
    };
    let cgroup = limiting_cgroup(entity);
    for nth in 0..KEPT {
        let stretch = Stretch {
            from_ns: throttles.from_ns[nth].max(since),
            until_ns: throttles.until_ns[nth],
        };
        send_stretch(local, cgroup, stretch)?;
    }
    Ok(())
}

#[inline(always)]
fn send_stretch(local: &TaskLocal, cgroup: u64, stretch: Stretch) -> Result<(), ()> {
    if stretch.from_ns >= stretch.until_ns {
        return Ok(());
    }
    let record = ThrottleRecord {
        header: header(kind::THROTTLE, size_of::<ThrottleRecord>()),
        tid: local.record.tid,
        tgid: local.record.tgid,
        thread_flags: local.thread_flags,
        reserved: 0,
        from_ns: stretch.from_ns,
        until_ns: stretch.until_ns,
        cgroup,
    };
    send((&raw const record).cast(), size_of::<ThrottleRecord>(), RingLoss::PREEMPTION)
}

/// `tg_throttle_down`: a group's queue on the CPU of `rq` is about to be throttled, or one above it.
#[inline(always)]
pub fn on_throttle(group: u64, rq: u64) {
    let queue = queue_of_group(group, rq);
    if throttle_count(queue) != 0 {
        return;
    }
    if let Some(throttles) = find_or_insert(queue) {
        throttles.since_ns = now();
    }
}

/// `tg_unthrottle_up`: the quota of a group on the CPU of `rq`, or of one above it, is about to be
/// refilled.
#[inline(always)]
pub fn on_unthrottle(group: u64, rq: u64) {
    let queue = queue_of_group(group, rq);
    // One quota of several that the queue is under: the others are still used up.
    if throttle_count(queue) != 1 {
        return;
    }
    let Some(throttles) = QUEUE_THROTTLES.get_ptr_mut(queue) else { return };
    let now = now();
    // SAFETY: an entry that is evicted keeps its memory until this program is over.
    unsafe {
        let nth = (*throttles).count as usize % KEPT;
        if (*throttles).since_ns != 0 {
            (*throttles).from_ns[nth] = (*throttles).since_ns;
            (*throttles).until_ns[nth] = now;
            (*throttles).count += 1;
            (*throttles).since_ns = 0;
        }
    }
    if let Some(last) = LAST_UNTHROTTLE.get_ptr_mut(0) {
        // SAFETY: the entry is aligned and lives as long as the map.
        unsafe { last.write_volatile(now) };
    }
}

/// The entry of a queue, inserted if there is none.
#[inline(always)]
fn find_or_insert(queue: u64) -> Option<&'static mut QueueThrottles> {
    const NEVER: QueueThrottles =
        QueueThrottles { since_ns: 0, count: 0, from_ns: [0; KEPT], until_ns: [0; KEPT] };
    if QUEUE_THROTTLES.get_ptr_mut(queue).is_none() {
        // If there is no room, nothing is claimed of this queue.
        let _full = QUEUE_THROTTLES.insert(queue, NEVER, BPF_ANY);
    }
    // SAFETY: an entry that is evicted keeps its memory until this program is over.
    QUEUE_THROTTLES.get_ptr_mut(queue).map(|throttles| unsafe { &mut *throttles })
}

/// The queue of a group on one CPU.
#[inline(always)]
fn queue_of_group(group: u64, rq: u64) -> u64 {
    let cpu: u32 = peek(rq + offset(&CONFIG.offsets.quota.rq_cpu) as u64);
    let queues: u64 = peek(group + offset(&CONFIG.offsets.quota.group_queues) as u64);
    peek(queues + u64::from(cpu) * 8)
}

/// How many quotas that a queue is under are used up.
#[inline(always)]
fn throttle_count(queue: u64) -> u32 {
    peek(queue + offset(&CONFIG.offsets.quota.queue_throttle_count) as u64)
}

/// How long a queue has been throttled, what is not over yet left out.
#[inline(always)]
fn throttled_time(queue: u64) -> u64 {
    peek(queue + offset(&CONFIG.offsets.quota.queue_throttled_time) as u64)
}

#[inline(always)]
fn queue_of_entity(entity: u64) -> u64 {
    peek(entity + offset(&CONFIG.offsets.quota.entity_queue) as u64)
}

/// Id of the cgroup whose quota keeps an entity from running, or did; 0 if it is not found.
#[inline(always)]
fn limiting_cgroup(entity: u64) -> u64 {
    let mask = frozen(&CONFIG.offsets.quota.queue_limit_mask) as u8;
    let mut entity = entity;
    for _level in 0..MAX_LEVELS {
        if entity == 0 {
            break;
        }
        let queue = queue_of_entity(entity);
        let limit: u8 = peek(queue + offset(&CONFIG.offsets.quota.queue_limit) as u64);
        if limit & mask != 0 {
            let group: u64 = peek(queue + offset(&CONFIG.offsets.quota.queue_group) as u64);
            let cgroup = peek(group + offset(&CONFIG.offsets.quota.group_cgroup) as u64);
            return cgroup_id_at(cgroup);
        }
        entity = peek(entity + offset(&CONFIG.offsets.quota.entity_parent) as u64);
    }
    0
}
