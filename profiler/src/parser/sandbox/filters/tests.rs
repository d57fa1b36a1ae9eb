//! What the filters answer to each system call with each argument, by running their programs: nothing is called,
//! so that no error of the kernel's own is taken for the filter's.

use std::collections::BTreeSet;

use seccompiler::sock_filter;

use super::*;

/// What the kernel shows a filter
/// ([`struct seccomp_data`](https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/seccomp.h#L62)).
#[derive(Clone, Copy)]
struct Call {
    number: u32,
    architecture: u32,
    arguments: [u64; 6],
}

impl Call {
    fn new(number: i64, arguments: [u64; 6]) -> Self {
        let number = u32::try_from(number).unwrap();
        Self { number, architecture: ARCHITECTURE, arguments }
    }

    /// The four bytes at an offset, of a little-endian machine.
    fn word(&self, offset: u32) -> u32 {
        let argument = |offset: u32| self.arguments[(offset as usize - 16) / 8];
        match offset {
            0 => self.number,
            4 => self.architecture,
            // The instruction's address, at which no filter of ours looks.
            16.. if offset.is_multiple_of(8) => argument(offset) as u32,
            16.. => (argument(offset) >> 32) as u32,
            _ => panic!("a filter looks at byte {offset}"),
        }
    }
}

/// `AUDIT_ARCH_…`
const ARCHITECTURE: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
const ALLOWED: u32 = libc::SECCOMP_RET_ALLOW;
const REFUSED: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();

/// Runs a filter as the kernel does, as far as filters of seccompiler go.
fn run(program: &[sock_filter], call: Call) -> u32 {
    let (mut at, mut accumulator) = (0, 0_u32);
    loop {
        let sock_filter { code, jt, jf, k } = program[at];
        at += 1;
        let jump = |is_so: bool| usize::from(if is_so { jt } else { jf });
        match code {
            0x20 => accumulator = call.word(k),
            0x54 => accumulator &= k,
            0x05 => at += k as usize,
            0x15 => at += jump(accumulator == k),
            0x25 => at += jump(accumulator > k),
            0x35 => at += jump(accumulator >= k),
            0x45 => at += jump(accumulator & k != 0),
            0x06 => return k,
            _ => panic!("a filter has instruction {code:#x}"),
        }
    }
}

/// Numbers beyond all that any kernel has.
const NUMBERS: std::ops::Range<i64> = 0..1024;

fn parser(number: i64, arguments: [u64; 6]) -> bool {
    is_allowed(&parser_filter().unwrap(), number, arguments)
}

fn is_allowed(program: &[sock_filter], number: i64, arguments: [u64; 6]) -> bool {
    match run(program, Call::new(number, arguments)) {
        ALLOWED => true,
        REFUSED => false,
        other => panic!("the filter says {other:#x}"),
    }
}

/// The calls that a parser may make with any arguments. Whoever adds one has to say why here.
const WITH_ANY_ARGUMENTS: [i64; 37] = [
    // They concern what is open, and nothing can be opened to be written.
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_lseek,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    // There is no other socket, and that one is connected.
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    // They tell what anybody may know.
    libc::SYS_clock_gettime,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_newfstatat,
    libc::SYS_readlinkat,
    libc::SYS_sched_getaffinity,
    libc::SYS_statx,
    // They concern the calling process or thread, and make no memory code.
    libc::SYS_brk,
    libc::SYS_clock_nanosleep,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
];
/// The same, by calls that only this machine has.
#[cfg(target_arch = "x86_64")]
const OLDER: [i64; 4] = [libc::SYS_lstat, libc::SYS_poll, libc::SYS_readlink, libc::SYS_stat];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: [i64; 0] = [];
/// The calls whose arguments decide.
const BY_ARGUMENTS: [i64; 5] =
    [libc::SYS_fcntl, libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_openat, libc::SYS_tgkill];
#[cfg(target_arch = "x86_64")]
const OLDER_BY_ARGUMENTS: [i64; 1] = [libc::SYS_open];
#[cfg(not(target_arch = "x86_64"))]
const OLDER_BY_ARGUMENTS: [i64; 0] = [];

