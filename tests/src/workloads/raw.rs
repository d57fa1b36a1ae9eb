//! Syscalls without libc's wrappers.
//!
//! The wrappers keep no frame pointer, so a walk by frame pointers skips their caller. Made inline,
//! the syscall instruction is in the workload's own function, and the whole stack can be walked.

/// Makes a syscall; the result is the kernel's own, `-errno` on failure.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn syscall(number: libc::c_long, args: [usize; 4]) -> isize {
    let result: isize;
    // SAFETY: the kernel clobbers rcx and r11 alone; what the arguments point to is the caller's
    // affair: all callers are in this file and pass what the syscall wants.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result
}

/// Makes a syscall through libc, on machines where nobody wrote the instruction out.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(super) fn syscall(number: libc::c_long, args: [usize; 4]) -> isize {
    // SAFETY: as above.
    let result = unsafe { libc::syscall(number, args[0], args[1], args[2], args[3]) };
    if result < 0 {
        -(std::io::Error::last_os_error().raw_os_error().unwrap_or(0) as isize)
    } else {
        result as isize
    }
}

use std::{os::fd::RawFd, sync::atomic::AtomicU32, time::Duration};

/// Sleeps in the kernel while `word` is `expected`. The futex is shared between processes.
#[inline(always)]
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32) -> isize {
    let operation = libc::FUTEX_WAIT as usize;
    syscall(libc::SYS_futex, [word.as_ptr() as usize, operation, expected as usize, 0])
}

/// Wakes at most `count` threads that wait on `word`.
#[inline(always)]
pub(crate) fn futex_wake(word: &AtomicU32, count: u32) -> isize {
    let operation = libc::FUTEX_WAKE as usize;
    syscall(libc::SYS_futex, [word.as_ptr() as usize, operation, count as usize, 0])
}

/// Reads up to eight bytes; returns how many, 0 at the end, or `-errno`.
#[inline(always)]
pub(super) fn read(fd: RawFd, bytes: &mut [u8; 8]) -> isize {
    syscall(libc::SYS_read, [fd as usize, bytes.as_mut_ptr() as usize, bytes.len(), 0])
}

/// Writes eight bytes; returns how many, or `-errno`.
#[inline(always)]
pub(super) fn write(fd: RawFd, bytes: &[u8; 8]) -> isize {
    syscall(libc::SYS_write, [fd as usize, bytes.as_ptr() as usize, bytes.len(), 0])
}

/// Sleeps for `length`.
#[inline(always)]
pub(crate) fn nanosleep(length: Duration) -> isize {
    let time = libc::timespec {
        tv_sec: length.as_secs().cast_signed(),
        tv_nsec: length.subsec_nanos().into(),
    };
    syscall(libc::SYS_nanosleep, [&raw const time as usize, 0, 0, 0])
}
