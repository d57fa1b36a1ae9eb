//! Frame slots: the words in the top of a kernel stack that hold the return addresses which a walk
//! found. Their contents, hashed to a fingerprint, tell one stack from another without a walk.
//!
//! ```text
//!  sp                                                      a KiB on
//!  | data | return address | data | data | return address | …
//!            frame slot                     frame slot
//! ```
//!
//! What lies between the slots is data, and changes from one time to the next though the callers
//! are the same: by the whole of its top, one in 35 stacks of a busy redis-server would be found in
//! the cache; by its frame slots, nearly all are.

use core::{ffi::c_void, ptr};

use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use profiler_ebpf::{
    record::StackRecord,
    stack_counts::StackKind,
    user_stack::{FINGERPRINT_SEED, NO_NEAR_SLOT, extend_fingerprint, finish_fingerprint},
};

use super::{
    interrupt_context::{SoftirqCall, pointer_as_number},
    maps::{SLOT_SEARCHES, STACK_SCRATCH, STACK_TOPS},
    stack::{Scratch, is_less},
};

/// Words of a kernel stack's top that are searched. Callers of a filesystem differ above its own
/// frames and those of the block layer, senders above those of the network's lower layers: within
/// 384 bytes, one cache hit in 50 of `git gc` was a mismatch.
const SEARCHED_WORDS: usize = 128;
/// Bytes of a kernel stack, which lies at a multiple of its size (x86-64, and aarch64 with pages of
/// 4 KiB). Where stacks are larger, less of them is read.
/// <https://github.com/torvalds/linux/blob/v6.12/arch/x86/include/asm/page_64_types.h#L15>
const KERNEL_STACK_BYTES: u64 = 16 << 10;
/// Words of a [`StackTop`]: as many as a byte can name.
const TOP_WORDS: usize = 256;
/// The top of a stack; words that are not read stay zero.
pub type StackTop = [u64; TOP_WORDS];

/// Frame slots in a `u64`, a byte each.
const SLOTS_PER_WORD: u64 = 8;
/// Frame slots of a stack at most.
const MAX_SLOTS: u64 = 2 * SLOTS_PER_WORD;
/// Frames at the leaf of a kernel stack that are skipped at most, as they lie below the top that is
/// read: those of the tracing itself.
const MAX_SKIPPED_FRAMES: u64 = 16;
/// More frames than are ever skipped and found; those of a softirq are some 25.
const MAX_FRAMES: u64 = 64;

/// Which words of a stack's top are its frame slots: a byte each, the one that was found last
/// lowest.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct FrameSlots {
    last: u64,
    earlier: u64,
}

/// Which stack's top is read; the index into [`STACK_TOPS`] and [`SLOT_SEARCHES`].
#[derive(Clone, Copy)]
pub enum TopIndex {
    /// The top of what [`Scratch::Switch`] walks.
    Switch = 0,
    /// The top of what [`Scratch::Waking`] walks.
    Waking = 1,
    /// The top of the task's stack below a softirq, which [`Scratch::Waking`] walks too.
    BelowSoftirq = 2,
}

impl TopIndex {
    #[inline(always)]
    fn for_kind(kind: u32) -> u32 {
        match kind {
            kind if kind == StackKind::WakeInSoftirq as u32 => Self::BelowSoftirq as u32,
            kind if kind >= StackKind::WakeUser as u32 => Self::Waking as u32,
            _ => Self::Switch as u32,
        }
    }
}

/// A search for frame slots, by [`find_slots`]. It is in a map because the verifier would follow
/// every value of a variable.
#[repr(C)]
pub struct SlotSearch {
    /// The frame in the first frame slot of the last search that found any.
    first_frame: u64,
    /// Below a softirq, the return address of its caller.
    softirq_return: u64,
    found: u64,
    slots: FrameSlots,
}

/// Reads the top of the kernel stack from the program's context on, which the kernel puts on the
/// stack that the program runs on.
#[inline(always)]
pub fn read_kernel_top(ctx: *mut c_void, index: TopIndex) -> bool {
    let Some(top) = STACK_TOPS.get_ptr_mut(index as u32) else { return false };
    // SAFETY: this CPU's own, and it is overwritten right after.
    let sp = pointer_as_number(unsafe { &mut (*top)[0] }, ctx);
    read_top(top, sp, KERNEL_STACK_BYTES - (sp & (KERNEL_STACK_BYTES - 1)))
}

