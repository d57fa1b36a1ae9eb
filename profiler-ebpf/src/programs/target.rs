//! Which threads belong to the target, and whose waits are recorded.

use profiler_ebpf::{config, loss::Loss};

use super::{
    maps::{TARGET_CGROUPS, TARGETS},
    ring::count_loss,
    settings::{CONFIG, frozen},
    task::Task,
};

/// Whether a thread belongs to the target.
#[inline(always)]
pub fn contains(task: Task) -> bool {
    match frozen(&CONFIG.target) {
        config::target::PROCESSES => TARGETS.get_ptr(task.tgid()).is_some(),
        config::target::THREADS => TARGETS.get_ptr(task.tid()).is_some(),
        config::target::CGROUP => {
            task.cgroup_at(frozen(&CONFIG.cgroup_level)) == frozen(&CONFIG.cgroup)
        }
        config::target::CGROUPS => {
            TARGET_CGROUPS.get_ptr(task.cgroup_at(frozen(&CONFIG.cgroup_level))).is_some()
        }
        _ => true,
    }
}

/// Whether a thread may join or leave the target while it lives, as threads move between cgroups.
#[inline(always)]
pub fn may_change() -> bool {
    matches!(frozen(&CONFIG.target), config::target::CGROUP | config::target::CGROUPS)
}

/// Makes the child process of a target process part of the target.
#[inline(always)]
pub fn inherit(parent: Task, child: Task) {
    if frozen(&CONFIG.target) != config::target::PROCESSES {
        return;
    }
    let child = child.tgid();
    if child != parent.tgid()
        && TARGETS.get_ptr(parent.tgid()).is_some()
        && TARGETS.insert(child, 1, 0).is_err()
    {
        count_loss(Loss::TargetsFull);
    }
}

/// Takes a thread that is about to end out of the target: the next thread or process with the same
/// id does not belong to it.
#[inline(always)]
pub fn remove(task: Task) {
    let id = match frozen(&CONFIG.target) {
        config::target::PROCESSES if task.is_last_of_process() => task.tgid(),
        config::target::THREADS => task.tid(),
        _ => return,
    };
    let _absent = TARGETS.remove(id);
}

/// Whether the waits of a thread of these [`profiler_ebpf::record::thread_flags`] are recorded.
#[inline(always)]
pub fn is_in_scope(thread_flags: u32) -> bool {
    frozen(&CONFIG.scope) != config::scope::TARGET
        || thread_flags & profiler_ebpf::record::thread_flags::TARGET != 0
}

/// Whether a task is the profiler itself or the process that unwinds for it, of which nothing is
/// recorded.
#[inline(always)]
pub fn is_profiler(task: Task) -> bool {
    let tgid = task.tgid();
    tgid == frozen(&CONFIG.self_tgid) || tgid == frozen(&CONFIG.unwinder_tgid)
}
