//! Stacks: sent the first time that one is seen, known by an id after that.
//!
//! The id is a seeded 64-bit hash of the frames, and the map of what was sent holds a second,
//! independent one: two stacks that share an id are told apart, counted, and both arrive. Of a kernel
//! stack the frames of the tracing itself are left out of both: they change where the stack does not.

use core::{ffi::c_void, ptr};

use aya_ebpf::helpers::generated::{bpf_get_stack, bpf_get_task_stack};
use profiler_ebpf::{
    config::stacks,
    loss::Loss,
    record::{MAX_FRAMES, NO_STACK, RecordHeader, StackRecord, kind},
};

use super::{
    maps::{SENT_STACKS, STACK_SCRATCH},
    ring::{cpu, lost, now, send},
    settings::{CONFIG, frozen},
    task::Task,
};

/// `BPF_F_USER_STACK`
const USER_STACK: u64 = 1 << 8;

/// Who puts a stack together where ([`STACK_SCRATCH`]).
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

/// The id of a stack that was taken, or [`NO_STACK`] if it could not be had; that is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Taken(pub u64);

impl Taken {
    /// It could not be had.
    pub const FAILED: Self = Self(NO_STACK);

    /// The id for a record's field, and the flag to set if there is none.
    #[inline(always)]
    pub fn or_flag(self, flags: &mut u32, failed: u32) -> u64 {
        if self == Self::FAILED {
            *flags |= failed;
        }
        self.0
    }
}

/// Whether stacks are wanted.
#[inline(always)]
pub fn wanted() -> bool {
    frozen(&CONFIG.stacks) != stacks::OFF
}

/// The current task's user half.
#[inline(always)]
pub fn of_user(ctx: *mut c_void, scratch: Scratch, current: Task) -> Taken {
    let Some(record) = STACK_SCRATCH.get_ptr_mut(scratch as u32) else { return Taken::FAILED };
    // SAFETY: the scratch is this CPU's own, and `Scratch` says why nothing else uses it now.
    let record = unsafe { &mut *record };
    // SAFETY: the buffer has the size that is named.
    let bytes = unsafe {
        bpf_get_stack(ctx, record.frames.as_mut_ptr().cast(), (MAX_FRAMES * 8) as u32, USER_STACK)
    };
    if bytes <= 0 {
        lost(Loss::UserStackFailed);
        return Taken::FAILED;
    }
    // The address space goes in: after an exec the same addresses are another program's.
    identify_in(scratch, record, bytes as u64, current.tgid(), current.mm())
}

/// The current task's kernel half, interrupts on top of it included; nothing is counted if it is in
/// user code.
#[inline(always)]
pub fn of_kernel_if_in_it(ctx: *mut c_void, scratch: Scratch) -> Taken {
    let Some(record) = STACK_SCRATCH.get_ptr_mut(scratch as u32) else { return Taken::FAILED };
    // SAFETY: as in `of_user`.
    let record = unsafe { &mut *record };
    // SAFETY: as in `of_user`.
    let bytes = unsafe {
        bpf_get_stack(ctx, record.frames.as_mut_ptr().cast(), (MAX_FRAMES * 8) as u32, 0)
    };
    if bytes <= 0 {
        return Taken::FAILED;
    }
    identify_in(scratch, record, bytes as u64, 0, 0)
}

/// The current task's kernel half where it must have one; counted if the kernel can't give it.
#[inline(always)]
pub fn of_kernel(ctx: *mut c_void, scratch: Scratch) -> Taken {
    let taken = of_kernel_if_in_it(ctx, scratch);
    if taken == Taken::FAILED {
        lost(Loss::KernelStackFailed);
    }
    taken
}

/// A blocked task's kernel half. From the waker's side it costs a fifth of what it costs at the
/// switch, and the frames are its own alone.
#[inline(always)]
pub fn of_blocked(task: Task, scratch: Scratch) -> Taken {
    if task.is_on_cpu() {
        // It is on its way out: what its saved stack pointer points to is of another time.
        lost(Loss::KernelStackUnsettled);
        return Taken::FAILED;
    }
    let Some(record) = STACK_SCRATCH.get_ptr_mut(scratch as u32) else { return Taken::FAILED };
    // SAFETY: as in `of_user`.
    let record = unsafe { &mut *record };
    // SAFETY: as in `of_user`.
    let bytes = unsafe {
        bpf_get_task_stack(
            task.as_ptr().cast(),
            record.frames.as_mut_ptr().cast(),
            (MAX_FRAMES * 8) as u32,
            0,
        )
    };
    if bytes <= 0 {
        lost(Loss::KernelStackFailed);
        return Taken::FAILED;
    }
    identify_in(scratch, record, bytes as u64, 0, 0)
}

