//! Which lock of the kernel's a thread waited for, by the function that asked for it.
//!
//! ```text
//! leaf                                                                       root
//! schedule  rwsem_down_write_slowpath  down_write  ext4_buffered_write_iter  vfs_write
//! └──────────── the lock's own functions ────────┘ who asked: an inode's lock
//! ```

/// Locks of the kernel's that programs contend for by what they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum KernelLock {
    /// `mm_struct::mmap_lock`, which all threads of a process share.
    AddressSpace,
    /// `inode::i_rwsem` of a file.
    File,
    /// `inode::i_rwsem` of a directory.
    Directory,
    /// `pipe_inode_info::mutex`
    Pipe,
    /// `rtnl_mutex`: the settings of network devices.
    NetworkSettings,
    /// `cgroup_mutex` and `cgroup_threadgroup_rwsem`.
    Cgroups,
    /// `super_block::s_writers`: the filesystem is frozen.
    FrozenFilesystem,
}

impl KernelLock {
    /// Describes a wait for it.
    pub(super) fn describe_wait(self) -> &'static str {
        match self {
            Self::AddressSpace => "waits for the lock of an address space (mmap_lock)",
            Self::File => "waits for the lock of a file (inode lock)",
            Self::Directory => "waits for the lock of a directory (inode lock)",
            Self::Pipe => "waits for the lock of a pipe",
            Self::NetworkSettings => "waits for the lock of the network's settings (rtnl_lock)",
            Self::Cgroups => "waits for the lock of the cgroups (cgroup_mutex)",
            Self::FrozenFilesystem => "waits for a filesystem that is frozen",
        }
    }
}

/// How functions begin that wait for a lock, whatever the lock is for.
const LOCK_FUNCTIONS: &[&str] = &[
    "__mutex_lock",
    "mutex_lock",
    "__ww_mutex_lock",
    "rwsem_",
    "rwbase_",
    "down_read",
    "down_write",
    "__down",
    "percpu_rwsem_",
    "percpu_down_",
    "__percpu_down_",
    "rtlock_slowlock",
    "rt_mutex_",
    "__rt_mutex_",
];

/// How functions begin that ask for a lock, and for which. Those of Linux 5.10 to 6.18: where a lock has
/// functions of its own they come first, as compilers put those into their callers on some kernels.
const ASKING_FUNCTIONS: &[(KernelLock, &[&str])] = &[
    (
        KernelLock::AddressSpace,
        &[
            "mmap_read_lock",
            "mmap_write_lock",
            "lock_mm_and_find_vma",
            "vm_mmap_pgoff",
            "ksys_mmap_pgoff",
            "vm_munmap",
            "__vm_munmap",
            "do_mprotect_pkey",
            "__do_sys_mremap",
            "__x64_sys_mremap",
            "do_mremap",
            "__do_sys_brk",
            "__x64_sys_brk",
            "do_madvise",
            "madvise_",
            "do_user_addr_fault",
            "do_page_fault",
            "__mm_populate",
            "exit_mmap",
            "exit_mm",
            "dup_mmap",
            "dup_mm",
            "acct_collect",
            "__access_remote_vm",
            "access_remote_vm",
            "get_user_pages_unlocked",
            "__gup_longterm_locked",
            "gup_fast_fallback",
            "internal_get_user_pages_fast",
            "collapse_huge_page",
            "khugepaged",
            "do_shmat",
            "ksys_shmdt",
            "apply_vma_lock_flags",
            "do_mlock",
            "pagemap_read",
            "m_start",
            "query_vma_setup",
            "userfaultfd_",
        ],
    ),
    (
        KernelLock::Directory,
        &[
            "open_last_lookups",
            "path_openat",
            "lookup_slow",
            "walk_component",
            "lookup_one",
            "filename_create",
            "start_dirop",
            "start_removing",
            "do_unlinkat",
            "do_rmdir",
            "lock_rename",
            "do_renameat2",
            "vfs_rename",
            "iterate_dir",
            "do_mkdirat",
        ],
    ),
    (
        KernelLock::FrozenFilesystem,
        &["sb_start_write", "__sb_start_write", "mnt_want_write", "sb_start_pagefault"],
    ),
    (
        KernelLock::File,
        &[
            "generic_file_write_iter",
            "ext4_buffered_write_iter",
            "ext4_dio_write_iter",
            "ext4_file_write_iter",
            "ext4_file_read_iter",
            "ext4_dio_read_iter",
            "ext4_fallocate",
            "ext4_setattr",
            "xfs_ilock",
            "xfs_file_",
            "btrfs_inode_lock",
            "btrfs_buffered_write",
            "btrfs_direct_write",
            "f2fs_file_write_iter",
            "shmem_file_write_iter",
            "shmem_fallocate",
            "ovl_write_iter",
            "fuse_cache_write_iter",
            "nfs_start_io_",
            "do_truncate",
            "vfs_fallocate",
            "vfs_fsync_range",
            "vfs_setxattr",
            "chmod_common",
            "chown_common",
        ],
    ),
    (
        KernelLock::Pipe,
        &["pipe_read", "pipe_write", "anon_pipe_read", "anon_pipe_write", "fifo_pipe_"],
    ),
    (KernelLock::NetworkSettings, &["rtnl_lock", "rtnl_dumpit", "rtnetlink_rcv", "netlink_dump"]),
    (
        KernelLock::Cgroups,
        &[
            "cgroup_kn_lock_live",
            "cgroup_lock",
            "cgroup_attach_lock",
            "cgroup_procs_write_start",
            "cgroup_can_fork",
            "cgroup_css_set_fork",
        ],
    ),
];

