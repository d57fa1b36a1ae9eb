//! What the kernel half must know of a syscall to record what a thread in it waits on. The loader
//! (`profiler/src/kernel/syscalls.rs`) fills a table of these flags by syscall number, so that the programs hold no numbers of any
//! architecture.

/// Entries of the table: the machine's own syscalls first, then those of 32-bit programs.
pub const TABLE_LEN: u32 = 1024;

/// Where the 32-bit syscalls begin.
pub const COMPAT_BASE: u32 = 512;

/// The first argument is a file descriptor.
pub const FIRST_ARG_IS_FD: u32 = 1 << 0;

/// The syscall maps memory or a file; its fourth argument tells which (`MAP_ANONYMOUS`).
pub const MAPS: u32 = 1 << 1;

/// The syscall waits for a futex, or wakes those who do: futex(2).
pub const IS_FUTEX: u32 = 1 << 2;

/// The first argument points to an array of `pollfd`, and the second says how many there are: poll(2),
/// ppoll(2).
pub const POLLS: u32 = 1 << 3;

/// The syscall waits for any of the files of an `epoll`: epoll_wait(2) and its like.
pub const WAITS_FOR_EPOLL: u32 = 1 << 4;

/// Returns whether a thread that waits for a futex may wait for a lock that names its owner, by the
/// arguments of the call: the value is one that waiters for the GNU C library's locks demand, or the lock
/// has priority inheritance. User space decides whether it is one (`profiler/src/lock_owners`).
#[must_use]
#[inline(always)]
pub fn may_wait_for_lock(args: &[u64; 6]) -> bool {
    const COMMAND: u64 = 0x7f;
    const FUTEX_LOCK_PI: u64 = 6;
    const FUTEX_LOCK_PI2: u64 = 13;
    const FUTEX_WAITERS: u32 = 0x8000_0000;
    let (command, value) = (args[1] & COMMAND, args[2] as u32);
    command == FUTEX_LOCK_PI
        || command == FUTEX_LOCK_PI2
        || value == 2
        || value == 3
        || value & FUTEX_WAITERS != 0
}

/// The argument with this index (0 to 5) points to a `timespec` with the timeout; the field holds
/// the index plus one, 0 if there is none.
pub const TIMESPEC_ARG_SHIFT: u32 = 8;

/// The bits of the field at [`TIMESPEC_ARG_SHIFT`].
pub const TIMESPEC_ARG_MASK: u32 = 0xf;