#[inline(always)]
fn identify_in(
    scratch: Scratch,
    record: &mut StackRecord,
    bytes: u64,
    tgid: u32,
    space: u64,
) -> Taken {
    record.depth = (bytes / 8) as u32;
    Taken(identify(scratch as u32, tgid, space))
}

/// The id of the stack that was put together; it is sent if user space does not have it.
///
/// The verifier looks at a function that others can see once, and not at each call.
#[unsafe(no_mangle)]
extern "C" fn identify(scratch: u32, tgid: u32, space: u64) -> u64 {
    let Some(record) = STACK_SCRATCH.get_ptr_mut(scratch) else { return NO_STACK };
    // SAFETY: as in `of_user`.
    let record = unsafe { &mut *record };
    // Two multiplicative hashes with odd constants (the golden ratio's, and xxHash's second prime);
    // the seed keeps a program from planning a collision.
    let seed = frozen(&CONFIG.stack_seed);
    let mut id = seed ^ space ^ u64::from(tgid).rotate_left(32);
    let mut check = !id;
    record.id = if space == 0 { frames_of_tracing(record) } else { 0 };
    let mut index = 0;
    while index < MAX_FRAMES && index < depth_of(record) {
        // SAFETY: `index` is below `MAX_FRAMES`.
        let frame = unsafe { *record.frames.get_unchecked(index) };
        if index >= passed_over(record) {
            id = mix(id, frame);
            check = (check.rotate_left(27) ^ frame).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        }
        index += 1;
    }
    if id == NO_STACK || id == u64::MAX {
        id = 1;
    }
    if let Some(sent) = SENT_STACKS.get_ptr(id) {
        // SAFETY: an entry that is evicted while it is read gives another stack's hash; the
        // comparison then fails and the stack is sent once more.
        if unsafe { *sent } == check {
            return id;
        }
        lost(Loss::StackIdCollision);
        id ^= check | 1;
    }
    let mut depth = depth_of(record);
    if depth > MAX_FRAMES {
        depth = MAX_FRAMES;
    }
    let len = StackRecord::len_of(depth);
    record.header = RecordHeader { kind: kind::STACK, cpu: cpu() as u16, len: len as u32 };
    record.id = id;
    record.ns = now();
    record.tgid = tgid;
    // A stack that found no room is sent again with the next record that has it.
    if send(ptr::from_ref(record).cast(), len, Loss::RingFullStack).is_ok() {
        let _full = SENT_STACKS.insert(id, check, 0);
    }
    id
}

/// How many frames are those of the tracing. Without a branch: the verifier would else follow every
/// number of them through the program.
#[inline(always)]
fn frames_of_tracing(record: &StackRecord) -> u64 {
    /// At most: the program's own functions, and what runs it.
    const MOST: usize = 6;
    let begin = frozen(&CONFIG.tracing_begin);
    let length = frozen(&CONFIG.tracing_end) - begin;
    let mut frames = 0;
    let mut index = 0;
    while index < MOST {
        // SAFETY: below the length.
        let frame = unsafe { *record.frames.get_unchecked(index) };
        // Halves, as neither may have the uppermost bit. What lies behind a stack that has fewer frames
        // is of another one.
        let is_there = is_less(frame.wrapping_sub(begin) >> 1, length >> 1)
            & is_less(index as u64, u64::from(record.depth));
        frames = frames * (1 - is_there) + is_there * (index as u64 + 1);
        index += 1;
    }
    frames
}

/// The same while a stack's id is not known yet, in whose place it is kept; read anew each time, as
/// [`depth_of`] says.
#[inline(always)]
fn passed_over(record: &StackRecord) -> usize {
    // SAFETY: a reference can be read from.
    unsafe { ptr::read_volatile(&raw const record.id) as usize }
}

/// 1 if `one` is less than `other`, else 0; both below 2⁶³, or `one` 0.
#[inline(always)]
pub fn is_less(one: u64, other: u64) -> u64 {
    let sign = one.wrapping_sub(other) | (other & !one & (1 << 63));
    // In two steps, of which the compiler sees each alone: of what it knows to be one of two values it
    // makes a branch.
    core::hint::black_box(sign >> 32) >> 31
}

/// Read anew each time: what the verifier learns of a variable from every comparison, it would carry
/// along into the rest of the program.
#[inline(always)]
pub fn depth_of(record: &StackRecord) -> usize {
    // SAFETY: a reference can be read from.
    unsafe { ptr::read_volatile(&raw const record.depth) as usize }
}

/// One value more in a multiplicative hash.
#[inline(always)]
pub fn mix(hash: u64, value: u64) -> u64 {
    let mixed = (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}
