//! User stacks, which user space unwinds: what the halves send each other.
//!
//! The kernel half sends a copy of the stack's top ([`StackCopy`]) and goes on. User space unwinds
//! it and writes a [`CallSite`] to a map of the kernel half. By that the kernel half finds the same
//! stack again without a copy: it lists the stack's frame slots, which are the words that held a
//! return address, and the fingerprint, a hash of those return addresses.
//!
//! ```text
//!  sp                                                  up to 2 KiB on
//!  | data | return address | data | return address | data … | … | return address | …
//!             near slot                near slot                      far slot
//! ```
//!
//! What lies between the slots is data, and changes from one time to the next though the callers
//! are the same.

use crate::{python::PythonFrames, record::RecordHeader};

/// Stacks that are cached for one call site: several callers can lead to the same one.
pub const STACKS_PER_CALL_SITE: usize = 4;
/// Words of a stack's top that can hold near slots, and are read at once: as many as a byte can
/// name.
pub const NEAR_WORDS: usize = 255;
/// Near slots at most, a byte each.
pub const NEAR_SLOTS: usize = 16;
/// Near slots that one `u64` holds.
pub const NEAR_SLOTS_PER_WORD: usize = 8;
/// Far slots at most: each costs a read of its own.
pub const FAR_SLOTS: usize = 4;
/// Fills the rest of the near slots where there are fewer.
pub const NO_NEAR_SLOT: u64 = 0xff;
/// Fills the rest of the far slots where there are fewer.
pub const NO_FAR_SLOT: u32 = 0;
/// Bytes of a page: stacks are copied page by page, as a read that meets one that is not in memory
/// fails whole.
pub const PAGE: usize = 4096;

/// Bytes below the stack pointer that belong to a leaf function: signals leave them alone (System V
/// ABI for x86-64, 3.2.2). OpenSSL's hashes keep the caller's stack pointer there, and their unwind
/// data goes by it.
pub const RED_ZONE: usize = 128;

/// How much of a stack is copied ([`CallSite::copy_size`]).
pub mod copy_size {
    /// What is left of the first page, and one page more.
    pub const SHORT: u32 = 0;
    /// What is left of the first page, and four pages more.
    pub const MEDIUM: u32 = 1;
    /// What is left of the first page, and sixteen pages more.
    pub const LONG: u32 = 2;
    /// How many pages more than the first, by size.
    pub const PAGES: [usize; 3] = [1, 4, 16];
}

/// What a stack was copied for ([`StackCopy::purpose`]).
pub mod purpose {
    /// A wait's record will refer to it, of the thread that waits or wakes; it may come much later.
    pub const WAIT: u32 = 0;
    /// A sample's record, which comes at once, refers to it.
    pub const SAMPLE: u32 = 1;
    /// No record refers to it: the stack was found in the cache, and the copy is to verify that.
    pub const CHECK: u32 = 2;
    /// A wait that had begun before the window opened. Nothing is copied, as this runs in another
    /// process. The thread's memory can be read for as long as
    /// [`StackCopy::voluntary_switches`](super::StackCopy::voluntary_switches) stays the same.
    pub const BEFORE_WINDOW: u32 = 3;
    /// As [`BEFORE_WINDOW`], of a wait that has still not ended as the window closes, and whose stack
    /// was not read as it opened. User space reads it if somebody waits for the thread.
    pub const STILL_ASLEEP: u32 = 4;
}

/// A stack that was seen at a call site, and by what it is found again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CachedStack {
    /// The near slots: indices of words above the stack pointer, a byte each, the one that is
    /// nearest to the stack pointer lowest, in the first of these.
    pub near_slots: [u64; NEAR_SLOTS / NEAR_SLOTS_PER_WORD],
    /// The [`fingerprint`] of the near slots; 0 if there is no such stack.
    pub fingerprint: u64,
    /// The stack's id.
    pub id: u64,
    /// The [`fingerprint`] of the far slots.
    pub far_fingerprint: u64,
    /// The far slots, in bytes from the stack pointer.
    pub far_slots: [u32; FAR_SLOTS],
}

/// What is cached for a place in a program where a thread waits or wakes others; the key is a hash
/// of the thread and its user registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CallSite {
    /// The stacks that the thread has had here.
    pub stacks: [CachedStack; STACKS_PER_CALL_SITE],
    /// How much to copy of a stack that is not in the cache: one of [`copy_size`].
    pub copy_size: u32,
    /// 1 if the thread runs Python here: the stacks are then under the key [`with_python`].
    pub runs_python: u32,
    /// Bytes from the stack pointer on that hold the near slots of all these stacks.
    pub near_bytes: u32,
    /// 1 if the thread's register cache may learn the stack: there is one alone, and all of it is
    /// code of files.
    pub by_registers: u32,
}

