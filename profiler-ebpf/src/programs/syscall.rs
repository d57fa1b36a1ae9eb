//! What a task's syscall refers to: a file, a timeout.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use profiler_ebpf::{
    record::{NO_SYSCALL, NO_TIMEOUT, Syscall, thread_flags},
    syscalls::{
        COMPAT_BASE, FIRST_ARG_IS_FD, POLLS, TABLE_LEN, TIMESPEC_ARG_MASK, TIMESPEC_ARG_SHIFT,
        WAITS_FOR_EPOLL,
    },
};

use super::maps::SYSCALLS;

/// The entry of a syscall in the table of [`profiler_ebpf::syscalls`]; 0 if it has none.
#[inline(always)]
pub fn table_entry(syscall: &Syscall) -> u32 {
    if syscall.number == NO_SYSCALL {
        return 0;
    }
    let is_compat = syscall.thread_flags & thread_flags::COMPAT != 0;
    let base = if is_compat { COMPAT_BASE } else { 0 };
    let number = syscall.number as u32;
    if number >= TABLE_LEN - COMPAT_BASE {
        return 0;
    }
    SYSCALLS.get(base + number).copied().unwrap_or(0)
}

/// The descriptor of the file that a syscall refers to, by the syscall's [`table_entry`].
#[inline(always)]
pub fn descriptor(syscall: &Syscall, entry: u32) -> Option<u32> {
    (entry & FIRST_ARG_IS_FD != 0).then_some(syscall.args[0] as u32)
}

/// Whether a thread in a syscall waits for the files of an `epoll`.
#[inline(always)]
pub fn waits_for_epoll(syscall: &Syscall) -> bool {
    table_entry(syscall) & WAITS_FOR_EPOLL != 0
}

/// The only file that the current task polls, by its descriptor, and in the upper half what for. None
/// if it polls several.
#[inline(always)]
pub fn polled_file(syscall: &Syscall, entry: u32) -> Option<u64> {
    if entry & POLLS == 0 || syscall.args[1] as u32 != 1 {
        return None;
    }
    Some(read_pollfd(syscall.args[0]))
}

/// The current task's `struct pollfd`: the descriptor, and in the upper half the events that are asked
/// for. A descriptor that no file has if the memory can't be read.
///
/// A function of its own: most waits are no polls, and the stack is small.
#[inline(never)]
fn read_pollfd(address: u64) -> u64 {
    // The descriptor, and then the events: those that are asked for, and those that came.
    let mut pollfd = [u32::MAX; 2];
    // SAFETY: the helper writes 8 bytes, or fails.
    let read =
        unsafe { bpf_probe_read_user((&raw mut pollfd).cast(), 8, address as *const c_void) };
    if read == 0 {
        u64::from(pollfd[0]) | u64::from(pollfd[1] & 0xffff) << 32
    } else {
        u64::from(u32::MAX)
    }
}

/// The timeout that the current task's syscall points to, or [`NO_TIMEOUT`].
#[inline(always)]
pub fn timeout(syscall: &Syscall, entry: u32) -> u64 {
    let address = match (entry >> TIMESPEC_ARG_SHIFT) & TIMESPEC_ARG_MASK {
        1 => syscall.args[0],
        2 => syscall.args[1],
        3 => syscall.args[2],
        4 => syscall.args[3],
        5 => syscall.args[4],
        6 => syscall.args[5],
        _ => 0,
    };
    if address == 0 { NO_TIMEOUT } else { read_timespec(address) }
}

#[inline(always)]
fn read_timespec(address: u64) -> u64 {
    let mut timespec = [0_u64; 2];
    // SAFETY: the helper writes 16 bytes, or fails.
    let read =
        unsafe { bpf_probe_read_user((&raw mut timespec).cast(), 16, address as *const c_void) };
    if read != 0 {
        return NO_TIMEOUT;
    }
    timespec[0].wrapping_mul(1_000_000_000).wrapping_add(timespec[1])
}
