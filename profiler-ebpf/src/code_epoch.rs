//! Epochs of a process's code: the next one begins when a file is about to be mapped where room is
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
//! Code that a program maps to an address of its own choice (`MAP_FIXED`) over other code begins none.

/// How many epochs are counted. Processes whose numbers are the same below this share one: what ends
/// for the one ends for the other, which costs it a look and nothing else.
pub const COUNTED: usize = 1 << 16;

/// Which of them is a process's.
#[inline(always)]
#[must_use]
pub const fn of(tgid: u32) -> u32 {
    tgid & (COUNTED as u32 - 1)
}
