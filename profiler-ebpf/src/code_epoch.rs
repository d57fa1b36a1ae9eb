//! Epochs of a process's code: the next one begins when code is about to be mapped at an address
//! that the kernel chooses, and when the process executes another program.
//!
//! A return address that stood for a function in an epoch stands for no other one until the epoch
//! ends: what was unmapped makes room, and what takes the room begins an epoch before it is there.
//!
//! ```text
//!           dlopen   dlclose      dlopen of another, to the same place
//!  ------------|--------|------------|---------------------------------> time
//!  [ epoch 6   [ epoch 7             [ epoch 8
//! ```
//!
//! Loaders map the whole of a library without the right to run it, and what is code of it once more
//! over that, so any file that is mapped privately may be code. What is mapped to be shared is data
//! (a database's, an index's), if it is not mapped to be run.
//!
//! Code that a program maps to an address of its own choice (`MAP_FIXED`) over other code begins
//! none, nor does a shared mapping that is made code of later (`mprotect`).

/// How many counters of epochs there are. Processes whose ids are the same modulo this share one:
/// what ends an epoch of the one ends one of the other, which costs it cached stacks and nothing
/// else.
pub const COUNTERS: usize = 1 << 16;

/// The index of a process's counter.
#[inline(always)]
#[must_use]
pub const fn counter_index(tgid: u32) -> u32 {
    tgid & (COUNTERS as u32 - 1)
}

/// The number of the epoch that so many have ended before.
#[inline(always)]
#[must_use]
pub const fn epoch_after(ended: u64) -> u32 {
    ended as u32
}

/// `PROT_EXEC`, `MAP_TYPE`, `MAP_PRIVATE` and `MAP_ANONYMOUS`, the same on every machine that BPF
/// programs run on but alpha, mips, parisc and xtensa:
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
pub const fn may_map_code(protection: u64, flags: u64) -> bool {
    let is_private = flags & mman::MAP_TYPE == mman::MAP_PRIVATE;
    flags & mman::MAP_ANONYMOUS == 0 && (is_private || protection & mman::PROT_EXEC != 0)
}