/// Reads the top of the task's stack above the call of a softirq.
#[inline(always)]
pub fn read_below_softirq(call: &SoftirqCall) -> bool {
    const INDEX: TopIndex = TopIndex::BelowSoftirq;
    let (Some(top), Some(search)) =
        (STACK_TOPS.get_ptr_mut(INDEX as u32), SLOT_SEARCHES.get_ptr_mut(INDEX as u32))
    else {
        return false;
    };
    // SAFETY: this CPU's own, and nothing else uses it now.
    unsafe { (*search).softirq_return = call.return_address };
    read_top(top, call.sp, call.bytes_above)
}

/// Reads the top of a stack that has `bytes_above` bytes from `sp` on.
#[inline(always)]
fn read_top(top: *mut StackTop, sp: u64, bytes_above: u64) -> bool {
    const BYTES: u64 = (SEARCHED_WORDS * 8) as u64;
    let mut length = BYTES;
    if bytes_above < BYTES {
        // A read that fails zeroes the buffer, and nothing can be read at 0.
        // SAFETY: the helper writes the size that is named.
        unsafe { bpf_probe_read_kernel(top.cast(), BYTES as u32, ptr::null()) };
        length = bytes_above;
    }
    // The mask is for the verifier, which has lost sight of the bound by here.
    let length = core::hint::black_box(length) & (TOP_WORDS as u64 * 8 - 1);
    // SAFETY: as above.
    unsafe { bpf_probe_read_kernel(top.cast(), length as u32, sp as *const c_void) == 0 }
}

/// The scratch memory where stacks of a [`StackKind`] are put together.
#[inline(always)]
pub fn scratch_for_kind(kind: u32) -> Scratch {
    if kind < StackKind::WakeUser as u32 { Scratch::Switch } else { Scratch::Waking }
}

/// The top that was read last for a [`StackKind`].
#[inline(always)]
pub fn last_top(kind: u32) -> Option<&'static StackTop> {
    // SAFETY: this CPU's own, and `Scratch` says why nothing else uses it now.
    STACK_TOPS.get_ptr(TopIndex::for_kind(kind)).map(|top| unsafe { &*top })
}

/// The frame slots of the stack that was walked last, and their fingerprint; none if they are too
/// few.
#[inline(always)]
pub fn find_in_last_walk(kind: u32) -> Option<(FrameSlots, u64)> {
    let found = search_last_walk(kind);
    let search = SLOT_SEARCHES.get_ptr(TopIndex::for_kind(kind))?;
    // SAFETY: as in `last_top`.
    let slots = unsafe { (*search).slots };
    let fingerprint = slots.fingerprint(last_top(kind)?);
    (found >= min_slots(kind)).then_some((slots, fingerprint))
}

/// How many frame slots a stack must have. There is always more than one return address, except
/// where an interrupt came on top of user code.
#[inline(always)]
fn min_slots(kind: u32) -> u64 {
    if kind == StackKind::WakeInSoftirq as u32 { 1 } else { 2 }
}

/// Finds the frame slots of the stack that was walked last, and returns how many there are. How
/// many frames lie below the top that was read is the same each time, except for a softirq: so the
/// guess that was right last is tried first.
#[inline(always)]
fn search_last_walk(kind: u32) -> u64 {
    let index = TopIndex::for_kind(kind);
    if kind == StackKind::WakeInSoftirq as u32 {
        return find_slots(kind, count_softirq_frames());
    }
    let Some(search) = SLOT_SEARCHES.get_ptr_mut(index) else { return 0 };
    // SAFETY: as in `find_slots`.
    let search = unsafe { &mut *search };
    let found = find_slots(kind, search.first_frame);
    if found != 0 {
        return found;
    }
    let mut first_frame = 0;
    while first_frame < MAX_SKIPPED_FRAMES {
        let found = find_slots(kind, first_frame);
        if found != 0 {
            search.first_frame = first_frame;
            return found;
        }
        first_frame += 1;
    }
    0
}

