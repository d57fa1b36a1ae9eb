//! The constants that the loader froze. Each read is volatile, so that the compiler leaves it to
//! the verifier, which knows the value and prunes the branches that are never taken.

use core::ptr;

use profiler_ebpf::{
    config::Config,
    offsets::{
        ArrivalOffsets, DiskOffsets, EpollOffsets, FileLockOffsets, NO_OFFSET, Offsets,
        QuotaOffsets,
    },
};

/// Overwritten by the loader before the verifier sees it.
#[unsafe(no_mangle)]
pub static CONFIG: Config = Config {
    target: 0,
    scope: 0,
    stacks: 0,
    self_tgid: 0,
    cgroup: 0,
    stack_seed: 0,
    cgroup_level: 0,
    switch_has_state: 0,
    compat_mask: 0,
    stand_in_only: 0,
    socket_device: 0,
    check_threshold: 0,
    stack_budget: 0,
    max_threads: 0,
    user_stacks: 0,
    is_adjustable: 0,
    tracing_begin: 0,
    tracing_end: 0,
    offsets: Offsets {
        task_pid: 0,
        task_tgid: 0,
        task_flags: 0,
        task_comm: 0,
        task_state: 0,
        task_on_cpu: 0,
        task_on_rq: 0,
        task_start_time: 0,
        task_real_parent: 0,
        task_exit_code: 0,
        task_cgroups: 0,
        task_files: 0,
        task_stack: 0,
        task_exit_state: 0,
        task_sched_delayed: NO_OFFSET,
        task_thread_status: 0,
        css_set_dfl_cgrp: 0,
        cgroup_kn: 0,
        cgroup_level: 0,
        cgroup_ancestor: NO_OFFSET,
        cgroup_ancestor_id: NO_OFFSET,
        kernfs_node_id: 0,
        files_fdt: 0,
        fdtable_fd: 0,
        fdtable_max_fds: 0,
        file_inode: 0,
        inode_ino: 0,
        inode_mode: 0,
        inode_sb: 0,
        super_block_dev: 0,
        pt_regs_args: [0; 6],
        pt_regs_compat_args: [0; 6],
        pt_regs_syscall: 0,
        pt_regs_ip: 0,
        pt_regs_sp: 0,
        pt_regs_fp: 0,
        task_mm: 0,
        task_nvcsw: 0,
        task_signal: 0,
        signal_live: 0,
        task_pending_signals: 0,
        task_blocked_signals: 0,
        signal_shared_pending_signals: 0,
        signal_real_timer: 0,
        task_thread_pointer: 0,
        quota: QuotaOffsets::UNKNOWN,
        arrival: ArrivalOffsets::UNKNOWN,
        epoll: EpollOffsets::UNKNOWN,
        disk: DiskOffsets::UNKNOWN,
        file_lock: FileLockOffsets::UNKNOWN,
    },
    reserved: 0,
};

/// Reads one frozen constant.
#[inline(always)]
pub fn frozen<T: Copy>(constant: &'static T) -> T {
    // SAFETY: a reference is valid to read from.
    unsafe { ptr::read_volatile(constant) }
}

/// Reads one frozen offset.
#[inline(always)]
pub fn offset(constant: &'static u32) -> usize {
    frozen(constant) as usize
}
