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

/// The argument with this index (0 to 5) points to a `timespec` with the timeout; the field holds
/// the index plus one, 0 if there is none.
pub const TIMESPEC_ARG_SHIFT: u32 = 8;

/// The bits of the field at [`TIMESPEC_ARG_SHIFT`].
pub const TIMESPEC_ARG_MASK: u32 = 0xf;
