//! Syscall numbers → names, and what the names say about arguments.
//!
//! The only place that names the `syscalls` crate.

use offwake_recording::{Syscall, SyscallTable};
#[cfg(target_arch = "aarch64")]
use syscalls::{aarch64::Sysno as Native, arm::Sysno as Compat};
#[cfg(not(target_arch = "aarch64"))]
use syscalls::{x86::Sysno as Compat, x86_64::Sysno as Native};

/// The name of a syscall; none if the table has no such number.
#[must_use]
pub fn name(syscall: &Syscall) -> Option<&'static str> {
    let number = syscall.number as usize;
    match syscall.table {
        SyscallTable::Native => Native::new(number).map(|sysno| sysno.name()),
        SyscallTable::Compat => Compat::new(number).map(|sysno| sysno.name()),
    }
}

/// Whether the first argument is a file descriptor that the syscall may wait on.
#[must_use]
pub fn takes_fd(name: &str) -> bool {
    TAKE_FD.contains(&name)
}

/// Whether the first argument points to an array of files that the syscall waits for any of. `POLLS` in
/// `profiler-ebpf/src/syscalls.rs` marks them for the kernel half, which records the file where
/// there is one alone.
#[must_use]
pub fn polls(name: &str) -> bool {
    matches!(name, "poll" | "ppoll" | "ppoll_time64")
}

/// The descriptor that a wait's syscall names: its first argument, or the only one that it polls
/// (`polled_fd`). None if the first argument is something else.
#[must_use]
pub fn descriptor(syscall: &Syscall, polled_fd: Option<u32>) -> Option<u32> {
    // An fd is an `unsigned int`: the upper half of the register is not part of it.
    let first = || name(syscall).is_some_and(takes_fd).then_some(syscall.args[0] as u32);
    polled_fd.or_else(first)
}

/// Whether it takes something in, and may wait until there is something.
#[must_use]
pub fn reads(name: &str) -> bool {
    const READS: &[&str] = &[
        "mq_timedreceive",
        "mq_timedreceive_time64",
        "msgrcv",
        "read",
        "readv",
        "recv",
        "recvfrom",
        "recvmmsg",
        "recvmmsg_time64",
        "recvmsg",
    ];
    READS.contains(&name)
}

/// Whether it puts something out, and may wait until there is room for it.
#[must_use]
pub fn writes(name: &str) -> bool {
    const WRITES: &[&str] = &["send", "sendmmsg", "sendmsg", "sendto", "write", "writev"];
    WRITES.contains(&name)
}

/// The commands with which `fcntl` waits for a lock
/// ([`include/uapi/asm-generic/fcntl.h`](https://github.com/torvalds/linux/blob/v6.12/include/uapi/asm-generic/fcntl.h#L100)):
/// `F_SETLKW`, `F_SETLKW64` of 32-bit programs, `F_OFD_SETLKW`.
pub(super) const FCNTL_WAIT_FOR_LOCK: &[u32] = &[7, 14, 38];

/// Whether a syscall waits for a lock on a file, should somebody else have it.
#[must_use]
pub fn waits_for_file_lock(syscall: &Syscall) -> bool {
    match name(syscall) {
        Some("flock") => true,
        Some("fcntl" | "fcntl64") => FCNTL_WAIT_FOR_LOCK.contains(&(syscall.args[1] as u32)),
        _ => false,
    }
}

/// `exit(1)` and `wait4(1, …)` have a first argument too. `FD_FIRST` in
/// `profiler/src/kernel/syscalls.rs` is the list by which the kernel half records that file.
const TAKE_FD: &[&str] = &[
    "accept",
    "accept4",
    "connect",
    "copy_file_range",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "fallocate",
    "fcntl",
    "fcntl64",
    "fdatasync",
    "flock",
    "fsync",
    "ftruncate",
    "getdents",
    "getdents64",
    "io_uring_enter",
    "ioctl",
    "mq_timedreceive",
    "mq_timedreceive_time64",
    "mq_timedsend",
    "mq_timedsend_time64",
    "pread64",
    "preadv",
    "preadv2",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "read",
    "readv",
    "recv",
    "recvfrom",
    "recvmmsg",
    "recvmmsg_time64",
    "recvmsg",
    "send",
    "sendfile",
    "sendfile64",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "splice",
    "sync_file_range",
    "syncfs",
    "tee",
    "vmsplice",
    "write",
    "writev",
];

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::name;
    use offwake_recording::{Syscall, SyscallTable};

    #[test]
    fn each_table_has_its_own_numbers() {
        // arch/x86/entry/syscalls/syscall_{64,32}.tbl, Linux 6.12
        for (table, number, expected) in [
            (SyscallTable::Native, 202, Some("futex")),
            (SyscallTable::Native, 449, Some("futex_waitv")),
            (SyscallTable::Compat, 240, Some("futex")),
            (SyscallTable::Compat, 202, Some("getegid32")),
            (SyscallTable::Native, 1_000_000, None),
        ] {
            assert_eq!(name(&Syscall { table, number, args: [0; 6] }), expected, "{number}");
        }
    }
}
