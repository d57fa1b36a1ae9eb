//! What tells one kernel stack from another at a glance: where in its top the return addresses lie that a walk
//! found.
//!
//! ```text
//!  sp                                                      a KiB on
//!  | data | return address | data | data | return address | …
//!             witness                        witness
//! ```
//!
//! What lies between them is data, and changes from one time to the next though the callers are the
//! same: by the whole of its top, one in 35 stacks of a busy redis-server is recognised; by its
//! witnesses, nearly all.

use core::{ffi::c_void, ptr};

use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use profiler_ebpf::{
    record::StackRecord,
    stack_counts::Side,
    user_stack::{NO_WITNESS, NOTHING_SAID, add_to_proof, end_proof},
};

use super::{
    context::{SoftirqCall, as_number},
    maps::{LEARNING, STACK_SCRATCH, TOPS},
    stack::{Scratch, is_less},
};

/// Words of a stack's top that are looked at. Callers of a filesystem differ behind its own frames and
/// those of the block layer, senders behind those of the network's lower layers: within 384 bytes, one
/// stack in 50 of `git gc` was taken for another.
const LOOKED_AT: usize = 128;
/// Of stacks of the kernel, which lie at multiples of their size (x86-64, and aarch64 with pages of
/// 4 KiB). Where they are larger, less is looked at.
/// <https://github.com/torvalds/linux/blob/v6.12/arch/x86/include/asm/page_64_types.h#L15>
const STACK_BYTES: u64 = 16 << 10;
/// As many as a byte can name.
const TOP: usize = 256;
/// The top of a stack; what is not looked at stays zero.
pub type Top = [u64; TOP];

/// Witnesses in a `u64`, a byte each.
const IN_A_WORD: u64 = 8;
/// Most witnesses of a place.
const WITNESSES: u64 = 2 * IN_A_WORD;
/// Frames of a kernel stack that are passed over at most, as they lie below what is looked at: those of
/// the tracing itself.
const PASSED_OVER: u64 = 16;
/// More frames than are ever passed over and found; those of a softirq are some 25.
const FRAMES: u64 = 64;

/// Which words of a stack's top are witnesses: a byte each, the last that was found first.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Witnesses {
    last: u64,
    before: u64,
}

/// Whose top of a stack is looked at; the index into [`TOPS`] and [`LEARNING`].
#[derive(Clone, Copy)]
pub enum LookedAt {
    /// What [`Scratch::Switch`] walks.
    Switch = 0,
    /// What [`Scratch::Waking`] walks.
    Waking = 1,
    /// The task's stack below a softirq, which [`Scratch::Waking`] walks too.
    BelowSoftirq = 2,
}

impl LookedAt {
    #[inline(always)]
    fn of(side: u32) -> u32 {
        match side {
            side if side == Side::WakeInSoftirq as u32 => Self::BelowSoftirq as u32,
            side if side >= Side::WakeUser as u32 => Self::Waking as u32,
            _ => Self::Switch as u32,
        }
    }
}

/// What [`find_witnesses`] goes by and where it keeps how far it is: of a variable, the verifier would
/// follow every value.
#[repr(C)]
pub struct Learning {
    /// With which frame the first witness was found last.
    first: u64,
    /// Below a softirq, where its caller goes on.
    caller: u64,
    found: u64,
    witnesses: Witnesses,
}

/// From the program's own context on: the kernel puts it on the stack that it runs on.
#[inline(always)]
pub fn read_kernel_top(ctx: *mut c_void, into: LookedAt) -> bool {
    let Some(top) = TOPS.get_ptr_mut(into as u32) else { return false };
    // SAFETY: this CPU's own, and it is overwritten right after.
    let sp = as_number(unsafe { &mut (*top)[0] }, ctx);
    read_top(top, sp, STACK_BYTES - (sp & (STACK_BYTES - 1)))
}

/// What of the task's stack lies above the call of a softirq, as far as it is looked at.
#[inline(always)]
pub fn read_below_softirq(call: &SoftirqCall) -> bool {
    const SOURCE: LookedAt = LookedAt::BelowSoftirq;
    let (Some(top), Some(learning)) =
        (TOPS.get_ptr_mut(SOURCE as u32), LEARNING.get_ptr_mut(SOURCE as u32))
    else {
        return false;
    };
    // SAFETY: this CPU's own, and nothing else uses it now.
    unsafe { (*learning).caller = call.caller };
    read_top(top, call.sp, call.above)
}

/// The top of a stack that has `above` bytes from `sp` on.
#[inline(always)]
fn read_top(top: *mut Top, sp: u64, above: u64) -> bool {
    const BYTES: u64 = (LOOKED_AT * 8) as u64;
    let mut length = BYTES;
    if above < BYTES {
        // What can't be read is zeroed: nothing can be read at 0.
        // SAFETY: the helper writes the size that is named.
        unsafe { bpf_probe_read_kernel(top.cast(), BYTES as u32, ptr::null()) };
        length = above;
    }
    // The mask is for the verifier, which has lost sight of the bound by here.
    let length = core::hint::black_box(length) & (TOP as u64 * 8 - 1);
    // SAFETY: as above.
    unsafe { bpf_probe_read_kernel(top.cast(), length as u32, sp as *const c_void) == 0 }
}

/// Where stacks of a [`Side`] are put together.
#[inline(always)]
pub fn scratch_of(side: u32) -> Scratch {
    if side < Side::WakeUser as u32 { Scratch::Switch } else { Scratch::Waking }
}

/// The top of the stack that was read last of a side.
#[inline(always)]
pub fn top_of(side: u32) -> Option<&'static Top> {
    // SAFETY: this CPU's own, and `Scratch` says why nothing else uses it now.
    TOPS.get_ptr(LookedAt::of(side)).map(|top| unsafe { &*top })
}