/// Returns whether a function waits for a lock, whatever the lock is for.
pub(super) fn is_lock_function(name: &str) -> bool {
    LOCK_FUNCTIONS.iter().any(|beginning| name.starts_with(beginning))
}

/// Finds the lock that a thread waited for, by the functions of its kernel stack, leaf first; none if it
/// waited for no lock, or for one that is not in the list.
pub(super) fn find_kernel_lock<'a>(
    mut functions: impl Iterator<Item = &'a str>,
) -> Option<KernelLock> {
    let mut waits_for_lock = false;
    let asking = functions.find(|name| {
        let is_lock = is_lock_function(name);
        waits_for_lock |= is_lock;
        !is_lock
    })?;
    if !waits_for_lock {
        return None;
    }
    let asks = |beginnings: &[&str]| beginnings.iter().any(|it| asking.starts_with(it));
    ASKING_FUNCTIONS.iter().find(|(_, beginnings)| asks(beginnings)).map(|&(lock, _)| lock)
}

#[cfg(test)]
mod tests {
    use super::{KernelLock, find_kernel_lock};

    #[test]
    fn the_function_that_asked_tells_which_lock_it_is() {
        for (functions, lock) in [
            // Of 6.1, 6.12 and 6.18, as recordings have them.
            (
                "rwsem_down_write_slowpath down_write ext4_buffered_write_iter vfs_write",
                Some(KernelLock::File),
            ),
            (
                "rwsem_down_write_slowpath down_write_killable vm_mmap_pgoff ksys_mmap_pgoff",
                Some(KernelLock::AddressSpace),
            ),
            ("rwsem_down_read_slowpath down_read do_madvise", Some(KernelLock::AddressSpace)),
            (
                "rwsem_down_write_slowpath open_last_lookups path_openat",
                Some(KernelLock::Directory),
            ),
            ("__mutex_lock.constprop.0 pipe_write vfs_write", Some(KernelLock::Pipe)),
            ("__mutex_lock rtnl_lock rtnetlink_rcv_msg", Some(KernelLock::NetworkSettings)),
            (
                "percpu_rwsem_wait __percpu_down_read mnt_want_write",
                Some(KernelLock::FrozenFilesystem),
            ),
            // A lock that nobody has named, and functions that ask for locks but wait for more.
            ("__mutex_lock a_driver_of_somebody ioctl", None),
            ("io_schedule folio_wait_bit_common ext4_buffered_write_iter", None),
            ("anon_pipe_read vfs_read", None),
            ("", None),
        ] {
            assert_eq!(find_kernel_lock(functions.split_whitespace()), lock, "{functions}");
        }
    }
}
