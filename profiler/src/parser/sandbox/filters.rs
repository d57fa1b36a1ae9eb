//! Which system calls a process may make that parses, and which one may not that reads.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};

/// `fchmodat2`, since Linux 6.6: 452 on every architecture.
const SYS_FCHMODAT2: i64 = 452;

/// The system calls that remain allowed. All others fail with `EPERM`.
pub(super) fn parser_filter() -> Result<BpfProgram, BackendError> {
    let any = [
        // Sending and receiving messages.
        libc::SYS_recvfrom,
        libc::SYS_recvmsg,
        libc::SYS_sendmsg,
        libc::SYS_sendto,
        libc::SYS_ppoll,
        // Reading files, and writing to what is open: the socket, and /dev/null.
        libc::SYS_close,
        libc::SYS_fstat,
        libc::SYS_lseek,
        libc::SYS_newfstatat,
        libc::SYS_pread64,
        libc::SYS_read,
        libc::SYS_readlinkat,
        libc::SYS_readv,
        libc::SYS_statx,
        libc::SYS_write,
        libc::SYS_writev,
        // Managing memory.
        libc::SYS_brk,
        libc::SYS_madvise,
        libc::SYS_mremap,
        libc::SYS_munmap,
        // What the standard library and the C library do by themselves.
        libc::SYS_clock_gettime,
        libc::SYS_clock_nanosleep,
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_futex,
        libc::SYS_getpid,
        libc::SYS_getrandom,
        libc::SYS_gettid,
        libc::SYS_restart_syscall,
        libc::SYS_rseq,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sched_getaffinity,
        libc::SYS_sched_yield,
        libc::SYS_set_robust_list,
        libc::SYS_sigaltstack,
    ];
    #[cfg(target_arch = "x86_64")]
    let older =
        [libc::SYS_lstat, libc::SYS_open, libc::SYS_poll, libc::SYS_readlink, libc::SYS_stat];
    #[cfg(not(target_arch = "x86_64"))]
    let older: [i64; 0] = [];
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        any.into_iter().chain(older).map(|call| (call, Vec::new())).collect();
    // A program that aborts sends the signal to itself. Without Landlock's scopes it could send one
    // to every process of its user.
    let itself = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, vec![rule([equals(0, itself)?])?]);
    // The other commands lock files, choose who gets signals, and make pipes larger.
    let commands = [libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_GETFL, libc::F_GET_SEALS]
        .map(|command| rule([equals(1, u64::from(command.cast_unsigned()))?]));
    rules.insert(libc::SYS_fcntl, commands.into_iter().collect::<Result<_, _>>()?);
    let writing = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND;
    rules.insert(libc::SYS_openat, vec![rule([has_none(2, writing)?])?]);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, vec![rule([has_none(1, writing)?])?]);
    // No memory can become code that was not in the program when it began, and none is shared but
    // that of files, to be read: what is shared does not count as the process's data.
    let kind = libc::MAP_TYPE | libc::MAP_ANONYMOUS;
    rules.insert(
        libc::SYS_mmap,
        vec![
            rule([has_none(2, libc::PROT_EXEC)?, has_only(3, libc::MAP_TYPE, libc::MAP_PRIVATE)?])?,
            rule([
                has_none(2, libc::PROT_EXEC | libc::PROT_WRITE)?,
                has_only(3, kind, libc::MAP_SHARED)?,
            ])?,
        ],
    );
    rules.insert(libc::SYS_mprotect, vec![rule([has_none(2, libc::PROT_EXEC)?])?]);
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, refused, SeccompAction::Allow, architecture)?.try_into()
}

