//! Which threads belong to the target, and whose waits are recorded.

use profiler_ebpf::{
    config::{self, target_origin},
    loss::Loss,
};

use super::{
    config::{CONFIG, frozen},
    maps::{TARGET_CGROUPS, TARGETS},
    own_processes,
    ring::count_loss,
    task::Task,
};

/// Whether a thread belongs to the target.
#[inline(always)]
pub fn contains(task: Task) -> bool {
    match frozen(&CONFIG.target) {
        config::target::PROCESSES | config::target::PROCESSES_ALONE => {
            TARGETS.get_ptr(task.tgid()).is_some()
        }
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
        && TARGETS.insert(child, target_origin::ASKED_FOR_OR_FORKED, 0).is_err()
    {
        count_loss(Loss::TargetsFull);
    }
}

/// Makes a process part of the target if its parent is, and follows its forks from now on. It was
/// forked before the programs were attached, or while its parent was not known to be of the target.
#[inline(always)]
pub fn add_child(task: Task) {
    if frozen(&CONFIG.target) != config::target::PROCESSES {
        return;
    }
    let (process, parent) = (task.tgid(), task.parent_tgid());
    // A child that is in the map already is left as it is: that is how it came there.
    if process == parent || TARGETS.get_ptr(process).is_some() || TARGETS.get_ptr(parent).is_none()
    {
        return;
    }
    if TARGETS.insert(process, target_origin::FORKED_BEFORE, 0).is_err() {
        // The other threads of the process are visited as well.
        if task.tid() == process {
            count_loss(Loss::TargetsFull);
        }
        return;
    }
    // If the process ended just before it was inserted, its end could not remove it.
    if task.is_last_of_process() {
        let _absent = TARGETS.remove(process);
    }
}

/// Takes a thread that is about to end out of the target: the next thread or process with the same
/// id does not belong to it.
#[inline(always)]
pub fn remove(task: Task) {
    let id = match frozen(&CONFIG.target) {
        config::target::PROCESSES | config::target::PROCESSES_ALONE
            if task.is_last_of_process() =>
        {
            task.tgid()
        }
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

/// Whether a task is the profiler itself or a process of it that unwinds, reads, parses or writes, of
/// which nothing is recorded.
#[inline(always)]
pub fn is_profiler(task: Task) -> bool {
    let tgid = task.tgid();
    tgid == frozen(&CONFIG.self_tgid) || own_processes::contains(tgid)
}
