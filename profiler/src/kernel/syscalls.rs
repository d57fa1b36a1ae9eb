//! Which syscalls take a file descriptor first, which one points to its timeout where, and which
//! map something. The programs look it up by number, so they hold no numbers of any architecture.

use std::iter;

use profiler_ebpf::syscalls::{
    COMPAT_BASE, FIRST_ARG_IS_FD, IS_FUTEX, MAPS, POLLS, TABLE_LEN, TIMESPEC_ARG_SHIFT,
    WAITS_FOR_EPOLL,
};

/// Syscalls that can block on the file that their first argument names. The kernel half records
/// that file; `TAKE_FD` in `crates/analysis/src/blame/cause/syscalls.rs` is the list by which the
/// analysis uses it.
const FD_FIRST: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_ioctl,
    libc::SYS_connect,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_vmsplice,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_getdents64,
    libc::SYS_io_uring_enter,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_timedreceive,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_getdents,
];

/// Syscalls with a `timespec` to wait for, and the index of the argument that points to it.
const TIMESPEC: &[(i64, u32)] = &[
    (libc::SYS_nanosleep, 0),
    (libc::SYS_clock_nanosleep, 2),
    (libc::SYS_futex, 3),
    (libc::SYS_ppoll, 2),
    (libc::SYS_pselect6, 4),
    (libc::SYS_epoll_pwait2, 3),
    (libc::SYS_rt_sigtimedwait, 2),
    (libc::SYS_semtimedop, 3),
    (libc::SYS_mq_timedreceive, 4),
    (libc::SYS_mq_timedsend, 4),
    (libc::SYS_recvmmsg, 4),
];

/// Syscalls of 32-bit x86 programs that can block on the file of their first argument, by number:
/// <https://github.com/torvalds/linux/blob/v6.12/arch/x86/entry/syscalls/syscall_32.tbl>.
/// Their timeouts have another layout and are left out.
#[cfg(target_arch = "x86_64")]
const COMPAT_FD_FIRST: &[i64] = &[
    3, 4, 54, 55, 118, 143, 145, 146, 148, 180, 181, 221, 256, 313, 315, 316, 319, 324, 333, 334,
    337, 345, 362, 364, 369, 370, 371, 372, 378, 379, 441,
];
/// 32-bit Arm programs are seen and counted as such; what they wait on is not looked up.
#[cfg(target_arch = "aarch64")]
const COMPAT_FD_FIRST: &[i64] = &[];

