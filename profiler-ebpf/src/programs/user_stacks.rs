//! User stacks: recognised by what user space has learnt of them, and copied to be unwound there
//! otherwise.
//!
//! No frame pointers are needed, and no unwinder here: a thread waits and wakes in few places, and of
//! each a copy is sent once. Some that were recognised are copied all the same, and compared there.

use core::{ffi::c_void, ptr};

use aya_ebpf::helpers::generated::{
    bpf_probe_read_kernel, bpf_probe_read_user, bpf_ringbuf_output, bpf_ringbuf_reserve,
    bpf_ringbuf_submit,
};
use profiler_ebpf::{
    config::user_stacks,
    loss::Loss,
    python::Chain,
    record::{NO_STACK, RecordHeader, kind},
    stack_counts::Side,
    user_stack::{
        FAR, KnownStack, NO_FAR_WITNESS, NOTHING_SAID, PAGE, Place, STACKS, StackCopy,
        add_to_proof, copy_size, end_proof, frame_in_reach, purpose, with_python,
    },
};

use super::{
    budget::{self, Price},
    code_epoch,
    known_stacks::{self, KnownStacks},
    maps::{COPIES, COPY_COUNTS, PLACES, TOPS, WANTED},
    python,
    ring::{cpu, lost, now as clock},
    settings::{CONFIG, frozen},
    stack::{self, Scratch, Taken, mix},
    task::{Registers, Task, UserRegisters, peek_user},
    witnesses::{Top, proof_of, scratch_of},
};

/// Whether user stacks are copied, and not walked by the kernel.
#[inline(always)]
fn are_copied() -> bool {
    frozen(&CONFIG.user_stacks) == user_stacks::COPIED
}

/// The user half of the current task as it waits or wakes another. Without a slot nothing can be
/// learnt of it.
#[inline(always)]
pub fn of_side(ctx: *mut c_void, side: Side, known: Option<&mut KnownStacks>, now: u64) -> Taken {
    if are_copied() {
        let known = known.map_or(ptr::null_mut(), ptr::from_mut);
        return Taken(recognise_or_copy(known, side as u32, now));
    }
    let walk = || stack::of_user(ctx, scratch_of(side as u32), Task::current());
    budget::walk(Price::WithinBudget, now, walk)
}

/// The user half of the current task as the sampling clock strikes.
#[inline(always)]
pub fn of_sample(ctx: *mut c_void, task: Task) -> Taken {
    if are_copied() {
        let Some(wanted) = wanted(Scratch::Sample as u32) else { return Taken::FAILED };
        want(task, wanted, purpose::SAMPLE);
        wanted.python = python::walk_python(task.tid(), Scratch::Sample as u32);
        return Taken(copy(Scratch::Sample));
    }
    stack::of_user(ctx, Scratch::Sample, task)
}

/// The user half of a thread that sleeps already, as the survey finds it.
#[inline(always)]
pub fn of_sleeper(task: Task, registers: Registers) -> Taken {
    if !are_copied() {
        return Taken(NO_STACK);
    }
    let id = next_id(Scratch::Survey);
    let UserRegisters { ip, sp, fp } = registers.user();
    let announced = StackCopy {
        header: RecordHeader {
            kind: kind::STACK_COPY,
            cpu: cpu() as u16,
            len: size_of::<StackCopy>() as u32,
        },
        id,
        key: 0,
        taken_for: NO_STACK,
        ns: clock(),
        tgid: task.tgid(),
        tid: task.tid(),
        ip,
        sp,
        fp,
        bytes: 0,
        size: copy_size::LONG,
        purpose: purpose::BEGUN_BEFORE,
        missing: 0,
        python: 0,
        switches: task.switches(),
        code_epoch: code_epoch::epoch(task.tgid()),
        reserved: 0,
    };
    // SAFETY: it has this size.
    let sent = unsafe {
        bpf_ringbuf_output(
            ptr::from_ref(&COPIES).cast_mut().cast(),
            (&raw const announced).cast_mut().cast(),
            size_of::<StackCopy>() as u64,
            0,
        )
    };
    if sent != 0 {
        lost(Loss::RingFullCopy);
        return Taken::FAILED;
    }
    Taken(id)
}

/// What is copied, and what for; see [`StackCopy`]. In a map, as the stacks of programs that call each
/// other may take 512 bytes in all.
#[repr(C)]
pub struct Wanted {
    ip: u64,
    sp: u64,
    fp: u64,
    key: u64,
    taken_for: u64,
    python: u64,
    purpose: u32,
    size: u32,
    code_epoch: u32,
    reserved: u32,
}

/// What is wanted where stacks of this [`Scratch`] are put together.
#[inline(always)]
fn wanted(scratch: u32) -> Option<&'static mut Wanted> {
    // SAFETY: this CPU's own, and `Scratch` says why nothing else uses it now.
    WANTED.get_ptr_mut(scratch).map(|wanted| unsafe { &mut *wanted })
}

