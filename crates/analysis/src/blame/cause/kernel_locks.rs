//! Which lock of the kernel's a thread waited for, by the function that asked for it.
//!
//! ```text
//! leaf                                                                       root
//! schedule  rwsem_down_write_slowpath  down_write  ext4_buffered_write_iter  vfs_write
//! └──────────── the lock's own functions ────────┘ who asked: an inode's lock
//! ```

use offwake_recording::{Wait, units::Tgid};

use super::{Cause, syscalls};

/// Locks of the kernel's that programs contend for by what they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum KernelLock {
    /// `mm_struct::mmap_lock`, which all threads of a process share.
    AddressSpace,
    /// `inode::i_rwsem` of a file.
    File,
    /// `inode::i_rwsem` of a directory.
    Directory,
    /// `file::f_pos_lock`: the position in an open file that threads share.
    FilePosition,
    /// `pipe_inode_info::mutex`
    Pipe,
    /// `rtnl_mutex`: the settings of network devices.
    NetworkSettings,
    /// `cgroup_mutex`
    Cgroups,
    /// `cgroup_threadgroup_rwsem`: who begins or ends a thread has it, and who moves processes keeps them out.
    CgroupThreads,
    /// `super_block::s_writers`: the filesystem is frozen.
    FrozenFilesystem,
}

impl KernelLock {
    /// Names it.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::AddressSpace => "the lock of an address space (mmap_lock)",
            Self::File => "the lock of a file (inode lock)",
            Self::Directory => "the lock of a directory (inode lock)",
            Self::FilePosition => "the position in an open file that others use too (f_pos_lock)",
            Self::Pipe => "the lock of a pipe",
            Self::NetworkSettings => "the lock of the network's settings (rtnl_lock)",
            Self::Cgroups => "the lock of the cgroups (cgroup_mutex)",
            Self::CgroupThreads => {
                "the lock that keeps threads in their cgroups (cgroup_threadgroup_rwsem)"
            }
            Self::FrozenFilesystem => "a filesystem that is frozen",
        }
    }
}

/// What a lock of the kernel's belongs to. Its address is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LockScope {
    File {
        device: u32,
        inode: u64,
    },
    Process(Tgid),
    /// There is one.
    Machine,
    /// An open file, by its number in its process.
    Descriptor {
        process: Tgid,
        number: u32,
    },
}