/// Syscalls that poll an array of files.
const POLLING: &[i64] = &[
    libc::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// Those of 32-bit x86 programs: `poll`, `ppoll`, `ppoll_time64`.
#[cfg(target_arch = "x86_64")]
const COMPAT_POLLING: &[i64] = &[168, 309, 414];
#[cfg(target_arch = "aarch64")]
const COMPAT_POLLING: &[i64] = &[];

/// Syscalls that wait for the files of an `epoll`.
const EPOLL: &[i64] = &[
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
];

/// Those of 32-bit x86 programs: `epoll_wait`, `epoll_pwait`, `epoll_pwait2`.
#[cfg(target_arch = "x86_64")]
const COMPAT_EPOLL: &[i64] = &[256, 319, 441];
#[cfg(target_arch = "aarch64")]
const COMPAT_EPOLL: &[i64] = &[];

/// Syscalls that map something. `mmap2` of 32-bit x86 programs; those of 32-bit Arm are not looked
/// up.
const MAPPING: (i64, Option<i64>) =
    (libc::SYS_mmap, if cfg!(target_arch = "x86_64") { Some(192) } else { None });

/// The table, by number.
pub(super) fn table() -> Vec<u32> {
    let mut table = vec![0; TABLE_LEN as usize];
    let native = FD_FIRST.iter().map(|number| (0, *number, FIRST_ARG_IS_FD));
    let compat =
        COMPAT_FD_FIRST.iter().map(|number| (COMPAT_BASE as usize, *number, FIRST_ARG_IS_FD));
    let timespec =
        TIMESPEC.iter().map(|(number, index)| (0, *number, (index + 1) << TIMESPEC_ARG_SHIFT));
    let (mapping, compat_mapping) = MAPPING;
    let mapping = iter::once((0, mapping, MAPS))
        .chain(compat_mapping.map(|number| (COMPAT_BASE as usize, number, MAPS)));
    let futex = iter::once((0, libc::SYS_futex, IS_FUTEX));
    let polling = (POLLING.iter().map(|number| (0, *number, POLLS)))
        .chain(COMPAT_POLLING.iter().map(|number| (COMPAT_BASE as usize, *number, POLLS)));
    let epoll = (EPOLL.iter().map(|number| (0, *number, WAITS_FOR_EPOLL)))
        .chain(COMPAT_EPOLL.iter().map(|number| (COMPAT_BASE as usize, *number, WAITS_FOR_EPOLL)));
    let files = native.chain(compat).chain(polling).chain(epoll);
    let all = files.chain(timespec).chain(mapping).chain(futex);
    for (base, number, about) in all {
        let entry = usize::try_from(number).ok().and_then(|number| table.get_mut(base + number));
        if let Some(entry) = entry {
            *entry |= about;
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use offwake_analysis::blame::cause::syscalls;
    use offwake_recording::{Syscall, SyscallTable};
    use profiler_ebpf::{
        code_epoch::may_map_code,
        syscalls::{COMPAT_BASE, FIRST_ARG_IS_FD, TIMESPEC_ARG_MASK, TIMESPEC_ARG_SHIFT},
    };

    use super::*;

    #[test]
    fn the_table_knows_what_a_syscall_waits_on() {
        let table = table();
        let about = |number: i64| table[usize::try_from(number).unwrap()];
        assert_eq!(about(libc::SYS_recvfrom), FIRST_ARG_IS_FD);
        assert_eq!(about(libc::SYS_futex) >> TIMESPEC_ARG_SHIFT & TIMESPEC_ARG_MASK, 4);
        assert_eq!(about(libc::SYS_futex) & FIRST_ARG_IS_FD, 0);
        assert_eq!(about(libc::SYS_futex) & IS_FUTEX, IS_FUTEX);
        assert_eq!(about(libc::SYS_nanosleep) & IS_FUTEX, 0);
        // A queue and a timeout.
        assert_eq!(about(libc::SYS_mq_timedsend) & FIRST_ARG_IS_FD, FIRST_ARG_IS_FD);
        assert_eq!(about(libc::SYS_mq_timedsend) >> TIMESPEC_ARG_SHIFT & TIMESPEC_ARG_MASK, 5);
        assert_eq!(about(libc::SYS_mmap), MAPS);
        // A timeout too.
        assert_eq!(about(libc::SYS_ppoll) & (POLLS | FIRST_ARG_IS_FD), POLLS);
        assert_eq!(about(libc::SYS_ppoll) >> TIMESPEC_ARG_SHIFT & TIMESPEC_ARG_MASK, 3);
        assert_eq!(about(libc::SYS_pselect6) & POLLS, 0);
        assert_eq!(about(libc::SYS_exit_group), 0);
        assert_eq!(table.len(), TABLE_LEN as usize);
    }

    /// `sendfile` and `copy_file_range` block on either of two files, so their first argument alone
    /// would be a guess. The kernel half records no file for them.
    #[test]
    fn both_lists_of_syscalls_that_take_a_file_first_are_the_same() {
        const OF_TWO_FILES: [&str; 2] = ["sendfile", "copy_file_range"];

        let mut differing = Vec::new();
        for number in 0..COMPAT_BASE {
            let syscall = Syscall { table: SyscallTable::Native, number, args: [0; 6] };
            let Some(name) = syscalls::name(&syscall) else { continue };
            let is_recorded = FD_FIRST.contains(&i64::from(number));
            if syscalls::takes_fd(name) != is_recorded && !OF_TWO_FILES.contains(&name) {
                differing.push(name);
            }
        }
        assert!(differing.is_empty(), "{differing:?}");
    }

    #[test]
    fn both_lists_of_syscalls_that_poll_are_the_same() {
        let table = table();
        for (numbers, base, kind) in [
            (0..COMPAT_BASE, 0, SyscallTable::Native),
            (0..TABLE_LEN - COMPAT_BASE, COMPAT_BASE, SyscallTable::Compat),
        ] {
            for number in numbers {
                let syscall = Syscall { table: kind, number, args: [0; 6] };
                let is_poll = syscalls::name(&syscall).is_some_and(syscalls::polls);
                let is_looked_up = table[(base + number) as usize] & POLLS != 0;
                let is_left_out = cfg!(target_arch = "aarch64") && kind == SyscallTable::Compat;
                assert!(is_looked_up == is_poll || is_left_out, "{kind:?} {number}");
            }
        }
    }

    #[test]
    fn every_number_fits_its_half() {
        for number in FD_FIRST.iter().chain(TIMESPEC.iter().map(|(number, _)| number)) {
            assert!(*number < i64::from(COMPAT_BASE), "{number}");
        }
        for number in COMPAT_FD_FIRST {
            assert!(*number < i64::from(TABLE_LEN - COMPAT_BASE), "{number}");
        }
    }

    #[test]
    fn what_a_loader_maps_may_be_code_and_what_is_shared_is_not() {
        let brings = |protection: i32, flags: i32| {
            may_map_code(protection.cast_unsigned().into(), flags.cast_unsigned().into())
        };
        // ld.so of glibc, of musl; a JIT that writes by one mapping and runs by another.
        assert!(brings(libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_DENYWRITE));
        assert!(brings(libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE));
        assert!(brings(libc::PROT_READ | libc::PROT_EXEC, libc::MAP_SHARED));
        // A database, an allocator, a thread's stack.
        assert!(!brings(libc::PROT_READ, libc::MAP_SHARED));
        assert!(!brings(libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED_VALIDATE));
        assert!(!brings(libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS));
        assert!(!brings(libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS));
    }
}