/// Fills in what is wanted of the current task's stack, for whom it may concern.
#[inline(always)]
fn want(task: Task, wanted: &mut Wanted, purpose: u32) {
    let UserRegisters { ip, sp, fp } = task.registers().user();
    wanted.ip = ip;
    wanted.sp = sp;
    wanted.fp = fp;
    wanted.key = 0;
    wanted.taken_for = NO_STACK;
    wanted.python = 0;
    wanted.purpose = purpose;
    wanted.size = copy_size::SHORT;
    wanted.code_epoch = code_epoch::epoch(task.tgid());
}

/// The id of the current task's user stack.
///
/// The verifier looks at a function that others can see once, and not at each call.
#[unsafe(no_mangle)]
extern "C" fn recognise_or_copy(known: *mut KnownStacks, side: u32, now: u64) -> u64 {
    let task = Task::current();
    let scratch = scratch_of(side);
    let Some(wanted) = wanted(scratch as u32) else { return NO_STACK };
    want(task, wanted, purpose::WAIT);
    // SAFETY: whoever calls has it from a slot, or has none; the verifier sees to it.
    let mut known = unsafe { known.as_mut() };
    if known_stacks::are_used()
        && let Some(known) = &mut known
    {
        let thread = u64::from(task.tid()) | u64::from(wanted.code_epoch) << 32;
        let frame = frame_in_reach(wanted.fp, wanted.sp);
        wanted.key = mix(mix(mix(wanted.ip, wanted.sp), frame), mix(thread, task.start_time()));
        let mut known_place = place(wanted.key);
        if let Some(place) = known_place {
            wanted.size = place.size;
            if place.runs_python != 0 {
                wanted.python = python::walk_python(task.tid(), scratch as u32);
                known_place = self::place(with_python(wanted.key, wanted.python));
            }
        }
        if let Some(place) = known_place {
            wanted.taken_for = recognise(place, wanted.sp, scratch as u32);
        }
        if wanted.taken_for != NO_STACK {
            known_stacks::count(|counters| &mut counters.recognised, side);
            if !known_stacks::draw_check(known, side, now) {
                return wanted.taken_for;
            }
            wanted.purpose = purpose::CHECK;
        }
    }
    if wanted.python == 0 {
        wanted.python = python::walk_python(task.tid(), scratch as u32);
    }
    let copied = budget::walk(Price::WithinBudget, now, || Taken(copy(scratch)));
    if wanted.taken_for == NO_STACK {
        known_stacks::count(|counters| &mut counters.walked, side);
        return copied.0;
    }
    if copied != Taken::FAILED
        && let Some(known) = known
    {
        known.note_check(side);
    }
    wanted.taken_for
}

/// What is known of a place.
#[inline(always)]
fn place(key: u64) -> Option<&'static Place> {
    // SAFETY: it stays as it is while this runs: what takes its place is another one.
    PLACES.get_ptr(key).map(|place| unsafe { &*place })
}

/// The stack of this place whose witnesses say what they said, or [`NO_STACK`].
#[inline(always)]
fn recognise(place: &Place, sp: u64, looked_at: u32) -> u64 {
    let Some(top) = TOPS.get_ptr_mut(looked_at) else { return NO_STACK };
    let bytes = place.looked_at & (size_of::<Top>() as u32 - 1);
    // SAFETY: the helper writes as many bytes as are named, which are fewer than there are, or fails.
    if unsafe { bpf_probe_read_user(top.cast(), bytes, sp as *const c_void) } != 0 {
        return NO_STACK;
    }
    let mut number = 0;
    while number < STACKS {
        let id = agrees(place, sp, looked_at, number as u64);
        if id != NO_STACK {
            return id;
        }
        number += 1;
    }
    NO_STACK
}

/// The id of a place's stack if its witnesses say what they said.
#[inline(always)]
fn agrees(place: &Place, sp: u64, looked_at: u32, number: u64) -> u64 {
    let Some(top) = TOPS.get_ptr(looked_at) else { return NO_STACK };
    // SAFETY: this CPU's own; the index is below the length.
    let (top, known) =
        unsafe { (&*top, place.stacks.get_unchecked(number as usize & (STACKS - 1))) };
    let [near, further] = known.near;
    if known.proof == 0 || proof_of(top, near, further) != known.proof {
        return NO_STACK;
    }
    if known.far[0] != NO_FAR_WITNESS && far_proof(known, sp) != known.far_proof {
        return NO_STACK;
    }
    known.id
}

#[inline(always)]
fn far_proof(known: &KnownStack, sp: u64) -> u64 {
    let mut proof = NOTHING_SAID;
    let mut index = 0;
    while index < FAR {
        let far = known.far[index];
        if far == NO_FAR_WITNESS {
            break;
        }
        proof = add_to_proof(proof, peek_user(sp + u64::from(far)));
        index += 1;
    }
    end_proof(proof)
}

/// Sends a copy of what is wanted. The id that it will have, or [`NO_STACK`] if there was no room; that
/// is counted.
#[inline(always)]
fn copy(scratch: Scratch) -> u64 {
    let Some(wanted) = wanted(scratch as u32) else { return NO_STACK };
    match wanted.size {
        copy_size::SHORT => copy_pages::<{ copy_size::PAGES[0] + 1 }>(scratch),
        copy_size::MEDIUM => copy_pages::<{ copy_size::PAGES[1] + 1 }>(scratch),
        _ => copy_pages::<{ copy_size::PAGES[2] + 1 }>(scratch),
    }
}