/// How far above the stack pointer a frame pointer can lead to a frame: further than the longest
/// copy goes.
const MAX_FRAME_DISTANCE: u64 = 1 << 17;

/// What the frame pointer adds to a call site's key: how far above the stack pointer it points, or
/// that it points at no frame.
///
/// Code without frame pointers keeps anything in the register, and CPython the lock that it waits
/// for, a new one for each wait of `threading.Condition`: with the register as it is, no such wait
/// would ever come from the same call site again.
#[inline(always)]
#[must_use]
pub fn frame_distance(fp: u64, sp: u64) -> u64 {
    fp.wrapping_sub(sp).min(MAX_FRAME_DISTANCE)
}

/// A copy of the top of a user stack, as it is sent on the ring of stack copies. Behind this header
/// are the Python frames, a [`PythonFrames`], if there are any, the [`RED_ZONE`] bytes below `sp`, and
/// the `bytes` bytes from `sp` on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct StackCopy {
    /// [`STACK_COPY`](crate::record::kind::STACK_COPY); `len` is what was reserved.
    pub header: RecordHeader,
    /// The id that other records refer to it by.
    pub id: u64,
    /// The call site's key, without what Python runs there; 0 if the stack is not to be cached.
    pub call_site: u64,
    /// With [`purpose::CHECK`], the id of the cached stack that was found for this one; else
    /// [`NO_STACK`](crate::record::NO_STACK).
    pub cached_id: u64,
    /// When the copy was made.
    pub ns: u64,
    /// The process.
    pub tgid: u32,
    /// The thread.
    pub tid: u32,
    /// The instruction pointer.
    pub ip: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer, or whatever code without one keeps there.
    pub fp: u64,
    /// How many bytes there are; those of [`missing_pages`](Self::missing_pages) are 0.
    pub bytes: u32,
    /// How many were asked for: one of [`copy_size`].
    pub size: u32,
    /// One of [`purpose`].
    pub purpose: u32,
    /// Pages that were not in memory, a bit each: the page that `sp` points into is the lowest. A
    /// page that a function reserved and never touched is missing.
    pub missing_pages: u32,
    /// A hash of the Python frames, which the [`PythonFrames`] behind this holds; 0 if the thread
    /// is not known to have any.
    pub python_hash: u64,
    /// With [`purpose::BEFORE_WINDOW`] and [`purpose::STILL_ASLEEP`], how often the thread has gone to sleep
    /// (`task_struct::nvcsw`).
    pub voluntary_switches: u64,
    /// The epoch of the process's code ([`crate::code_epoch`]).
    pub code_epoch: u32,
    /// With [`purpose::CHECK`], 1 if the cached stack was found by registers alone.
    pub by_registers: u32,
    /// How many bytes below `sp` were read: [`RED_ZONE`], or 0 if they were not in memory.
    pub red_zone_bytes: u32,
    /// 0.
    pub reserved: u32,
}

/// The key of a call site where a thread runs Python, by the hash of its Python frames.
#[inline(always)]
#[must_use]
pub const fn with_python(call_site: u64, python_hash: u64) -> u64 {
    finish_fingerprint(extend_fingerprint(call_site, python_hash))
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
/// What a fingerprint begins with.
pub const FINGERPRINT_SEED: u64 = 1;

/// A fingerprint with one return address more.
#[inline(always)]
#[must_use]
pub const fn extend_fingerprint(fingerprint: u64, return_address: u64) -> u64 {
    (fingerprint ^ return_address).wrapping_mul(MULTIPLIER)
}

/// A fingerprint that has all of its return addresses; never 0.
#[inline(always)]
#[must_use]
pub const fn finish_fingerprint(fingerprint: u64) -> u64 {
    (fingerprint ^ (fingerprint >> 32)) | 1
}

/// A hash of what a stack's frame slots hold.
#[must_use]
pub fn fingerprint(return_addresses: impl IntoIterator<Item = u64>) -> u64 {
    finish_fingerprint(return_addresses.into_iter().fold(FINGERPRINT_SEED, extend_fingerprint))
}

const _: () = {
    assert!(size_of::<CachedStack>() == 56);
    assert!(size_of::<CallSite>() == STACKS_PER_CALL_SITE * 56 + 16);
    assert!(size_of::<StackCopy>() == 120);
    assert!(size_of::<PythonFrames>().is_multiple_of(8));
    assert!(copy_size::PAGES[2] < u32::BITS as usize);
    assert!(NEAR_WORDS <= NO_NEAR_SLOT as usize);
    assert!(MAX_FRAME_DISTANCE > ((copy_size::PAGES[2] + 1) * PAGE) as u64);
};