/// The witnesses of the stack that was walked last, and their proof; none if there are too few.
#[inline(always)]
pub fn of_last_walk(side: u32) -> Option<(Witnesses, u64)> {
    let found = search(side);
    let learning = LEARNING.get_ptr(LookedAt::of(side))?;
    // SAFETY: as in `top_of`.
    let witnesses = unsafe { (*learning).witnesses };
    let proof = witnesses.proof(top_of(side)?);
    (found >= least_witnesses(side)).then_some((witnesses, proof))
}

/// There is always more than one return address, but where an interrupt found user code.
#[inline(always)]
fn least_witnesses(side: u32) -> u64 {
    if side == Side::WakeInSoftirq as u32 { 1 } else { 2 }
}

/// Finds the witnesses of the stack that was walked last. How many frames lie below what is looked at
/// is the same each time but for a softirq.
#[inline(always)]
fn search(side: u32) -> u64 {
    let looked_at = LookedAt::of(side);
    if side == Side::WakeInSoftirq as u32 {
        return find_witnesses(side, frames_of_softirq());
    }
    let Some(learning) = LEARNING.get_ptr_mut(looked_at) else { return 0 };
    // SAFETY: as in `find_witnesses`.
    let learning = unsafe { &mut *learning };
    let found = find_witnesses(side, learning.first);
    if found != 0 {
        return found;
    }
    let mut first = 0;
    while first < PASSED_OVER {
        let found = find_witnesses(side, first);
        if found != 0 {
            learning.first = first;
            return found;
        }
        first += 1;
    }
    0
}

/// How many frames of the walk are the softirq's.
#[unsafe(no_mangle)]
extern "C" fn frames_of_softirq() -> u64 {
    let (Some(record), Some(learning)) = (
        STACK_SCRATCH.get_ptr(Scratch::Waking as u32),
        LEARNING.get_ptr(LookedAt::BelowSoftirq as u32),
    ) else {
        return 0;
    };
    // SAFETY: as in `find_witnesses`.
    let (record, learning) = unsafe { (&*record, &*learning) };
    let mut frame = 0;
    while frame < FRAMES {
        // SAFETY: below the length.
        if unsafe { *record.frames.get_unchecked(frame as usize) } == learning.caller {
            break;
        }
        frame += 1;
    }
    frame + 1
}

/// Where in the top the frames' return addresses are, leaf first. One after the other, as they lie on
/// the stack; the first of them is that of the frame `first`, and may come after words that are none.
#[unsafe(no_mangle)]
extern "C" fn find_witnesses(side: u32, first: u64) -> u64 {
    let looked_at = LookedAt::of(side);
    let (Some(top), Some(record), Some(learning)) = (
        TOPS.get_ptr(looked_at),
        STACK_SCRATCH.get_ptr(scratch_of(side) as u32),
        LEARNING.get_ptr_mut(looked_at),
    ) else {
        return 0;
    };
    // SAFETY: all are this CPU's own, and `Scratch` says why nothing else uses them now; the walk left
    // its frames there.
    let (top, record, learning) = unsafe { (&*top, &*record, &mut *learning) };
    learning.witnesses = Witnesses { last: u64::MAX, before: u64::MAX };
    learning.found = 0;
    let mut word = 0;
    while word < LOOKED_AT {
        find_witness(top, record, learning, first, word);
        word += 1;
    }
    learning.found
}

/// Whether a word is the next return address. The outermost is none: it is how the kernel was entered, and
/// lies at a random distance from the others (`RANDOMIZE_KSTACK_OFFSET`).
///
/// Without a branch: the verifier follows both ways of each, and in loops it only now and then sees that it
/// has been there before.
#[inline(always)]
fn find_witness(top: &Top, record: &StackRecord, learning: &mut Learning, first: u64, word: usize) {
    let found = learning.found;
    let frame = (first + found) & (FRAMES - 1);
    // SAFETY: both are below the lengths of what they count.
    let (expected, value) =
        unsafe { (*record.frames.get_unchecked(frame as usize), *top.get_unchecked(word)) };
    let is_there = is_less(frame + 1, u64::from(record.depth))
        & is_less(found, WITNESSES)
        & (is_less(0, expected ^ value) ^ 1);
    learning.found = found + is_there;
    let Witnesses { last, before } = learning.witnesses;
    learning.witnesses = Witnesses {
        last: last << (is_there * 8) | (is_there * word as u64),
        before: before << (is_there * 8) | (is_there * (last >> (64 - 8))),
    };
}

impl Witnesses {
    /// A hash of what they say; never 0.
    #[inline(always)]
    pub fn proof(self, top: &Top) -> u64 {
        proof_of(top, self.last, self.before)
    }
}

/// A hash of what witnesses say, of which each of these has the places of some; never 0.
#[inline(always)]
pub fn proof_of(top: &Top, first: u64, further: u64) -> u64 {
    let mut proof = hear(NOTHING_SAID, top, first);
    if further != u64::MAX {
        proof = hear(proof, top, further);
    }
    end_proof(proof)
}

/// A proof with what the witnesses say that this has the places of, a byte each, the lowest first.
#[inline(always)]
fn hear(mut proof: u64, top: &Top, witnesses: u64) -> u64 {
    let mut rest = witnesses;
    let mut index = 0;
    while index < IN_A_WORD {
        let word = rest & 0xff;
        if word == NO_WITNESS {
            break;
        }
        // SAFETY: a byte is below `TOP`.
        let witness = unsafe { *top.get_unchecked(word as usize & (TOP - 1)) };
        proof = add_to_proof(proof, witness);
        rest >>= 8;
        index += 1;
    }
    proof
}