/// How many frames of the walk are the softirq's, up to its caller's return address.
#[unsafe(no_mangle)]
extern "C" fn count_softirq_frames() -> u64 {
    let (Some(record), Some(search)) = (
        STACK_SCRATCH.get_ptr(Scratch::Waking as u32),
        SLOT_SEARCHES.get_ptr(TopIndex::BelowSoftirq as u32),
    ) else {
        return 0;
    };
    // SAFETY: as in `find_slots`.
    let (record, search) = unsafe { (&*record, &*search) };
    let mut frame = 0;
    while frame < MAX_FRAMES {
        // SAFETY: below the length.
        if unsafe { *record.frames.get_unchecked(frame as usize) } == search.softirq_return {
            break;
        }
        frame += 1;
    }
    frame + 1
}

/// Finds which words of the top hold the frames' return addresses, leaf first, and returns how many
/// do. The return addresses are met one after the other, as they lie on the stack, from that of
/// `first_frame` on; words before that one and between them may hold anything.
///
/// The verifier proves a global function once, and not at each call.
#[unsafe(no_mangle)]
extern "C" fn find_slots(kind: u32, first_frame: u64) -> u64 {
    let index = TopIndex::for_kind(kind);
    let (Some(top), Some(record), Some(search)) = (
        STACK_TOPS.get_ptr(index),
        STACK_SCRATCH.get_ptr(scratch_for_kind(kind) as u32),
        SLOT_SEARCHES.get_ptr_mut(index),
    ) else {
        return 0;
    };
    // SAFETY: all are this CPU's own, and `Scratch` says why nothing else uses them now; the walk
    // left its frames there.
    let (top, record, search) = unsafe { (&*top, &*record, &mut *search) };
    search.slots = FrameSlots { last: u64::MAX, earlier: u64::MAX };
    search.found = 0;
    let mut word = 0;
    while word < SEARCHED_WORDS {
        test_word(top, record, search, first_frame, word);
        word += 1;
    }
    search.found
}

/// Adds a word to the frame slots if it holds the next return address. The outermost frame has
/// none: it is how the kernel was entered, and lies at a random distance from the others
/// (`RANDOMIZE_KSTACK_OFFSET`).
///
/// There is no branch: the verifier follows both ways of each, and in loops it only now and then
/// notices that it has been there before.
#[inline(always)]
fn test_word(
    top: &StackTop,
    record: &StackRecord,
    search: &mut SlotSearch,
    first_frame: u64,
    word: usize,
) {
    let found = search.found;
    let frame = (first_frame + found) & (MAX_FRAMES - 1);
    // SAFETY: both are below the lengths of the arrays that they index.
    let (expected, value) =
        unsafe { (*record.frames.get_unchecked(frame as usize), *top.get_unchecked(word)) };
    let is_slot = is_less(frame + 1, u64::from(record.depth))
        & is_less(found, MAX_SLOTS)
        & (is_less(0, expected ^ value) ^ 1);
    search.found = found + is_slot;
    let FrameSlots { last, earlier } = search.slots;
    search.slots = FrameSlots {
        last: last << (is_slot * 8) | (is_slot * word as u64),
        earlier: earlier << (is_slot * 8) | (is_slot * (last >> (64 - 8))),
    };
}

impl FrameSlots {
    /// A hash of what the frame slots hold; never 0.
    #[inline(always)]
    pub fn fingerprint(self, top: &StackTop) -> u64 {
        fingerprint_slots(top, self.last, self.earlier)
    }
}

/// A hash of what the frame slots hold that these two name, a byte each; never 0.
#[inline(always)]
pub fn fingerprint_slots(top: &StackTop, first: u64, further: u64) -> u64 {
    let mut fingerprint = add_slots(FINGERPRINT_SEED, top, first);
    if further != u64::MAX {
        fingerprint = add_slots(fingerprint, top, further);
    }
    finish_fingerprint(fingerprint)
}

/// A fingerprint with what the frame slots hold that `slots` names, a byte each, the lowest first.
#[inline(always)]
fn add_slots(mut fingerprint: u64, top: &StackTop, slots: u64) -> u64 {
    let mut rest = slots;
    let mut index = 0;
    while index < SLOTS_PER_WORD {
        let word = rest & 0xff;
        if word == NO_NEAR_SLOT {
            break;
        }
        // SAFETY: a byte is below `TOP_WORDS`.
        let return_address = unsafe { *top.get_unchecked(word as usize & (TOP_WORDS - 1)) };
        fingerprint = extend_fingerprint(fingerprint, return_address);
        rest >>= 8;
        index += 1;
    }
    fingerprint
}
