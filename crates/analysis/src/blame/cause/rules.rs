//! The table: what a wait's syscall, file, stack and state say about its cause.
//!
//! Kernel functions are matched by name, with `*` for the rest of it: names move between kernels
//! (`futex_wait_queue_me` → `futex_wait_queue` → `futex_do_wait`, `pipe_read` → `anon_pipe_read`).
//! What the compiler adds to a name (`.isra.0`, `.constprop.0`) does not count. Read on Linux 5.10, 6.1, 6.12 and
//! 6.18; the stacks of 6.18 were measured, the others' names read in the source.

use offwake_recording::FileKind;

use super::{Cause, syscalls::FCNTL_WAIT_FOR_LOCK};

/// One condition on a wait.
#[derive(Clone, Copy, Debug)]
pub(super) enum Condition {
    /// The thread's state at switch-out has one of these letters.
    State(&'static [char]),
    /// The wait's syscall has one of these names.
    Syscall(&'static [&'static str]),
    /// The syscall's argument with this index is one of these, as far as 32 bits of it go.
    Argument(usize, &'static [u32]),
    /// The file that the thread waited on is of this kind.
    File(FileKind),
    /// The file that the thread waited on has a name with one of these prefixes.
    FileName(&'static [&'static str]),
    /// Some frame of the thread's kernel stack matches one of these patterns.
    Frame(&'static [&'static str]),
    /// The innermost frame of the thread's kernel stack that is not the scheduler's matches one of
    /// these patterns. No rule has both this condition and the one before.
    Innermost(&'static [&'static str]),
    /// The innermost frame of the thread's kernel stack that is not the scheduler's is one that sleeps for a lock.
    InnermostSleepsForLock,
    /// A disk ended the wait: by its interrupt, or by the softirq to which such an interrupt defers
    /// work.
    EndedByDisk,
    /// A child of the thread's process ended the wait: as it exited, by a signal (`SIGCHLD`).
    EndedByChild,
    /// The thread runs a program, so that its kernel stack is there for that program's sake.
    UserThread,
}

/// A cause, and the conditions that all have to hold for it.
pub(super) struct CauseRule {
    pub(super) cause: Cause,
    pub(super) when: &'static [Condition],
}

const fn rule(cause: Cause, when: &'static [Condition]) -> CauseRule {
    CauseRule { cause, when }
}

/// Calls that wait for any of several files.
pub(super) const POLLS: &[&str] = &[
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait_old",
    "poll",
    "ppoll",
    "ppoll_time64",
    "select",
    "_newselect",
    "pselect6",
    "pselect6_time64",
];

const TRANSFER: &[&str] = &[
    "read",
    "write",
    "readv",
    "writev",
    "pread64",
    "pwrite64",
    "preadv",
    "pwritev",
    "preadv2",
    "pwritev2",
    "splice",
    "tee",
    "vmsplice",
    "sendfile",
    "sendfile64",
    "copy_file_range",
];