#[test]
fn a_parser_may_make_these_calls_and_no_other() {
    let program = parser_filter().unwrap();
    let known: BTreeSet<i64> = WITH_ANY_ARGUMENTS.into_iter().chain(OLDER).collect();
    let decided: BTreeSet<i64> = BY_ARGUMENTS.into_iter().chain(OLDER_BY_ARGUMENTS).collect();
    for number in NUMBERS {
        for arguments in [[0; 6], [u64::MAX; 6], [1, 2, 3, 4, 5, 6]] {
            let is_known = known.contains(&number);
            if !decided.contains(&number) {
                assert_eq!(is_allowed(&program, number, arguments), is_known, "{number}");
            }
        }
    }
}

/// The same numbers mean other calls by the other ways into the kernel.
#[test]
fn no_filter_lets_calls_through_that_come_another_way() {
    for program in [parser_filter().unwrap(), reader_filter().unwrap()] {
        for number in NUMBERS {
            let call = Call::new(number, [0; 6]);
            // 32-bit calls, and those of machines that this is not.
            for architecture in [0x4000_0003, 0x4000_0028, !ARCHITECTURE] {
                let answer = run(&program, Call { architecture, ..call });
                assert_eq!(answer, libc::SECCOMP_RET_KILL_PROCESS, "{number} {architecture:#x}");
            }
        }
    }
}

/// `__X32_SYSCALL_BIT`: x86-64 has each call a second time, with pointers of 32 bits.
#[test]
fn a_parser_may_make_no_call_with_short_pointers() {
    for number in NUMBERS {
        assert!(!parser(number | 0x4000_0000, [0; 6]), "{number}");
    }
}

#[test]
fn a_parser_may_open_files_to_read_them_alone() {
    let calls = [(libc::SYS_openat, 2)];
    #[cfg(target_arch = "x86_64")]
    let calls = [calls[0], (libc::SYS_open, 1)];
    let writing = [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC, libc::O_APPEND];
    for (call, position) in calls {
        for bit in 0..32 {
            let flag = 1_i32 << bit;
            let mut arguments = [u64::MAX; 6];
            for more in [0, libc::O_CLOEXEC | libc::O_PATH] {
                arguments[position] = u64::from((flag | more).cast_unsigned());
                assert_eq!(parser(call, arguments), !writing.contains(&flag), "{call} {flag:#x}");
            }
        }
        let mut arguments = [0; 6];
        arguments[position] = u64::from(libc::O_ACCMODE.cast_unsigned());
        assert!(!parser(call, arguments), "{call}");
    }
}

#[test]
fn a_parser_may_have_no_memory_that_is_code_or_shared_to_be_written() {
    for protection in 0..32_u64 {
        for flags in 0..64_u64 {
            let arguments = [0, 4096, protection, flags, u64::MAX, 0];
            let has = |bits: i32| protection & u64::from(bits.cast_unsigned()) != 0;
            let kind = flags & u64::from(libc::MAP_TYPE.cast_unsigned());
            let is_anonymous = flags & u64::from(libc::MAP_ANONYMOUS.cast_unsigned()) != 0;
            // Numbers of the kernel: 1 is shared, 2 private.
            let expected = !has(libc::PROT_EXEC)
                && (kind == 2 || (kind == 1 && !is_anonymous && !has(libc::PROT_WRITE)));
            assert_eq!(parser(libc::SYS_mmap, arguments), expected, "{protection:#x} {flags:#x}");
        }
    }
    for bit in 0..32 {
        let protection = 1_i32 << bit;
        let arguments = [0, 4096, u64::from(protection.cast_unsigned()), 0, 0, 0];
        let is_allowed = parser(libc::SYS_mprotect, arguments);
        assert_eq!(is_allowed, protection != libc::PROT_EXEC, "{protection:#x}");
    }
}

#[test]
fn a_parser_may_ask_for_little_about_what_is_open() {
    let allowed = [libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_GETFL, libc::F_GET_SEALS];
    for command in 0..4096 {
        let arguments = [3, u64::from(i32::cast_unsigned(command)), u64::MAX, 0, 0, 0];
        assert_eq!(parser(libc::SYS_fcntl, arguments), allowed.contains(&command), "{command}");
    }
}

#[test]
fn nobody_may_send_a_signal_but_to_itself() {
    let itself = std::process::id();
    for program in [parser_filter().unwrap(), reader_filter().unwrap()] {
        for process in [itself, itself + 1, 0, 1, u32::MAX, i32::MAX.cast_unsigned()] {
            let arguments = [process.into(), itself.into(), 9, 0, 0, 0];
            let is_allowed = is_allowed(&program, libc::SYS_tgkill, arguments);
            assert_eq!(is_allowed, process == itself, "{process}");
        }
    }
}

