//! Epochs of a process's code: the next one begins when code is about to be mapped where room is
//! looked for, and when the process becomes another program.
//!
//! A return address that stood for a function in an epoch stands for no other one until that ends: what
//! was unmapped makes room, and what takes the room begins an epoch before it is there.
//!
//! ```text
//!           dlopen   dlclose      dlopen of another, to the same place
//!  ------------|--------|------------|---------------------------------> time
//!  [ epoch 6   [ epoch 7             [ epoch 8
//! ```
//!
//! Loaders map the whole of a library without the right to run it, and what is code of it once more over
//! that, so any file that is mapped privately may be code. What is mapped to be shared is data (a
//! database's, an index's), if it is not mapped to be run.
//!
//! Code that a program maps to an address of its own choice (`MAP_FIXED`) over other code begins none,
//! nor does a shared mapping that is made code of later (`mprotect`).

/// How many epochs are counted. Processes whose numbers are the same below this share one: what ends
/// for the one ends for the other, which costs it a look and nothing else.
pub const COUNTED: usize = 1 << 16;

/// Which of them is a process's.
#[inline(always)]
#[must_use]
pub const fn of(tgid: u32) -> u32 {
    tgid & (COUNTED as u32 - 1)
}

/// An epoch's number, so many having ended before it.
#[inline(always)]
#[must_use]
pub const fn nth(ended: u64) -> u32 {
    ended as u32
}

/// `PROT_EXEC`, `MAP_TYPE`, `MAP_PRIVATE` and `MAP_ANONYMOUS`, the same on every machine that BPF programs run on but
/// alpha, mips, parisc and xtensa:
/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/asm-generic/mman-common.h#L12>,
/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/mman.h#L16>
mod mman {
    pub const PROT_EXEC: u64 = 0x4;
    pub const MAP_TYPE: u64 = 0xf;
    pub const MAP_PRIVATE: u64 = 0x2;
    pub const MAP_ANONYMOUS: u64 = 0x20;
}

/// Whether what `mmap` maps with this protection and these flags may be code of a file.
#[inline(always)]
#[must_use]
pub const fn may_bring_code(protection: u64, flags: u64) -> bool {
    let is_private = flags & mman::MAP_TYPE == mman::MAP_PRIVATE;
    flags & mman::MAP_ANONYMOUS == 0 && (is_private || protection & mman::PROT_EXEC != 0)
}
