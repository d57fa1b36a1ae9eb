//! Where the running kernel keeps its fields. User space reads the offsets from the kernel's BTF
//! before the programs are loaded.

/// An offset that the running kernel has no field for.
pub const NO_OFFSET: u32 = u32::MAX;

/// Byte offsets of kernel fields, read from the running kernel's BTF.
///
/// The programs load through them from typed pointers, so the verifier refuses an offset at which
/// no field of that size lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Offsets {
    /// `task_struct::pid`
    pub task_pid: u32,
    /// `task_struct::tgid`
    pub task_tgid: u32,
    /// `task_struct::flags`
    pub task_flags: u32,
    /// `task_struct::comm`
    pub task_comm: u32,
    /// `task_struct::__state`
    pub task_state: u32,
    /// `task_struct::on_cpu`
    pub task_on_cpu: u32,
    /// `task_struct::on_rq`
    pub task_on_rq: u32,
    /// `task_struct::start_time`
    pub task_start_time: u32,
    /// `task_struct::real_parent`
    pub task_real_parent: u32,
    /// `task_struct::exit_code`
    pub task_exit_code: u32,
    /// `task_struct::cgroups`
    pub task_cgroups: u32,
    /// `task_struct::files`
    pub task_files: u32,
    /// `task_struct::stack`
    pub task_stack: u32,
    /// `task_struct::exit_state`
    pub task_exit_state: u32,
    /// `task_struct::se.sched_delayed` (6.12 and later), else [`NO_OFFSET`].
    pub task_sched_delayed: u32,
    /// Where `task_struct::thread_info` says that a syscall is a 32-bit one: `status` on x86,
    /// `flags` on arm64.
    pub task_thread_status: u32,
    /// `css_set::dfl_cgrp`
    pub css_set_dfl_cgrp: u32,
    /// `cgroup::kn`
    pub cgroup_kn: u32,
    /// `cgroup::level`
    pub cgroup_level: u32,
    /// `cgroup::ancestors[level of the target]` (6.1 and later), else [`NO_OFFSET`].
    pub cgroup_ancestor: u32,
    /// `cgroup::ancestor_ids[level of the target]` (until 6.0), else [`NO_OFFSET`].
    pub cgroup_ancestor_id: u32,
    /// `kernfs_node::id`
    pub kernfs_node_id: u32,
    /// `files_struct::fdt`
    pub files_fdt: u32,
    /// `fdtable::fd`
    pub fdtable_fd: u32,
    /// `fdtable::max_fds`
    pub fdtable_max_fds: u32,
    /// `file::f_inode`
    pub file_inode: u32,
    /// `inode::i_ino`
    pub inode_ino: u32,
    /// `inode::i_mode`
    pub inode_mode: u32,
    /// `inode::i_sb`
    pub inode_sb: u32,
    /// `super_block::s_dev`
    pub super_block_dev: u32,
    /// The first syscall argument's place in `pt_regs`, and so on. x86: `di si dx r10 r8 r9`.
    pub pt_regs_args: [u32; 6],
    /// The same for 32-bit tasks. x86: `bx cx dx si di bp`.
    pub pt_regs_compat_args: [u32; 6],
    /// `pt_regs::orig_ax` (x86), `syscallno` (arm64).
    pub pt_regs_syscall: u32,
    /// `pt_regs::ip` (x86), `pc` (arm64).
    pub pt_regs_ip: u32,
    /// `pt_regs::sp`
    pub pt_regs_sp: u32,
    /// `pt_regs::bp` (x86), `regs[29]` (arm64).
    pub pt_regs_fp: u32,
    /// `task_struct::mm`
    pub task_mm: u32,
    /// `task_struct::nvcsw`
    pub task_nvcsw: u32,
    /// `task_struct::signal`
    pub task_signal: u32,
    /// `signal_struct::live`
    pub signal_live: u32,
    /// `task_struct::pending.signal`
    pub task_pending_signals: u32,
    /// `task_struct::blocked`
    pub task_blocked_signals: u32,
    /// `signal_struct::shared_pending.signal`
    pub signal_shared_pending_signals: u32,
    /// `signal_struct::real_timer`
    pub signal_real_timer: u32,
    /// `task_struct::thread.fsbase` (x86), where user code keeps the address of a thread's own
    /// storage; [`NO_OFFSET`] on others.
    pub task_thread_pointer: u32,
    /// Where the scheduler keeps CPU quotas.
    pub quota: QuotaOffsets,
    /// Where the scheduler keeps when threads came to their CPUs.
    pub arrival: ArrivalOffsets,
    /// Where an `epoll` keeps what is ready.
    pub epoll: EpollOffsets,
    /// Where the kernel keeps what is read from disks, and written to them.
    pub disk: DiskOffsets,
    /// Where a file has the locks that processes have on it.
    pub file_lock: FileLockOffsets,
}