/// What is reserved: the first page may be a whole one.
#[repr(C)]
struct Copy<const PAGES: usize> {
    head: StackCopy,
    python: Chain,
    pages: [[u8; PAGE]; PAGES],
}

/// `PAGES` pages, what is left of the first one included.
#[inline(never)]
fn copy_pages<const PAGES: usize>(scratch: Scratch) -> u64 {
    let Some(wanted) = wanted(scratch as u32) else { return NO_STACK };
    let len = size_of::<Copy<PAGES>>();
    // SAFETY: the size is a constant.
    let record =
        unsafe { bpf_ringbuf_reserve(ptr::from_ref(&COPIES).cast_mut().cast(), len as u64, 0) }
            .cast::<Copy<PAGES>>();
    if record.is_null() {
        lost(Loss::RingFullCopy);
        return NO_STACK;
    }
    let task = Task::current();
    let id = next_id(scratch);
    let sp = wanted.sp;
    let page = PAGE as u64;
    let rest_of_page = page - (sp & (page - 1));
    // SAFETY: the record is this program's until it is submitted, and has this size.
    let bytes = unsafe { (&raw mut (*record).pages).cast::<u8>() };
    // What can't be read is zeroed:
    // https://github.com/torvalds/linux/blob/v6.1/kernel/trace/bpf_trace.c#L160
    // SAFETY: as above.
    let missing = unsafe { &raw mut (*record).head.missing };
    note_missing(missing, read(bytes, rest_of_page, sp), 0);
    let mut copied = rest_of_page;
    let mut number = 1;
    while number < PAGES {
        // SAFETY: so many pages less one and a part of one are behind it.
        let failed = read(unsafe { bytes.add(copied as usize) }, page, sp + copied);
        note_missing(missing, failed, number);
        copied += page;
        number += 1;
    }
    // SAFETY: as above. Field by field: put together on the stack first, it would take too much of it.
    let head = unsafe { &mut (*record).head };
    head.header = RecordHeader { kind: kind::STACK_COPY, cpu: cpu() as u16, len: len as u32 };
    head.id = id;
    head.key = wanted.key;
    head.taken_for = wanted.taken_for;
    head.ns = clock();
    head.tgid = task.tgid();
    head.tid = task.tid();
    head.ip = wanted.ip;
    head.sp = sp;
    head.fp = wanted.fp;
    head.bytes = copied as u32;
    head.size = wanted.size;
    head.purpose = wanted.purpose;
    head.python = wanted.python;
    head.switches = 0;
    head.code_epoch = wanted.code_epoch;
    head.reserved = 0;
    if wanted.python != 0
        && let Some(chain) = python::walked(scratch)
    {
        // SAFETY: both have this size.
        unsafe {
            bpf_probe_read_kernel(
                (&raw mut (*record).python).cast(),
                size_of::<Chain>() as u32,
                chain.cast(),
            );
        }
    }
    // SAFETY: as above; it is not touched after it was submitted.
    unsafe { bpf_ringbuf_submit(record.cast(), 0) };
    id
}

/// Notes a page, in the record itself: in variables, the compiler would keep each page's bit apart until
/// all are read, and older kernels give programs too little room for that.
#[inline(always)]
fn note_missing(missing: *mut u32, failed: u32, number: usize) {
    // SAFETY: the caller's record is this program's.
    unsafe {
        let before = if number == 0 { 0 } else { missing.read_volatile() };
        missing.write_volatile(before | failed << number);
    }
}

/// Reads user memory; 1 if any of it is not there, else 0. Without a branch: 6.1 would follow each of
/// sixteen pages that are there or not to the end.
#[inline(always)]
fn read(into: *mut u8, len: u64, address: u64) -> u32 {
    // SAFETY: the caller's room has `len` bytes; the verifier checks it.
    let failed = unsafe { bpf_probe_read_user(into.cast(), len as u32, address as *const c_void) };
    // An error is negative.
    (core::hint::black_box(failed as u64 >> 32) >> 31) as u32
}

/// An id that no other stack has. A clock that strikes in between counts for itself.
#[inline(always)]
fn next_id(scratch: Scratch) -> u64 {
    let Some(counts) = COPY_COUNTS.get_ptr_mut(0) else { return NO_STACK };
    // SAFETY: this CPU's own, and `Scratch` says why nothing else counts here now.
    let count = unsafe {
        (*counts)[scratch as usize] += 1;
        (*counts)[scratch as usize]
    };
    let number = u64::from(cpu()) << 48 | (scratch as u64) << 46 | count;
    // One to one, so that no two numbers have one id; the seed keeps it away from those of stacks that
    // are known by a hash.
    match mix(frozen(&CONFIG.stack_seed), number) {
        NO_STACK | u64::MAX => 1,
        id => id,
    }
}
