//! What waits were on: stacks of several kernels, and none at all.

use offwake_analysis::blame::cause::{
    Cause, Classifier, FutexOp, WaitedOn, kernel_frame, waited_on,
};
use offwake_recording::{
    DeviceKind, FileId, FileKind, InterruptInfo, OpenFile, Recording, StackRef, Syscall,
    SyscallTable, TaskState, ThreadKind, Wait, Wake, WakeContext,
};

use crate::{
    draw::{at, recording, wait, wake_by},
    fixtures::{
        CLOCK_NANOSLEEP, EPOLL_WAIT, FSYNC, FUTEX, POLL, READ, RECVFROM, WAIT4, file, kernel,
        syscall,
    },
};

fn cause(recording: &Recording, wait: &Wait) -> Cause {
    Classifier::new(recording).cause(wait)
}

fn plain() -> Wait {
    wait(7, 1, at(0), at(1))
}

#[test]
fn kernel_stacks_tell() {
    // Leaf first; 6.18 where nothing else is said.
    for (stack, expected) in [
        (
            &["schedule", "futex_do_wait", "__futex_wait", "futex_wait", "do_futex"][..],
            Cause::Futex,
        ),
        (&["schedule", "futex_wait_queue_me", "futex_wait", "do_futex"], Cause::Futex), // 5.10
        (&["rt_mutex_schedule", "rt_mutex_wait_proxy_lock", "futex_lock_pi"], Cause::Futex),
        (
            &["rt_mutex_schedule", "rt_mutex_slowlock_block.constprop.0", "futex_lock_pi"],
            Cause::Futex,
        ),
        // What touches the futex's page may have to wait for the address space.
        (
            &["schedule", "rwsem_down_read_slowpath", "fixup_pi_state_owner", "futex_lock_pi"],
            Cause::KernelLock,
        ),
        (
            &["rt_mutex_schedule", "rt_mutex_slowlock.constprop.0", "i2c_transfer"],
            Cause::KernelLock,
        ),
        (&["schedule", "anon_pipe_read", "vfs_read", "ksys_read"], Cause::Pipe),
        (&["schedule", "pipe_read", "vfs_read", "ksys_read"], Cause::Pipe), // 6.1
        (
            &["schedule_preempt_disabled", "__mutex_lock.constprop.0", "pipe_read"],
            Cause::KernelLock,
        ),
        (&["schedule", "locks_lock_inode_wait", "__do_sys_flock"], Cause::FileLock),
        (&["schedule", "fcntl_setlk", "do_fcntl", "__x64_sys_fcntl"], Cause::FileLock),
        (&["schedule", "do_lock_file_wait.part.0", "fcntl_setlk"], Cause::FileLock), // 6.1
        (&["schedule", "__do_semtimedop", "do_semtimedop"], Cause::SysvSem),
        (&["schedule", "do_msgrcv.constprop.0", "do_syscall_64"], Cause::SysvMsg),
        (&["schedule", "do_msgsnd", "do_syscall_64"], Cause::SysvMsg),
        (&["schedule_hrtimeout_range_clock", "wq_sleep", "do_mq_timedreceive"], Cause::Mqueue),
        (&["schedule_timeout", "wait_woken", "inotify_read", "vfs_read"], Cause::Inotify),
        (&["schedule_timeout", "unix_stream_read_generic", "sock_recvmsg"], Cause::Socket),
        (&["schedule_timeout", "wait_woken", "sk_wait_data", "tcp_recvmsg_locked"], Cause::Socket),
        (&["schedule", "eventfd_read", "vfs_read"], Cause::Eventfd),
        (&["schedule_hrtimeout_range_clock", "ep_poll", "do_epoll_wait"], Cause::Poll),
        (&["schedule", "do_nanosleep", "hrtimer_nanosleep"], Cause::Timer),
        (&["schedule", "do_wait", "kernel_wait4"], Cause::Child),
        (&["schedule", "do_sigtimedwait", "__x64_sys_rt_sigtimedwait"], Cause::Signal),
        (&["io_schedule", "folio_wait_bit_common", "filemap_read"], Cause::Disk),
        (
            &["io_schedule", "folio_wait_bit_common", "filemap_fault", "exc_page_fault"],
            Cause::PageFault,
        ),
        (&["reclaim_throttle", "shrink_node", "try_charge_memcg", "filemap_fault"], Cause::Memory),
        (&["schedule_timeout", "mem_cgroup_handle_over_high"], Cause::Memory), // 6.1
        (&["schedule_timeout", "__mem_cgroup_handle_over_high"], Cause::Memory),
        (&["folio_wait_bit_common", "shrink_folio_list", "try_to_free_pages"], Cause::Memory),
        (
            &["__mutex_lock.constprop.0", "ext4_evict_inode", "shrink_slab", "try_to_free_pages"],
            Cause::KernelLock,
        ),
        (
            &["schedule", "rwsem_down_read_slowpath", "lock_mm_and_find_vma", "exc_page_fault"],
            Cause::KernelLock,
        ),
        (&["schedule_timeout", "wait_woken", "n_tty_read", "tty_read"], Cause::Tty),
        (&["schedule", "io_cqring_wait", "__do_sys_io_uring_enter"], Cause::IoUring),
        (&["schedule", "throttle_cfs_rq_work", "task_work_run"], Cause::Throttled),
        (&["schedule", "ptrace_stop", "get_signal"], Cause::Stopped),
        (&["schedule", "do_freezer_trap", "get_signal"], Cause::Stopped),
        (&["__schedule", "schedule", "get_signal", "arch_do_signal_or_restart"], Cause::Stopped),
        (&["schedule", "exit_mm", "do_exit", "do_group_exit", "get_signal"], Cause::Other),
        (
            &["schedule_timeout", "do_wait_for_common", "wait_for_completion", "cpuhp_kick_ap"],
            Cause::Other,
        ),
    ] {
        let mut recording = recording(2);
        let kernel_stack = kernel(&mut recording, stack);
        assert_eq!(cause(&recording, &Wait { kernel_stack, ..plain() }), expected, "{stack:?}");
    }
}