/// The system calls that the reader may not make. It has no use for them, and they do more than read.
/// Landlock is no help: who is in a domain of its own may not look into processes that are not.
pub(super) fn reader_filter() -> Result<BpfProgram, BackendError> {
    let refused = [
        libc::SYS_acct,
        libc::SYS_add_key,
        libc::SYS_adjtimex,
        libc::SYS_bpf,
        libc::SYS_chroot,
        libc::SYS_clock_adjtime,
        libc::SYS_clock_settime,
        libc::SYS_connect,
        libc::SYS_delete_module,
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_fchmod,
        libc::SYS_fchmodat,
        SYS_FCHMODAT2,
        libc::SYS_fchown,
        libc::SYS_fchownat,
        libc::SYS_finit_module,
        libc::SYS_fremovexattr,
        libc::SYS_fsconfig,
        libc::SYS_fsetxattr,
        libc::SYS_fsmount,
        libc::SYS_fsopen,
        libc::SYS_fspick,
        libc::SYS_init_module,
        libc::SYS_io_setup,
        libc::SYS_io_uring_setup,
        libc::SYS_ioprio_set,
        libc::SYS_kcmp,
        libc::SYS_kexec_load,
        libc::SYS_keyctl,
        libc::SYS_kill,
        libc::SYS_linkat,
        libc::SYS_lremovexattr,
        libc::SYS_lsetxattr,
        libc::SYS_migrate_pages,
        libc::SYS_mkdirat,
        libc::SYS_mknodat,
        libc::SYS_mount,
        libc::SYS_mount_setattr,
        libc::SYS_move_mount,
        libc::SYS_move_pages,
        libc::SYS_open_by_handle_at,
        libc::SYS_open_tree,
        libc::SYS_perf_event_open,
        libc::SYS_pidfd_getfd,
        libc::SYS_pidfd_send_signal,
        libc::SYS_pivot_root,
        libc::SYS_process_madvise,
        libc::SYS_process_mrelease,
        libc::SYS_process_vm_writev,
        libc::SYS_ptrace,
        // What is open for writing is written to at its end alone: the socket, and copies in memory.
        libc::SYS_pwrite64,
        libc::SYS_pwritev,
        libc::SYS_pwritev2,
        libc::SYS_quotactl,
        libc::SYS_reboot,
        libc::SYS_removexattr,
        libc::SYS_renameat2,
        libc::SYS_request_key,
        libc::SYS_rt_sigqueueinfo,
        libc::SYS_rt_tgsigqueueinfo,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setattr,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setscheduler,
        libc::SYS_setdomainname,
        libc::SYS_sethostname,
        libc::SYS_setns,
        libc::SYS_setpriority,
        libc::SYS_settimeofday,
        libc::SYS_setxattr,
        libc::SYS_socket,
        libc::SYS_swapoff,
        libc::SYS_swapon,
        libc::SYS_symlinkat,
        libc::SYS_tkill,
        libc::SYS_truncate,
        libc::SYS_umount2,
        libc::SYS_unlinkat,
        libc::SYS_unshare,
        libc::SYS_userfaultfd,
        libc::SYS_utimensat,
    ];
    #[cfg(target_arch = "x86_64")]
    let older = [
        libc::SYS_chmod,
        libc::SYS_chown,
        libc::SYS_creat,
        libc::SYS_futimesat,
        libc::SYS_lchown,
        libc::SYS_link,
        libc::SYS_mkdir,
        libc::SYS_mknod,
        libc::SYS_rename,
        libc::SYS_renameat,
        libc::SYS_symlink,
        libc::SYS_unlink,
        libc::SYS_utime,
        libc::SYS_utimes,
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let older: [i64; 0] = [];
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        refused.into_iter().chain(older).map(|call| (call, Vec::new())).collect();
    // A program that aborts sends the signal to itself.
    let itself = u64::from(std::process::id());
    let others = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, itself)?;
    rules.insert(libc::SYS_tgkill, vec![rule([others])?]);
    // Limits of its own are asked for as a thread starts. Those of others are theirs.
    let of_others = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![rule([of_others])?]);
    // No file is opened to be written, nor the memory of a process.
    rules.insert(libc::SYS_openat, writing_rules(2)?);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, writing_rules(1)?);
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture)?.try_into()
}

/// Rules that apply if this argument has flags to open something for writing.
fn writing_rules(flags: u8) -> Result<Vec<SeccompRule>, BackendError> {
    let accesses = [libc::O_WRONLY, libc::O_RDWR].map(|access| (libc::O_ACCMODE, access));
    let made = [libc::O_CREAT, libc::O_TRUNC].map(|flag| (flag, flag));
    (accesses.into_iter().chain(made))
        .map(|(bits, set)| rule([has_only(flags, bits, set)?]))
        .collect()
}

/// A rule that allows a system call if all of this is true of its arguments.
fn rule<const N: usize>(conditions: [SeccompCondition; N]) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions.into())
}

/// Whether an argument, of which the kernel looks at 32 bits, is this number.
fn equals(argument: u8, number: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, number)
}

/// Whether an argument has none of these bits.
fn has_none(argument: u8, bits: i32) -> Result<SeccompCondition, BackendError> {
    has_only(argument, bits, 0)
}

/// Whether an argument has of these bits only those that are in `set`.
fn has_only(argument: u8, bits: i32, set: i32) -> Result<SeccompCondition, BackendError> {
    let masked = SeccompCmpOp::MaskedEq(u64::from(bits.cast_unsigned()));
    let set = u64::from(set.cast_unsigned());
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, masked, set)
}