impl LockScope {
    /// Returns what the lock belongs to that a thread takes which waits like this.
    pub(crate) fn find(lock: KernelLock, wait: &Wait) -> Option<Self> {
        match lock {
            KernelLock::AddressSpace => Some(Self::Process(wait.tgid)),
            KernelLock::File => {
                // Of those it is the other file's.
                const FROM_FILES: &[&str] = &["copy_file_range", "splice", "tee"];
                let is_other = wait.syscall.as_ref().and_then(syscalls::name);
                let file =
                    wait.file.filter(|_| is_other.is_none_or(|it| !FROM_FILES.contains(&it)))?;
                Some(Self::File { device: file.device, inode: file.inode })
            }
            KernelLock::FilePosition => {
                let number = syscalls::descriptor(wait.syscall.as_ref()?, None)?;
                Some(Self::Descriptor { process: wait.tgid, number })
            }
            KernelLock::NetworkSettings | KernelLock::Cgroups => Some(Self::Machine),
            KernelLock::Directory
            | KernelLock::Pipe
            | KernelLock::CgroupThreads
            | KernelLock::FrozenFilesystem => None,
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

/// How functions begin that ask for the position in an open file.
const FUNCTIONS_OF_POSITION: &[&str] = &["fdget_pos", "__fdget_pos"];

/// How functions begin that change an address space, under its lock from their first lines to their last.
const ADDRESS_SPACE_CHANGES: &[&str] = &[
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
    "dup_mmap",
];

/// How functions begin that write to a file, likewise under its lock.
const FILE_WRITES: &[&str] = &[
    "generic_file_write_iter",
    "ext4_buffered_write_iter",
    "ext4_dio_write_iter",
    "f2fs_file_write_iter",
    "shmem_file_write_iter",
    "shmem_fallocate",
    "fuse_cache_write_iter",
    "do_truncate",
];

/// How functions begin that ask for the `mmap_lock` of another process, or of one that is not known.
const FUNCTIONS_OF_OTHERS: &[&str] = &[
    "__access_remote_vm",
    "access_remote_vm",
    "collapse_huge_page",
    "khugepaged",
    "pagemap_read",
    "m_start",
    "query_vma_setup",
    "userfaultfd_",
];

/// How functions begin that ask for a lock, and for which. Those of Linux 5.10 to 6.18: where a lock has
/// functions of its own they come first, as compilers put those into their callers on some kernels.
const ASKING_FUNCTIONS: &[(KernelLock, &[&str])] = &[
    (KernelLock::AddressSpace, ADDRESS_SPACE_CHANGES),
    (KernelLock::AddressSpace, FUNCTIONS_OF_OTHERS),
    (
        KernelLock::AddressSpace,
        &[
            "mmap_read_lock",
            "mmap_write_lock",
            "lock_mm_and_find_vma",
            "do_madvise",
            "madvise_",
            "do_user_addr_fault",
            "do_page_fault",
            "__mm_populate",
            "exit_mmap",
            "exit_mm",
            "dup_mm",
            "acct_collect",
            "get_user_pages_unlocked",
            "__gup_longterm_locked",
            "gup_fast_fallback",
            "internal_get_user_pages_fast",
            "do_shmat",
            "ksys_shmdt",
            "apply_vma_lock_flags",
            "do_mlock",
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
    (KernelLock::File, FILE_WRITES),
    (
        KernelLock::File,
        &[
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
            "ovl_write_iter",
            "fuse_direct_write_iter",
            "fuse_dio_lock",
            "nfs_start_io_",
            "vfs_fallocate",
            "vfs_fsync_range",
            "vfs_setxattr",
            "chmod_common",
            "chown_common",
        ],
    ),
    (KernelLock::FilePosition, FUNCTIONS_OF_POSITION),
    (
        KernelLock::Pipe,
        &["pipe_read", "pipe_write", "anon_pipe_read", "anon_pipe_write", "fifo_pipe_"],
    ),
    (KernelLock::NetworkSettings, &["rtnl_lock", "rtnl_dumpit", "rtnetlink_rcv", "netlink_dump"]),
    (
        KernelLock::CgroupThreads,
        &[
            "cgroup_attach_lock",
            "cgroup_procs_write_start",
            "cgroup_can_fork",
            "cgroup_css_set_fork",
            "exit_signals",
        ],
    ),
    (KernelLock::Cgroups, &["cgroup_kn_lock_live", "cgroup_lock"]),
];

/// How functions begin that may sleep with a lock.
///
/// A page fault is none of them: it lets `mmap_lock` go before it sleeps
/// ([`fault_dirty_shared_page`, `maybe_unlock_mmap_for_io`](https://elixir.bootlin.com/linux/v6.12/source/mm/internal.h)).
const HOLDING_FUNCTIONS: &[(KernelLock, &[&str])] = &[
    (KernelLock::AddressSpace, ADDRESS_SPACE_CHANGES),
    (KernelLock::AddressSpace, &["dup_mm"]),
    (KernelLock::File, FILE_WRITES),
    (
        KernelLock::File,
        &[
            "ext4_fallocate",
            "xfs_file_buffered_write",
            "xfs_file_fallocate",
            "btrfs_buffered_write",
            "fuse_direct_write_iter",
        ],
    ),
    (
        KernelLock::FilePosition,
        &["ksys_read", "ksys_write", "ksys_lseek", "__x64_sys_getdents", "__se_sys_getdents"],
    ),
    // They demand it (`ASSERT_RTNL`): https://github.com/torvalds/linux/blob/v6.12/net/core/dev.c
    (
        KernelLock::NetworkSettings,
        &[
            "register_netdevice",
            "unregister_netdevice_many",
            "do_setlink",
            "__dev_change_flags",
            "__dev_open",
            "__dev_close_many",
        ],
    ),
    // They demand it, or come after the `cgroup_kn_lock_live` of their only callers:
    // https://github.com/torvalds/linux/blob/v6.12/kernel/cgroup/cgroup.c
    (
        KernelLock::Cgroups,
        &[
            "cgroup_procs_write_start",
            "cgroup_attach_task",
            "cgroup_migrate",
            "cgroup_destroy_locked",
            "cgroup_apply_control",
            "rebind_subsystems",
        ],
    ),
];

/// How functions begin that those above call once they have let the lock go: to sync what they wrote, to
/// read in what they mapped.
const FUNCTIONS_AFTER_RELEASE: &[&str] =
    &["generic_write_sync", "vfs_fsync_range", "__mm_populate", "handle_mm_fault"];

/// Returns whether a function that asks for a lock asks for one of the thread's own process or file.
fn is_own_lock(name: &str) -> bool {
    !begins_with_any(name, FUNCTIONS_OF_OTHERS)
}

/// Returns whether a thread has a lock of this kind while it sleeps, by the functions of its kernel stack, leaf
/// first: it sleeps below a function that has taken the lock, and not to get it.
pub(crate) fn holds_while_it_sleeps<'a>(
    lock: KernelLock,
    functions: impl Iterator<Item = &'a str>,
) -> bool {
    let is_holding = |name: &&str| {
        let mut of_lock = HOLDING_FUNCTIONS.iter().filter(|(kind, _)| *kind == lock);
        of_lock.any(|(_, beginnings)| begins_with_any(name, beginnings))
    };
    let functions: Vec<&str> = functions.skip_while(|name| is_lock_function(name)).collect();
    let place = functions.iter().position(is_holding);
    let inside = match place.map(|place| functions.split_at(place)) {
        None | Some(([], _)) => return false,
        Some((inside, _)) => inside,
    };
    let is_after = |name: &&str| begins_with_any(name, FUNCTIONS_AFTER_RELEASE);
    match lock {
        // The whole call has it, once it has it.
        KernelLock::FilePosition => {
            !inside.iter().any(|name| begins_with_any(name, FUNCTIONS_OF_POSITION))
        }
        // A write reads the memory that it is given with the file's lock taken, also if that has to be
        // faulted in.
        KernelLock::File => !inside.iter().any(|name| is_after(name) && *name != "handle_mm_fault"),
        // Who asks for it there does not have it yet.
        KernelLock::NetworkSettings | KernelLock::Cgroups => {
            !inside.iter().any(|name| find_asked_lock(name) == Some(lock))
        }
        _ => !inside.iter().any(is_after),
    }
}

/// How functions begin that sleep without a signal's being able to wake them for a lock alone, whatever they call
/// besides. They are what is left of the stack of such a sleep where that lacks the scheduler's own functions, as
/// the locks' are (`stack_trace_consume_entry_nosched`,
/// <https://github.com/torvalds/linux/blob/v6.12/kernel/stacktrace.c>).
const FUNCTIONS_THAT_SLEEP_FOR_A_LOCK: &[&[&str]] = &[
    ADDRESS_SPACE_CHANGES,
    FILE_WRITES,
    FUNCTIONS_OF_POSITION,
    &[
        "xfs_ilock",
        "btrfs_inode_lock",
        "ovl_write_iter",
        "fuse_dio_lock",
        "nfs_start_io_",
        "chmod_common",
        "chown_common",
        "vfs_setxattr",
        "mmap_read_lock",
        "mmap_write_lock",
        "lock_mm_and_find_vma",
        "do_madvise",
        "lookup_slow",
        "open_last_lookups",
        "filename_create",
        "do_unlinkat",
        "do_rmdir",
        "lock_rename",
        "iterate_dir",
        "do_mkdirat",
        "rtnl_lock",
        "cgroup_kn_lock_live",
        "cgroup_lock",
    ],
];

/// How functions begin that wait for a lock of which each CPU has a part. A file's inode lock is none of them.
const PER_CPU_LOCK_FUNCTIONS: &[&str] = &["percpu_rwsem_", "percpu_down_", "__percpu_down_"];

/// How functions begin that ask whether a filesystem is frozen before they change one of its files. Compilers put
/// the function that asks into them
/// ([`file_start_write`](https://github.com/torvalds/linux/blob/v6.12/include/linux/fs.h#L2989)).
const FUNCTIONS_THAT_WRITE: &[&str] = &[
    "vfs_write",
    "vfs_writev",
    "vfs_iter_write",
    "vfs_iocb_iter_write",
    "vfs_fallocate",
    "vfs_copy_file_range",
    "do_ftruncate",
    "do_sys_ftruncate",
    "do_iter_write",
    "do_iter_readv_writev",
    "do_sendfile",
    "do_splice",
    "iter_file_splice_write",
    "aio_write",
    "io_write",
    "ksys_write",
    "ksys_pwrite64",
];

fn begins_with_any(name: &str, beginnings: &[&str]) -> bool {
    beginnings.iter().any(|beginning| name.starts_with(beginning))
}

/// Returns whether a function that sleeps itself, and can't be woken by a signal, waits for a lock.
pub(super) fn sleeps_for_a_lock(name: &str) -> bool {
    FUNCTIONS_THAT_SLEEP_FOR_A_LOCK.iter().any(|beginnings| begins_with_any(name, beginnings))
}

/// Returns whether a function waits for a lock, whatever the lock is for.
pub(crate) fn is_lock_function(name: &str) -> bool {
    begins_with_any(name, LOCK_FUNCTIONS)
}

/// Finds the lock that a thread waited for, by the cause of its wait and the functions of its kernel stack, leaf
/// first; none if it waited for no lock, or for one that is not in the list.
pub(crate) fn find_kernel_lock<'a>(
    cause: Cause,
    mut functions: impl Iterator<Item = &'a str>,
) -> Option<KernelLock> {
    let mut waits_for_lock = cause == Cause::KernelLock;
    let mut is_per_cpu = false;
    let asking = functions.find(|name| {
        let is_lock = is_lock_function(name);
        waits_for_lock |= is_lock;
        is_per_cpu |= begins_with_any(name, PER_CPU_LOCK_FUNCTIONS);
        !is_lock
    })?;
    if !waits_for_lock {
        return None;
    }
    if is_per_cpu && begins_with_any(asking, FUNCTIONS_THAT_WRITE) {
        return Some(KernelLock::FrozenFilesystem);
    }
    find_asked_lock(asking)
}

/// Finds the same; none if it is another process's, or another family's than that of the network's settings
/// (`netlink_dump` takes a lock of the socket's family).
pub(crate) fn find_own_lock<'a, F: Iterator<Item = &'a str>>(
    cause: Cause,
    functions: impl Fn() -> F,
) -> Option<KernelLock> {
    let is_known =
        || functions().all(|name| is_own_lock(name) && !name.starts_with("netlink_dump"));
    find_kernel_lock(cause, functions()).filter(|_| is_known())
}

/// Finds the same, where the function that asked asks for one lock alone. Of a file there are several: for its
/// data, for its mappings, for what a filesystem keeps of it (`xfs_ilock`).
pub(crate) fn find_only_lock<'a, F: Iterator<Item = &'a str>>(
    cause: Cause,
    functions: impl Fn() -> F,
) -> Option<KernelLock> {
    let asking = functions().find(|name| !is_lock_function(name))?;
    find_own_lock(cause, functions)
        .filter(|lock| *lock != KernelLock::File || begins_with_any(asking, FILE_WRITES))
}

/// Returns the lock that a function asks for.
fn find_asked_lock(asking: &str) -> Option<KernelLock> {
    let mut all = ASKING_FUNCTIONS.iter();
    all.find(|(_, beginnings)| begins_with_any(asking, beginnings)).map(|&(lock, _)| lock)
}

#[cfg(test)]
mod tests {
    use super::{
        Cause,
        KernelLock::{self, AddressSpace, Cgroups, File, FilePosition, NetworkSettings},
        find_kernel_lock, holds_while_it_sleeps,
    };

    #[test]
    fn who_sleeps_in_code_that_takes_a_lock_has_it() {
        for (functions, lock, has_it) in [
            (
                "balance_dirty_pages generic_perform_write ext4_buffered_write_iter vfs_write",
                File,
                true,
            ),
            ("handle_userfault handle_mm_fault exc_page_fault shmem_file_write_iter", File, true),
            ("request_wait_answer fuse_file_mmap mmap_region vm_mmap_pgoff", AddressSpace, true),
            // It wants the lock itself.
            (
                "rwsem_down_write_slowpath down_write ext4_buffered_write_iter vfs_write",
                File,
                false,
            ),
            // The lock is let go before the data is synced, or the mapping read in.
            (
                "jbd2_log_wait_commit vfs_fsync_range generic_write_sync ext4_buffered_write_iter",
                File,
                false,
            ),
            (
                "io_schedule handle_mm_fault __get_user_pages __mm_populate vm_mmap_pgoff",
                AddressSpace,
                false,
            ),
            ("io_schedule filemap_fault handle_mm_fault do_user_addr_fault", AddressSpace, false),
            ("io_schedule filemap_read ext4_file_read_iter vfs_read ksys_read", FilePosition, true),
            ("__mutex_lock fdget_pos ksys_write do_syscall_64", FilePosition, false),
            (
                "__wait_rcu_gp synchronize_rcu unregister_netdevice_many_notify rtnl_dellink",
                NetworkSettings,
                true,
            ),
            ("rtnl_lock register_netdevice_notifier bond_init", NetworkSettings, false),
            ("__mutex_lock rtnl_lock rtnetlink_rcv_msg", NetworkSettings, false),
            ("schedule_timeout netdev_run_todo rtnl_unlock rtnl_dellink", NetworkSettings, false),
            (
                "__wait_rcu_gp rcu_sync_enter percpu_down_write cgroup_procs_write_start",
                Cgroups,
                true,
            ),
            ("mutex_lock cgroup_kn_lock_live __cgroup_procs_write", Cgroups, false),
            // It reads, which needs no lock of the file's.
            ("io_schedule filemap_read ext4_file_read_iter vfs_read", File, false),
            ("request_wait_answer fuse_file_mmap mmap_region vm_mmap_pgoff", File, false),
        ] {
            let has = holds_while_it_sleeps(lock, functions.split_whitespace());
            assert_eq!(has, has_it, "{functions}");
        }
    }

    #[test]
    fn the_function_that_asked_is_what_is_left_of_some_stacks() {
        let functions = || "shmem_file_write_iter vfs_write ksys_pwrite64".split_whitespace();
        assert_eq!(find_kernel_lock(Cause::KernelLock, functions()), Some(KernelLock::File));
        assert_eq!(find_kernel_lock(Cause::Pipe, functions()), None);
    }

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
            ("__mutex_lock cgroup_kn_lock_live __cgroup_procs_write", Some(KernelLock::Cgroups)),
            ("percpu_down_write cgroup_procs_write_start", Some(KernelLock::CgroupThreads)),
            ("percpu_rwsem_wait __percpu_down_read exit_signals", Some(KernelLock::CgroupThreads)),
            (
                "percpu_rwsem_wait __percpu_down_read mnt_want_write",
                Some(KernelLock::FrozenFilesystem),
            ),
            // Of 6.18.
            ("percpu_rwsem_wait vfs_write ksys_write", Some(KernelLock::FrozenFilesystem)),
            ("percpu_rwsem_wait do_ftruncate", Some(KernelLock::FrozenFilesystem)),
            ("percpu_rwsem_wait vfs_fallocate", Some(KernelLock::FrozenFilesystem)),
            ("rwsem_down_write_slowpath vfs_fallocate", Some(KernelLock::File)),
            ("percpu_rwsem_wait copy_process", None),
            // A lock that nobody has named, and functions that ask for locks but wait for more.
            ("__mutex_lock a_driver_of_somebody ioctl", None),
            ("io_schedule folio_wait_bit_common ext4_buffered_write_iter", None),
            ("anon_pipe_read vfs_read", None),
            ("", None),
        ] {
            let found = find_kernel_lock(Cause::Disk, functions.split_whitespace());
            assert_eq!(found, lock, "{functions}");
        }
    }
}