/// As where a journal's thread is only looked at when it is woken.
#[test]
fn a_deaf_sleep_that_a_disk_ends_is_for_the_disk() {
    let mut recording = recording(2);
    for (number, device) in [(25, DeviceKind::Storage), (26, DeviceKind::Other)] {
        let info = InterruptInfo { number, device: Some(device), handlers: String::new() };
        recording.interrupts.insert(number, info);
    }
    let kernel_stack = kernel(&mut recording, &["jbd2_journal_commit_transaction", "kjournald2"]);
    let sleep = |state, context| {
        let wake = Some(Wake { context, ..wake_by(8, at(1)) });
        let state = TaskState(state);
        Wait { kind: ThreadKind::Kernel, kernel_stack, state, wake, ..plain() }
    };
    const DEAF: u32 = 2;
    for (state, context, expected) in [
        (DEAF, WakeContext::Hardirq(25), Cause::Disk),
        (DEAF, WakeContext::Softirq(4), Cause::Disk),
        (DEAF, WakeContext::Hardirq(26), Cause::Other),
        (DEAF, WakeContext::Task, Cause::Other),
        // For its next work, whatever that is.
        (1, WakeContext::Hardirq(25), Cause::Other),
        (0x402, WakeContext::Hardirq(25), Cause::Other),
    ] {
        assert_eq!(cause(&recording, &sleep(state, context)), expected, "{state} {context:?}");
    }
}

/// A frozen thread is called away from what it waited for; its registers still say that it waits for it.
#[test]
fn a_thread_that_was_frozen_in_its_sleep_does_not_sleep() {
    let mut recording = recording(2);
    let kernel_stack = kernel(&mut recording, &["schedule", "get_signal"]);
    let wait = Wait { kernel_stack, syscall: syscall(CLOCK_NANOSLEEP, [0; 6]), ..plain() };
    assert_eq!(cause(&recording, &wait), Cause::Stopped);
}

#[test]
fn without_stacks_the_syscall_and_its_file_tell() {
    let fd = |kind| Some(file(kind, 3));
    let args = [5, 1, 0, 0, 0, 0];
    type Row = (u32, [u64; 6], Option<FileId>, u32, Cause);
    const FLOCK: u32 = 73;
    const FCNTL: u32 = 72;
    const SEMTIMEDOP: u32 = 220;
    const MSGRCV: u32 = 70;
    const MQ_TIMEDRECEIVE: u32 = 243;
    let rows: [Row; 21] = [
        (FUTEX, args, None, 1, Cause::Futex),
        (RECVFROM, args, None, 1, Cause::Socket),
        (READ, args, fd(FileKind::Socket), 1, Cause::Socket),
        (READ, args, fd(FileKind::Pipe), 1, Cause::Pipe),
        (READ, args, fd(FileKind::Regular), 2, Cause::Disk),
        (READ, args, fd(FileKind::Regular), 1, Cause::Other),
        (READ, args, None, 1, Cause::Other),
        (POLL, args, None, 1, Cause::Poll),
        (POLL, [0; 6], None, 1, Cause::Timer),
        (EPOLL_WAIT, args, fd(FileKind::Anonymous), 1, Cause::Poll),
        (CLOCK_NANOSLEEP, args, None, 1, Cause::Timer),
        // Its first argument is no descriptor, whatever the record says.
        (WAIT4, args, fd(FileKind::Pipe), 1, Cause::Child),
        (FSYNC, args, fd(FileKind::Regular), 2, Cause::Disk),
        (READ, args, fd(FileKind::Pipe), 4, Cause::Stopped),
        (FLOCK, args, fd(FileKind::Regular), 1, Cause::FileLock),
        // F_SETLKW, F_OFD_SETLKW, F_SETLK.
        (FCNTL, [5, 7, 0, 0, 0, 0], fd(FileKind::Regular), 1, Cause::FileLock),
        (FCNTL, [5, 38, 0, 0, 0, 0], fd(FileKind::Regular), 1, Cause::FileLock),
        (FCNTL, [5, 6, 0, 0, 0, 0], fd(FileKind::Regular), 1, Cause::Other),
        (SEMTIMEDOP, args, None, 1, Cause::SysvSem),
        (MSGRCV, args, None, 1, Cause::SysvMsg),
        (MQ_TIMEDRECEIVE, args, fd(FileKind::Regular), 1, Cause::Mqueue),
    ];
    for (number, args, file, state, expected) in rows {
        let (syscall, state) = (syscall(number, args), TaskState(state));
        let wait = Wait { syscall, file, state, ..plain() };
        assert_eq!(cause(&recording(2), &wait), expected, "{number} {file:?} {state:?}");
    }
}

