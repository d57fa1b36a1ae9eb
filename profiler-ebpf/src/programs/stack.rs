//! Walks stacks, and sends their frames: a stack is sent the first time that it is seen, and
//! records refer to it by its id.
//!
//! The id is a seeded 64-bit hash of the frames, and the map of the stacks that were sent holds a
//! second, independent one: two stacks that share an id are told apart, counted, and both arrive.
//! Both hashes leave out a kernel stack's frames of the tracing itself: those change where the
//! stack does not.

use core::{ffi::c_void, ptr};

use aya_ebpf::helpers::generated::{bpf_get_stack, bpf_get_task_stack};
use profiler_ebpf::{
    config::stacks,
    loss::{Loss, RingLoss},
    record::{MAX_FRAMES, NO_STACK, RecordHeader, StackRecord, kind},
};

use super::{
    config::{CONFIG, frozen},
    maps::{SENT_STACKS, STACK_SCRATCH},
    ring::{count_loss, cpu, now, send},
    task::Task,
};

/// `BPF_F_USER_STACK`
const USER_STACK: u64 = 1 << 8;

/// Which program puts a stack together; the index into [`STACK_SCRATCH`], so that programs which
/// can run on top of each other have memory of their own.
#[derive(Clone, Copy)]
pub enum Scratch {
    /// `sched_switch`: interrupts are off.
    Switch = 0,
    /// `sched_waking`: interrupts are off; it does not run inside `sched_switch`.
    Waking = 1,
    /// The sampling clock, an interrupt.
    Sample = 2,
    /// The survey, in process context: any of the others may come on top.
    Survey = 3,
}

/// The id of a stack that was walked, copied or found in a cache; [`NO_STACK`] if all of that
/// failed, which is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct CapturedStack(pub u64);

impl CapturedStack {
    /// There is no stack.
    pub const FAILED: Self = Self(NO_STACK);

    /// The id for a record's field; adds `failed` to the record's flags if there is none.
    #[inline(always)]
    pub fn or_flag(self, flags: &mut u32, failed: u32) -> u64 {
        if self == Self::FAILED {
            *flags |= failed;
        }
        self.0
    }
}

/// Whether stacks are recorded.
#[inline(always)]
pub fn are_recorded() -> bool {
    frozen(&CONFIG.stacks) != stacks::OFF
}

/// Walks the current task's user half, by frame pointers.
#[inline(always)]
pub fn walk_user(ctx: *mut c_void, scratch: Scratch, current: Task) -> CapturedStack {
    let Some(record) = STACK_SCRATCH.get_ptr_mut(scratch as u32) else {
        return CapturedStack::FAILED;
    };
    // SAFETY: the scratch is this CPU's own, and `Scratch` says why nothing else uses it now.
    let record = unsafe { &mut *record };
    // SAFETY: the buffer has the size that is named.
    let bytes = unsafe {
        bpf_get_stack(ctx, record.frames.as_mut_ptr().cast(), (MAX_FRAMES * 8) as u32, USER_STACK)
    };
    if bytes <= 0 {
        count_loss(Loss::UserStackFailed);
        return CapturedStack::FAILED;
    }
    // The address space is part of the hash: after an exec the same addresses are another
    // program's.
    identify_walked(scratch, record, bytes as u64, current.tgid(), current.mm())
}

/// Walks the current task's kernel half, interrupts on top of it included. Nothing is counted if
/// the task is in user code, where it has none.
#[inline(always)]
pub fn walk_kernel_if_any(ctx: *mut c_void, scratch: Scratch) -> CapturedStack {
    let Some(record) = STACK_SCRATCH.get_ptr_mut(scratch as u32) else {
        return CapturedStack::FAILED;
    };
    // SAFETY: as in `walk_user`.
    let record = unsafe { &mut *record };
    // SAFETY: as in `walk_user`.
    let bytes = unsafe {
        bpf_get_stack(ctx, record.frames.as_mut_ptr().cast(), (MAX_FRAMES * 8) as u32, 0)
    };
    if bytes <= 0 {
        return CapturedStack::FAILED;
    }
    identify_walked(scratch, record, bytes as u64, 0, 0)
}

/// Walks the current task's kernel half where it must have one. A failure is counted.
#[inline(always)]
pub fn walk_kernel(ctx: *mut c_void, scratch: Scratch) -> CapturedStack {
    let stack = walk_kernel_if_any(ctx, scratch);
    if stack == CapturedStack::FAILED {
        count_loss(Loss::KernelStackFailed);
    }
    stack
}

/// Walks a blocked task's kernel half. A walk by the waker costs a fifth of what one costs at the
/// switch-out, and finds no frames of the switch and its tracing.
#[inline(always)]
pub fn walk_blocked(task: Task, scratch: Scratch) -> CapturedStack {
    if task.is_on_cpu() {
        // The task is still leaving the CPU: its saved stack pointer is from an earlier switch.
        count_loss(Loss::KernelStackUnsettled);
        return CapturedStack::FAILED;
    }
    let Some(record) = STACK_SCRATCH.get_ptr_mut(scratch as u32) else {
        return CapturedStack::FAILED;
    };
    // SAFETY: as in `walk_user`.
    let record = unsafe { &mut *record };
    // SAFETY: as in `walk_user`.
    let bytes = unsafe {
        bpf_get_task_stack(
            task.as_ptr().cast(),
            record.frames.as_mut_ptr().cast(),
            (MAX_FRAMES * 8) as u32,
            0,
        )
    };
    if bytes <= 0 {
        count_loss(Loss::KernelStackFailed);
        return CapturedStack::FAILED;
    }
    identify_walked(scratch, record, bytes as u64, 0, 0)
}