/// Byte offsets of what the kernel keeps of locks on files
/// ([`struct file_lock`](https://github.com/torvalds/linux/blob/v6.12/include/linux/filelock.h#L88)). All
/// are [`NO_OFFSET`] in a kernel that is built without `CONFIG_FILE_LOCKING`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct FileLockOffsets {
    /// `inode::i_flctx`
    pub inode_locks: u32,
    /// `file_lock_context::flc_posix`
    pub locks_of_processes: u32,
    /// `file_lock_context::flc_flock`
    pub locks_of_open_files: u32,
    /// `file_lock::c.flc_list`, until 6.8 `fl_list`
    pub link: u32,
    /// `file_lock::c.flc_owner`, until 6.8 `fl_owner`
    pub owner: u32,
    /// `file_lock::c.flc_flags`, until 6.8 `fl_flags`
    pub flags: u32,
    /// `file_lock::c.flc_type`, until 6.8 `fl_type`
    pub access: u32,
    /// `file_lock::c.flc_pid`, until 6.8 `fl_pid`
    pub process: u32,
    /// `file_lock::fl_start`
    pub first_byte: u32,
    /// `file_lock::fl_end`
    pub last_byte: u32,
}

impl FileLockOffsets {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self {
        inode_locks: NO_OFFSET,
        locks_of_processes: NO_OFFSET,
        locks_of_open_files: NO_OFFSET,
        link: NO_OFFSET,
        owner: NO_OFFSET,
        flags: NO_OFFSET,
        access: NO_OFFSET,
        process: NO_OFFSET,
        first_byte: NO_OFFSET,
        last_byte: NO_OFFSET,
    };
}

impl Default for FileLockOffsets {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

/// Byte offsets of what tells how much is read from a block device, and written to it. All are
/// [`NO_OFFSET`] in a kernel that keeps it elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DiskOffsets {
    /// `bio::bi_bdev` (5.12 and later)
    pub bio_device: u32,
    /// `bio::bi_opf`
    pub bio_operation: u32,
    /// `bio::bi_iter.bi_size`
    pub bio_size: u32,
    /// `block_device::bd_dev`
    pub device_number: u32,
    /// `address_space::host`
    pub mapping_host: u32,
    /// `inode::i_rdev`
    pub inode_device_number: u32,
    /// `folio::flags`
    pub folio_flags: u32,
    /// `folio::_nr_pages`, until 6.13 `_folio_nr_pages` (5.18 and later), else [`NO_OFFSET`]: all
    /// folios are a page each then.
    pub folio_pages: u32,
    /// The flag of a folio of several pages (`PG_head`), as a bit.
    pub folio_head_flag: u32,
    /// The bytes of a page, as a power of two.
    pub page_shift: u32,
}

impl DiskOffsets {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self {
        bio_device: NO_OFFSET,
        bio_operation: NO_OFFSET,
        bio_size: NO_OFFSET,
        device_number: NO_OFFSET,
        mapping_host: NO_OFFSET,
        inode_device_number: NO_OFFSET,
        folio_flags: NO_OFFSET,
        folio_pages: NO_OFFSET,
        folio_head_flag: 0,
        page_shift: 0,
    };
}