#[test]
fn an_anonymous_files_name_tells_what_it_is() {
    for (name, expected) in [
        ("anon_inode:[eventfd]", Cause::Eventfd),
        ("anon_inode:[timerfd]", Cause::Timer),
        ("anon_inode:[signalfd]", Cause::Signal),
        ("anon_inode:inotify", Cause::Inotify),
        ("anon_inode:[fanotify]", Cause::Other),
    ] {
        let mut recording = recording(2);
        let id = file(FileKind::Anonymous, 3);
        recording.files.files.insert(id, OpenFile::Named(name.to_owned()));
        let syscall = syscall(READ, [5, 0, 0, 0, 0, 0]);
        let wait = Wait { syscall, file: Some(id), ..plain() };
        assert_eq!(cause(&recording, &wait), expected, "{name}");
    }
}

#[test]
fn a_32_bit_programs_syscalls_are_read_from_their_own_table() {
    let native = Wait { syscall: syscall(240, [1; 6]), ..plain() };
    assert_eq!(cause(&recording(2), &native), Cause::Other, "mq_open");
    let futex = Syscall { table: SyscallTable::Compat, number: 240, args: [1; 6] };
    let compat = Wait { syscall: Some(futex), kind: ThreadKind::User32, ..plain() };
    assert_eq!(cause(&recording(2), &compat), Cause::Futex);
}

#[test]
fn a_kernel_thread_at_rest_is_other_and_shows_its_frame() {
    let mut recording = recording(2);
    let kernel_stack = kernel(&mut recording, &["schedule", "worker_thread", "kthread"]);
    let wait = Wait { kernel_stack, kind: ThreadKind::Kernel, ..plain() };
    assert_eq!(cause(&recording, &wait), Cause::Other);
    assert_eq!(kernel_frame(&recording.stacks, kernel_stack), Some("worker_thread"));
    assert_eq!(kernel_frame(&recording.stacks, StackRef::Failed), None);
    // The journal at rest does not wait for the disk.
    let kernel_stack = kernel(&mut recording, &["schedule", "kjournald2", "kthread"]);
    let wait = Wait { kernel_stack, kind: ThreadKind::Kernel, ..plain() };
    assert_eq!(cause(&recording, &wait), Cause::Other);
}

#[test]
fn a_futex_is_known_by_its_address_and_operation() {
    let private = 128;
    for (command, op) in [
        (private, FutexOp::Wait),
        (9 | 256, FutexOp::WaitBitset),
        (6 | private, FutexOp::LockPi),
        (13, FutexOp::LockPi),
        (11, FutexOp::WaitRequeuePi),
    ] {
        let wait = Wait { syscall: syscall(FUTEX, [0x7f01, command, 0, 0, 0, 0]), ..plain() };
        let expected = WaitedOn::Futex { address: 0x7f01, op, private: command & private != 0 };
        assert_eq!(waited_on(&wait, Cause::Futex), Some(expected));
    }
    // A fault inside the syscall is not a wait on the futex.
    let wait = Wait { syscall: syscall(FUTEX, [0x7f01, 0, 0, 0, 0, 0]), ..plain() };
    assert_eq!(waited_on(&wait, Cause::PageFault), None);
}

#[test]
fn a_poll_is_on_a_file_if_it_is_the_only_one() {
    let socket = FileId { device: 8, inode: 42, kind: FileKind::Socket };
    let poll = Wait { syscall: syscall(POLL, [0x7ffc10, 1, u64::MAX, 0, 0, 0]), ..plain() };
    let of_one = Wait { file: Some(socket), polled_fd: Some(6), ..poll };
    assert_eq!(cause(&recording(2), &of_one), Cause::Poll);
    let expected = WaitedOn::File { fd: 6, file: socket };
    assert_eq!(waited_on(&of_one, Cause::Poll), Some(expected));
    // Nobody could read which file it is; the first argument is no descriptor.
    assert_eq!(waited_on(&poll, Cause::Poll), None);
    let by_argument = Wait { file: Some(socket), ..poll };
    assert_eq!(waited_on(&by_argument, Cause::Poll), None);
}