/// The id of the stack whose frames were walked into `record`, `bytes` of them.
#[inline(always)]
fn identify_walked(
    scratch: Scratch,
    record: &mut StackRecord,
    bytes: u64,
    tgid: u32,
    address_space: u64,
) -> CapturedStack {
    record.depth = (bytes / 8) as u32;
    CapturedStack(identify_and_send(scratch as u32, tgid, address_space))
}

/// The id of the stack that was put together; the stack is sent if user space does not have it.
///
/// The verifier proves a global function once, and not at each call.
#[unsafe(no_mangle)]
extern "C" fn identify_and_send(scratch: u32, tgid: u32, address_space: u64) -> u64 {
    let Some(record) = STACK_SCRATCH.get_ptr_mut(scratch) else { return NO_STACK };
    // SAFETY: as in `walk_user`.
    let record = unsafe { &mut *record };
    // Two multiplicative hashes with odd constants (the golden ratio's, and xxHash's second prime);
    // the seed keeps a program from constructing a collision.
    let seed = frozen(&CONFIG.stack_seed);
    let mut id = seed ^ address_space ^ u64::from(tgid).rotate_left(32);
    let mut check = !id;
    record.id = if address_space == 0 { count_tracing_frames(record) } else { 0 };
    let mut index = 0;
    while index < MAX_FRAMES && index < read_depth(record) {
        // SAFETY: `index` is below `MAX_FRAMES`.
        let frame = unsafe { *record.frames.get_unchecked(index) };
        if index >= tracing_frames(record) {
            id = mix(id, frame);
            check = (check.rotate_left(27) ^ frame).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        }
        index += 1;
    }
    if id == NO_STACK || id == u64::MAX {
        id = 1;
    }
    if let Some(sent) = SENT_STACKS.get_ptr(id) {
        // SAFETY: an entry that is evicted while it is read may hold another stack's hash; the
        // comparison then fails and the stack is sent once more.
        if unsafe { *sent } == check {
            return id;
        }
        count_loss(Loss::StackIdCollision);
        id ^= check | 1;
    }
    let mut depth = read_depth(record);
    if depth > MAX_FRAMES {
        depth = MAX_FRAMES;
    }
    let len = StackRecord::len_for_depth(depth);
    record.header = RecordHeader { kind: kind::STACK, cpu: cpu() as u16, len: len as u32 };
    record.id = id;
    record.ns = now();
    record.tgid = tgid;
    // A stack that found no room in the ring is sent when it is met again.
    if send(ptr::from_ref(record).cast(), len, RingLoss::STACK).is_ok() {
        let _full = SENT_STACKS.insert(id, check, 0);
    }
    id
}

/// Counts the frames of the tracing itself, at the leaf. There is no branch, because the verifier
/// would follow every possible count through the rest of the program.
#[inline(always)]
fn count_tracing_frames(record: &StackRecord) -> u64 {
    /// The most that there can be: the program's own functions, and the kernel's that run it.
    const MAX_TRACING_FRAMES: usize = 6;
    let begin = frozen(&CONFIG.tracing_begin);
    let length = frozen(&CONFIG.tracing_end) - begin;
    let mut frames = 0;
    let mut index = 0;
    while index < MAX_TRACING_FRAMES {
        // SAFETY: below the length.
        let frame = unsafe { *record.frames.get_unchecked(index) };
        // Both are halved, as [`is_less`] takes no number with the uppermost bit. Frames from
        // `depth` on are left over from another stack.
        let is_tracing = is_less(frame.wrapping_sub(begin) >> 1, length >> 1)
            & is_less(index as u64, u64::from(record.depth));
        frames = frames * (1 - is_tracing) + is_tracing * (index as u64 + 1);
        index += 1;
    }
    frames
}

/// The number of frames that [`count_tracing_frames`] found, which is kept in the id's place until
/// the id is known. It is read anew each time for the reason that [`read_depth`] has.
#[inline(always)]
fn tracing_frames(record: &StackRecord) -> usize {
    // SAFETY: a reference can be read from.
    unsafe { ptr::read_volatile(&raw const record.id) as usize }
}

/// 1 if `one` is less than `other`, else 0; both below 2⁶³, or `one` 0.
#[inline(always)]
pub fn is_less(one: u64, other: u64) -> u64 {
    let sign = one.wrapping_sub(other) | (other & !one & (1 << 63));
    // In two steps, which the compiler can't join: it makes a branch of a value that it knows to be
    // one of two.
    core::hint::black_box(sign >> 32) >> 31
}

/// The number of frames, read anew each time: what the verifier concludes about a variable from
/// each comparison, it would carry along through the rest of the program.
#[inline(always)]
fn read_depth(record: &StackRecord) -> usize {
    // SAFETY: a reference can be read from.
    unsafe { ptr::read_volatile(&raw const record.depth) as usize }
}

/// A multiplicative hash with one value more.
#[inline(always)]
pub fn mix(hash: u64, value: u64) -> u64 {
    let mixed = (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}