impl Default for DiskOffsets {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

/// Byte offsets of what an `epoll` keeps of its files
/// ([`fs/eventpoll.c`](https://github.com/torvalds/linux/blob/v6.12/fs/eventpoll.c#L136)). All are
/// [`NO_OFFSET`] in a kernel that is built without `CONFIG_EPOLL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct EpollOffsets {
    /// `file::private_data`
    pub file_private_data: u32,
    /// `eventpoll::rdllist`
    pub ready_list: u32,
    /// `eventpoll::ovflist`
    pub overflow_list: u32,
    /// `epitem::rdllink`
    pub item_ready_link: u32,
    /// `epitem::ep`
    pub item_epoll: u32,
    /// `epitem::ffd`: the file, and after it the descriptor
    pub item_file: u32,
}

impl EpollOffsets {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self {
        file_private_data: NO_OFFSET,
        ready_list: NO_OFFSET,
        overflow_list: NO_OFFSET,
        item_ready_link: NO_OFFSET,
        item_epoll: NO_OFFSET,
        item_file: NO_OFFSET,
    };
}

impl Default for EpollOffsets {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

/// Byte offsets of when a thread came to its CPU. All are [`NO_OFFSET`] in a kernel that is built
/// without `CONFIG_SCHED_INFO` or `CONFIG_FAIR_GROUP_SCHED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ArrivalOffsets {
    /// `task_struct::sched_info.last_arrival`
    pub task_last_arrival: u32,
    /// `task_struct::se.cfs_rq`
    pub task_queue: u32,
    /// `cfs_rq::rq`
    pub queue_rq: u32,
    /// `rq::clock`
    pub rq_clock: u32,
}

impl ArrivalOffsets {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self {
        task_last_arrival: NO_OFFSET,
        task_queue: NO_OFFSET,
        queue_rq: NO_OFFSET,
        rq_clock: NO_OFFSET,
    };
}

impl Default for ArrivalOffsets {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

/// Byte offsets of what the scheduler keeps of CPU quotas. A kernel built without
/// `CONFIG_CFS_BANDWIDTH` has none of it, and knows no quotas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct QuotaOffsets {
    /// 1 if the rest is there.
    pub is_known: u32,
    /// `task_struct::throttled` (6.18 and later, where threads are throttled one by one), else
    /// [`NO_OFFSET`].
    pub task_throttled: u32,
    /// `task_struct::se`
    pub task_entity: u32,
    /// `sched_entity::parent`
    pub entity_parent: u32,
    /// `sched_entity::cfs_rq`
    pub entity_queue: u32,
    /// The byte that says of a queue that its own quota was used up: with `task_throttled`
    /// `cfs_rq::throttled`, a bit field. Before 6.18 that is over by the time it is asked for, and
    /// it is `cfs_rq::runtime_enabled`, which says that the queue has a quota of its own.
    pub queue_limit: u32,
    /// The bits of that byte.
    pub queue_limit_mask: u32,
    /// With `task_throttled`: `cfs_rq::throttled_clock_self`
    pub queue_throttled_since: u32,
    /// With `task_throttled`: `cfs_rq::throttled_clock_self_time`
    pub queue_throttled_time: u32,
    /// With `task_throttled`: `cfs_rq::rq`
    pub queue_rq: u32,
    /// With `task_throttled`: `rq::clock`
    pub rq_clock: u32,
    /// `cfs_rq::throttle_count`
    pub queue_throttle_count: u32,
    /// `cfs_rq::tg`
    pub queue_group: u32,
    /// `task_group::cfs_rq`
    pub group_queues: u32,
    /// `task_group::css.cgroup`
    pub group_cgroup: u32,
    /// `rq::cpu`
    pub rq_cpu: u32,
}

impl QuotaOffsets {
    /// The kernel knows no quotas.
    pub const UNKNOWN: Self = Self {
        is_known: 0,
        task_throttled: NO_OFFSET,
        task_entity: 0,
        entity_parent: 0,
        entity_queue: 0,
        queue_limit: 0,
        queue_limit_mask: 0,
        queue_throttled_since: 0,
        queue_throttled_time: 0,
        queue_rq: 0,
        rq_clock: 0,
        queue_throttle_count: 0,
        queue_group: 0,
        group_queues: 0,
        group_cgroup: 0,
        rq_cpu: 0,
    };
}

const _: () = assert!(size_of::<Offsets>() == 101 * 4);
