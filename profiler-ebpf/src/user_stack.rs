//! User stacks, which user space unwinds: what the halves tell each other.
//!
//! The kernel half sends a copy of the stack's top ([`StackCopy`]) and goes on. User space unwinds it
//! and says by what the kernel half will recognise the same stack in the same place again
//! ([`Place`]): where the return addresses lay that it found, and a hash of them.
//!
//! ```text
//!  sp                                                  up to 2 KiB on
//!  | data | return address | data | return address | data … | … | return address | …
//!              near                     near                           far
//! ```
//!
//! What lies between them is data, and changes from one time to the next though the callers are the
//! same.

use crate::{python::Chain, record::RecordHeader};

/// Stacks that are kept of one place: what several callers wait in is one place, and a stack for each.
pub const STACKS: usize = 4;
/// Words of a stack's top that can be looked at each time, in one read: as many as a byte can name.
pub const LOOKED_AT: usize = 255;
/// Near witnesses at most, a byte each.
pub const NEAR: usize = 16;
/// As many as one `u64` holds.
pub const NEAR_IN_A_WORD: usize = 8;
/// Far witnesses at most: each is a read of its own.
pub const FAR: usize = 4;
/// What stands for no near witness.
pub const NO_WITNESS: u64 = 0xff;
/// What stands for no far witness.
pub const NO_FAR_WITNESS: u32 = 0;
/// Bytes of a page: stacks are copied page by page, as a read that meets one that is not in memory fails
/// whole.
pub const PAGE: usize = 4096;

/// How much of a stack is copied ([`Place::size`]).
pub mod copy_size {
    /// What is left of the first page, and one more.
    pub const SHORT: u32 = 0;
    /// And four.
    pub const MEDIUM: u32 = 1;
    /// And sixteen.
    pub const LONG: u32 = 2;
    /// How many pages more than the first, by size.
    pub const PAGES: [usize; 3] = [1, 4, 16];
}

/// What refers to the stack ([`StackCopy::purpose`]).
pub mod purpose {
    /// A wait, by whoever waits or wakes: its record may come much later.
    pub const WAIT: u32 = 0;
    /// A sample, whose record comes at once.
    pub const SAMPLE: u32 = 1;
    /// Nothing yet: it was recognised, and is to be compared.
    pub const CHECK: u32 = 2;
    /// A wait that had begun before anybody looked: nothing is copied, as this runs in another process.
    /// The thread's memory can be read for as long as [`StackCopy::switches`](super::StackCopy::switches) stays the same.
    pub const BEGUN_BEFORE: u32 = 3;
}

/// A stack that a place is known to have had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct KnownStack {
    /// Which of the words that are looked at are witnesses: a byte each, the one that is nearest to
    /// the stack pointer lowest, in the first of these.
    pub near: [u64; NEAR / NEAR_IN_A_WORD],
    /// What they say ([`proof_of`]); 0 if there is no such stack.
    pub proof: u64,
    /// Its id.
    pub id: u64,
    /// What the far witnesses say.
    pub far_proof: u64,
    /// Where those are, in bytes from the stack pointer.
    pub far: [u32; FAR],
}

/// A place where a thread waits or wakes others: its user registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Place {
    /// The stacks that it has had.
    pub stacks: [KnownStack; STACKS],
    /// How much is to be copied of one that is not recognised: one of [`copy_size`].
    pub size: u32,
    /// 1 if the thread runs Python here: the place that counts is the one [`with_python`].
    pub runs_python: u32,
    /// Bytes from the stack pointer on that the near witnesses of these stacks lie in.
    pub looked_at: u32,
    /// Always 0.
    pub reserved: u32,
}

/// How far above the stack pointer a frame pointer can lead to a frame: further than the longest copy goes.
const FRAMES_REACH: u64 = 1 << 17;

/// What the frame pointer says of a place: how far above the stack pointer it points, or that it points at no frame.
///
/// Code without frame pointers keeps anything in the register, and CPython the lock that it waits for, a new one
/// for each wait of `threading.Condition`: taken as it is, no such wait is ever in the same place again.
#[inline(always)]
#[must_use]
pub fn frame_in_reach(fp: u64, sp: u64) -> u64 {
    fp.wrapping_sub(sp).min(FRAMES_REACH)
}

/// A copy of the top of a user stack, as it is sent on the ring of its own: what lies behind this are
/// the Python frames, a [`Chain`], and the `bytes` bytes from `sp` on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct StackCopy {
    /// [`STACK_COPY`](crate::record::kind::STACK_COPY); `len` is what was reserved.
    pub header: RecordHeader,
    /// The id that other records refer to it by.
    pub id: u64,
    /// The place's key, whatever Python runs there; 0 if it is not to be learnt.
    pub key: u64,
    /// The stack that it was taken for, if it was recognised and is to be compared; else
    /// [`NO_STACK`](crate::record::NO_STACK).
    pub taken_for: u64,
    /// When it was taken.
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
    /// How many bytes there are; in pages that are [`missing`](Self::missing) they are 0.
    pub bytes: u32,
    /// How many were asked for: one of [`copy_size`].
    pub size: u32,
    /// One of [`purpose`].
    pub purpose: u32,
    /// Pages that were not in memory, a bit each: the page that `sp` points into is the lowest. Room that a
    /// function keeps and never touched is in none.
    pub missing: u32,
    /// A hash of the Python frames, which the [`Chain`] behind this holds; 0 if the thread is not known
    /// to have any.
    pub python: u64,
    /// How often the thread has gone to sleep (`task_struct::nvcsw`), if it is one that sleeps now.
    pub switches: u64,
    /// The epoch of the process's code ([`crate::code_epoch`]).
    pub code_epoch: u32,
    /// Always 0.
    pub reserved: u32,
}

/// The key of a place where a thread runs Python, by the hash of its frames.
#[inline(always)]
#[must_use]
pub const fn with_python(key: u64, python: u64) -> u64 {
    end_proof(add_to_proof(key, python))
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
/// What a proof begins with.
pub const NOTHING_SAID: u64 = 1;

/// A proof with one witness more.
#[inline(always)]
#[must_use]
pub const fn add_to_proof(proof: u64, witness: u64) -> u64 {
    (proof ^ witness).wrapping_mul(MULTIPLIER)
}

/// A proof when all have been heard; never 0.
#[inline(always)]
#[must_use]
pub const fn end_proof(proof: u64) -> u64 {
    (proof ^ (proof >> 32)) | 1
}

/// A hash of what witnesses say.
#[must_use]
pub fn proof_of(witnesses: impl IntoIterator<Item = u64>) -> u64 {
    end_proof(witnesses.into_iter().fold(NOTHING_SAID, add_to_proof))
}

const _: () = {
    assert!(size_of::<KnownStack>() == 56);
    assert!(size_of::<Place>() == STACKS * 56 + 16);
    assert!(size_of::<StackCopy>() == 112);
    assert!(size_of::<Chain>().is_multiple_of(8));
    assert!(copy_size::PAGES[2] < u32::BITS as usize);
    assert!(LOOKED_AT <= NO_WITNESS as usize);
    assert!(FRAMES_REACH > ((copy_size::PAGES[2] + 1) * PAGE) as u64);
};