/// The rules in order of precedence: the first whose conditions hold decides the cause.
///
/// What lies deepest in the kernel comes first: a read from a pipe that stands in the pipe's mutex
/// waits for a kernel lock.
pub(super) const RULES: &[CauseRule] = &[
    rule(Cause::Stopped, &[Condition::State(&['T', 't'])]),
    rule(
        Cause::Stopped,
        &[Condition::Frame(&[
            "ptrace_stop",
            "do_signal_stop",
            "do_jobctl_trap",
            "do_freezer_trap",
            "__refrigerator",
        ])],
    ),
    // The freezer of cgroups v2, where compilers put `do_freezer_trap` into its only caller.
    rule(Cause::Stopped, &[Condition::Innermost(&["get_signal"])]),
    rule(Cause::Throttled, &[Condition::Frame(&["throttle_cfs_rq*"])]),
    rule(
        Cause::KernelLock,
        &[Condition::Frame(&[
            "__mutex_lock*",
            "mutex_lock*",
            "__ww_mutex_lock*",
            "rwsem_down_*",
            "down_read*",
            "down_write*",
            "__down*",
            "percpu_rwsem_wait",
            "percpu_down_*",
            "__percpu_down_*",
            "rtlock_slowlock*",
            "rwbase_*",
        ])],
    ),
    rule(
        Cause::Futex,
        &[Condition::Frame(&[
            "futex_wait*",
            "futex_do_wait",
            "__futex_wait",
            "futex_lock_pi*",
            "futex_unqueue_multiple*",
        ])],
    ),
    // The kernel waits for a futex with priority inheritance (`futex_lock_pi`) by such a lock of its
    // own, so this comes after the futexes: what the thread asked for is the futex.
    rule(Cause::KernelLock, &[Condition::Frame(&["rt_mutex_slowlock*", "__rt_mutex_slowlock*"])]),
    // Before the page fault that wants the memory, and before whatever syscall the thread is in.
    rule(
        Cause::Memory,
        &[Condition::Frame(&[
            "try_charge*",
            "mem_cgroup_handle_over_high",
            "__mem_cgroup_handle_over_high",
            "mem_cgroup_oom_synchronize",
            "mem_cgroup_out_of_memory",
            "__alloc_pages_direct_reclaim",
            "__perform_reclaim",
            "throttle_direct_reclaim",
            "try_to_free_pages",
            "__alloc_pages_direct_compact",
            "try_to_compact_pages",
        ])],
    ),
    // The fault itself may then read from a disk: what the thread did was to touch a page.
    rule(
        Cause::PageFault,
        &[
            Condition::UserThread,
            Condition::Frame(&[
                "exc_page_fault",
                "asm_exc_page_fault",
                "do_user_addr_fault",
                "do_page_fault",
                "handle_mm_fault",
                "do_mem_abort",
                "handle_userfault",
            ]),
        ],
    ),
    rule(
        Cause::Disk,
        &[Condition::Frame(&[
            "io_schedule*",
            "blk_mq_get_tag",
            "blk_execute_rq",
            "submit_bio_wait*",
            "bio_await",
            "folio_wait*",
            "wait_on_page*",
            "__wait_on_buffer",
            "wait_on_buffer",
            "rq_qos_wait",
            "wbt_wait",
            "balance_dirty_pages",
            "jbd2_log_wait_commit",
            "wait_transaction_locked",
            "wait_transaction_switching",
            "add_transaction_credits",
            "start_this_handle",
            "xlog_grant_head_wait",
            "wait_current_trans",
            "__iomap_dio_rw*",
            "read_events",
            "wb_wait_for_completion",
        ])],
    ),
    // A stack that is taken as the thread is woken lacks the scheduler's own functions, `io_schedule` among
    // them (`stack_trace_consume_entry_nosched`,
    // https://github.com/torvalds/linux/blob/v6.12/kernel/stacktrace.c). Who sleeps like this and is woken
    // by a disk waited for it: a lock's waiter is woken by a task.
    rule(Cause::Disk, &[Condition::State(&['D']), Condition::EndedByDisk]),
    // The functions of locks are the scheduler's own as well.
    rule(Cause::KernelLock, &[Condition::State(&['D']), Condition::InnermostSleepsForLock]),
    rule(Cause::Child, &[Condition::Frame(&["do_wait", "kernel_wait4", "wait_for_vfork_done"])]),
    rule(Cause::Child, &[Condition::Syscall(&["wait4", "waitid", "waitpid", "vfork"])]),
    // A poll of nothing is how programs slept before nanosleep.
    rule(
        Cause::Timer,
        &[Condition::Syscall(&["poll", "ppoll", "ppoll_time64"]), Condition::Argument(1, &[0])],
    ),
    rule(
        Cause::Timer,
        &[
            Condition::Syscall(&["select", "_newselect", "pselect6", "pselect6_time64"]),
            Condition::Argument(0, &[0]),
        ],
    ),
    // Such a call returns as a signal comes, and never goes on by itself (`SA_RESTART`): who catches `SIGCHLD` waits
    // for its children as well.
    rule(Cause::Child, &[Condition::Syscall(POLLS), Condition::EndedByChild]),
    rule(
        Cause::Poll,
        &[Condition::Frame(&[
            "ep_poll",
            "do_epoll_wait*",
            "do_poll",
            "do_sys_poll",
            "do_select",
            "poll_schedule_timeout",
        ])],
    ),
    rule(Cause::Poll, &[Condition::Syscall(POLLS)]),
    rule(Cause::IoUring, &[Condition::Frame(&["io_cqring_wait", "io_wq_worker", "io_sq_thread"])]),
    rule(Cause::IoUring, &[Condition::Syscall(&["io_uring_enter"])]),
    rule(Cause::Timer, &[Condition::Frame(&["do_nanosleep", "hrtimer_nanosleep", "timerfd_read"])]),
    rule(
        Cause::Timer,
        &[Condition::Syscall(&["nanosleep", "clock_nanosleep", "clock_nanosleep_time64"])],
    ),
    rule(Cause::Signal, &[Condition::Frame(&["do_sigtimedwait", "sigsuspend", "signalfd_*"])]),
    rule(
        Cause::Signal,
        &[Condition::Syscall(&[
            "pause",
            "sigsuspend",
            "rt_sigsuspend",
            "rt_sigtimedwait",
            "rt_sigtimedwait_time64",
        ])],
    ),
    // A waiter for a lock that the file system itself keeps (NFS, FUSE) may lack these frames.
    rule(
        Cause::FileLock,
        &[Condition::Frame(&[
            "locks_lock_inode_wait",
            "flock_lock_inode_wait",
            "posix_lock_inode_wait",
            "do_lock_file_wait",
            "fcntl_setlk*",
        ])],
    ),
    rule(Cause::SysvSem, &[Condition::Frame(&["do_semtimedop", "__do_semtimedop"])]),
    rule(Cause::SysvMsg, &[Condition::Frame(&["do_msgsnd", "do_msgrcv"])]),
    rule(
        Cause::Mqueue,
        &[Condition::Frame(&["wq_sleep", "do_mq_timedsend", "do_mq_timedreceive"])],
    ),
    rule(Cause::Inotify, &[Condition::Frame(&["inotify_read"])]),
    rule(Cause::Eventfd, &[Condition::Frame(&["eventfd_read", "eventfd_write"])]),
    rule(Cause::Tty, &[Condition::Frame(&["n_tty_*", "tty_*", "do_tty_*"])]),
    rule(
        Cause::Pipe,
        &[Condition::Frame(&[
            "pipe_read",
            "pipe_write",
            "anon_pipe_read",
            "anon_pipe_write",
            "fifo_open",
            "wait_for_partner",
            "pipe_wait_*",
            "ipipe_prep",
            "opipe_prep",
        ])],
    ),
    rule(
        Cause::Socket,
        &[Condition::Frame(&[
            "sk_wait_data",
            "sk_stream_wait_*",
            "__skb_wait_for_more_packets",
            "sock_alloc_send_pskb*",
            "sock_wait_*",
            "unix_stream_*",
            "unix_dgram_*",
            "unix_wait_for_peer",
            "inet_csk_accept*",
            "inet_csk_wait_for_connect",
            "inet_wait_for_connect",
            "inet_stream_connect*",
            "tcp_recvmsg*",
            "tcp_sendmsg*",
            "udp_recvmsg*",
            "netlink_*",
            "vsock_*",
            "lock_sock_nested",
            "__lock_sock*",
        ])],
    ),
    rule(Cause::Socket, &[Condition::File(FileKind::Socket)]),
    rule(
        Cause::Socket,
        &[Condition::Syscall(&[
            "recvfrom",
            "recvmsg",
            "recvmmsg",
            "recvmmsg_time64",
            "recv",
            "sendto",
            "sendmsg",
            "sendmmsg",
            "send",
            "accept",
            "accept4",
            "connect",
            "socketcall",
        ])],
    ),
    rule(Cause::Pipe, &[Condition::File(FileKind::Pipe)]),
    rule(
        Cause::Eventfd,
        &[Condition::Syscall(TRANSFER), Condition::FileName(&["anon_inode:[eventfd"])],
    ),
    rule(
        Cause::Timer,
        &[Condition::Syscall(TRANSFER), Condition::FileName(&["anon_inode:[timerfd"])],
    ),
    rule(
        Cause::Signal,
        &[Condition::Syscall(TRANSFER), Condition::FileName(&["anon_inode:[signalfd"])],
    ),
    rule(
        Cause::Inotify,
        &[Condition::Syscall(TRANSFER), Condition::FileName(&["anon_inode:inotify"])],
    ),
    rule(
        Cause::Tty,
        &[
            Condition::File(FileKind::Character),
            Condition::FileName(&["/dev/pts/", "/dev/tty", "/dev/console"]),
        ],
    ),
    rule(
        Cause::Futex,
        &[Condition::Syscall(&["futex", "futex_time64", "futex_wait", "futex_waitv"])],
    ),
    rule(Cause::FileLock, &[Condition::Syscall(&["flock"])]),
    rule(
        Cause::FileLock,
        &[Condition::Syscall(&["fcntl", "fcntl64"]), Condition::Argument(1, FCNTL_WAIT_FOR_LOCK)],
    ),
    rule(Cause::SysvSem, &[Condition::Syscall(&["semop", "semtimedop", "semtimedop_time64"])]),
    rule(Cause::SysvMsg, &[Condition::Syscall(&["msgsnd", "msgrcv"])]),
    rule(
        Cause::Mqueue,
        &[Condition::Syscall(&[
            "mq_timedsend",
            "mq_timedsend_time64",
            "mq_timedreceive",
            "mq_timedreceive_time64",
        ])],
    ),
    rule(
        Cause::Disk,
        &[
            Condition::UserThread,
            Condition::Frame(&[
                "ext4_*",
                "xfs_*",
                "btrfs_*",
                "f2fs_*",
                "jbd2_*",
                "iomap_*",
                "blk_*",
                "filemap_*",
                "fuse_*",
                "nfs_*",
                "nfs3_*",
                "nfs4_*",
                "rpc_*",
                "__rpc_*",
                "cifs_*",
                "smb2_*",
                "ceph_*",
                "v9fs_*",
                "p9_client_*",
            ]),
        ],
    ),
    rule(
        Cause::Disk,
        &[Condition::Syscall(&[
            "fsync",
            "fdatasync",
            "sync",
            "syncfs",
            "msync",
            "sync_file_range",
            "io_getevents",
        ])],
    ),
    rule(
        Cause::Disk,
        &[
            Condition::Syscall(TRANSFER),
            Condition::File(FileKind::Regular),
            Condition::State(&['D']),
        ],
    ),
    rule(Cause::Disk, &[Condition::Syscall(TRANSFER), Condition::File(FileKind::Block)]),
];

/// Frames of the scheduler and of generic waiting, which say nothing about why a thread waits.
pub(super) const SCHEDULER_FRAMES: &[&str] = &[
    "__schedule",
    "schedule*",
    "preempt_schedule*",
    "io_schedule*",
    "__cond_resched",
    "context_switch",
    "__wait_for_common",
    "do_wait_for_common",
    "wait_for_common",
    "wait_for_completion*",
    "wait_woken",
    "__switch_to",
];

/// Returns whether a kernel function's name matches `pattern`.
pub(super) fn matches_pattern(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name.strip_prefix(pattern).is_some_and(|r| r.is_empty() || r.starts_with('.')),
    }
}