/// The calls that the reader may not make, whatever their arguments: those that change files, other processes
/// or the machine.
#[rustfmt::skip]
const CHANGING: [i64; 80] = [
    libc::SYS_acct, libc::SYS_add_key, libc::SYS_adjtimex, libc::SYS_bpf, libc::SYS_chroot,
    libc::SYS_clock_adjtime, libc::SYS_clock_settime, libc::SYS_connect, libc::SYS_delete_module,
    libc::SYS_execve, libc::SYS_execveat, libc::SYS_fchmod, libc::SYS_fchmodat, SYS_FCHMODAT2,
    libc::SYS_fchown, libc::SYS_fchownat, libc::SYS_finit_module, libc::SYS_fremovexattr,
    libc::SYS_fsconfig, libc::SYS_fsetxattr, libc::SYS_fsmount, libc::SYS_fsopen, libc::SYS_fspick,
    libc::SYS_init_module, libc::SYS_io_setup, libc::SYS_io_uring_setup, libc::SYS_ioprio_set,
    libc::SYS_kcmp, libc::SYS_kexec_load, libc::SYS_keyctl, libc::SYS_kill, libc::SYS_linkat,
    libc::SYS_lremovexattr, libc::SYS_lsetxattr, libc::SYS_migrate_pages, libc::SYS_mkdirat,
    libc::SYS_mknodat, libc::SYS_mount, libc::SYS_mount_setattr, libc::SYS_move_mount,
    libc::SYS_move_pages, libc::SYS_open_by_handle_at, libc::SYS_open_tree,
    libc::SYS_perf_event_open, libc::SYS_pidfd_getfd, libc::SYS_pidfd_send_signal,
    libc::SYS_pivot_root, libc::SYS_process_madvise, libc::SYS_process_mrelease,
    libc::SYS_process_vm_writev, libc::SYS_ptrace, libc::SYS_pwrite64, libc::SYS_pwritev,
    libc::SYS_pwritev2, libc::SYS_quotactl, libc::SYS_reboot, libc::SYS_removexattr,
    libc::SYS_renameat2, libc::SYS_request_key, libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo, libc::SYS_sched_setaffinity, libc::SYS_sched_setattr,
    libc::SYS_sched_setparam, libc::SYS_sched_setscheduler, libc::SYS_setdomainname,
    libc::SYS_sethostname, libc::SYS_setns, libc::SYS_setpriority, libc::SYS_settimeofday,
    libc::SYS_setxattr, libc::SYS_socket, libc::SYS_swapoff, libc::SYS_swapon, libc::SYS_symlinkat,
    libc::SYS_tkill, libc::SYS_truncate, libc::SYS_umount2, libc::SYS_unlinkat, libc::SYS_unshare,
];

#[test]
fn the_reader_may_make_no_call_that_changes_something() {
    let program = reader_filter().unwrap();
    let others = [libc::SYS_userfaultfd, libc::SYS_utimensat];
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
    for number in CHANGING.into_iter().chain(others).chain(older) {
        for arguments in [[0; 6], [u64::MAX; 6], [1, 2, 3, 4, 5, 6]] {
            assert!(!is_allowed(&program, number, arguments), "{number}");
        }
    }
}

#[test]
fn the_reader_may_open_files_to_read_them_alone_and_limit_itself() {
    let program = reader_filter().unwrap();
    let calls = [(libc::SYS_openat, 2)];
    #[cfg(target_arch = "x86_64")]
    let calls = [calls[0], (libc::SYS_open, 1)];
    // To append alone, without a right to write, is to read.
    let writing = [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC];
    for (call, position) in calls {
        for bit in 0..32 {
            let flag = 1_i32 << bit;
            let mut arguments = [u64::MAX; 6];
            arguments[position] = u64::from(flag.cast_unsigned());
            let is_allowed = is_allowed(&program, call, arguments);
            assert_eq!(is_allowed, !writing.contains(&flag), "{call} {flag:#x}");
        }
    }
    for process in [0, 1, u64::from(std::process::id())] {
        let is_allowed = is_allowed(&program, libc::SYS_prlimit64, [process, 7, 0, 0, 0, 0]);
        assert_eq!(is_allowed, process == 0, "{process}");
    }
}
