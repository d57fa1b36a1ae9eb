//! User stacks: found at the call sites that user space has cached, and copied to be unwound in
//! user space otherwise.
//!
//! This needs no frame pointers, and no unwinder in the kernel: a thread waits and wakes at few
//! call sites, and a stack is copied only until user space has cached it. A share of the cache hits
//! is copied all the same, and compared in user space.

use core::{ffi::c_void, ptr};

use aya_ebpf::helpers::generated::{
    bpf_probe_read_kernel, bpf_probe_read_user, bpf_ringbuf_output, bpf_ringbuf_reserve,
    bpf_ringbuf_submit,
};
use profiler_ebpf::{
    config::user_stacks,
    loss::Loss,
    python::PythonFrames,
    record::{NO_STACK, RecordHeader, kind},
    stack_counts::StackKind,
    user_stack::{
        CachedStack, CallSite, FAR_SLOTS, FINGERPRINT_SEED, NO_FAR_SLOT, PAGE, RED_ZONE,
        STACKS_PER_CALL_SITE, StackCopy, copy_size, extend_fingerprint, finish_fingerprint,
        frame_distance, purpose, with_python,
    },
};

use super::{
    budget::{self, Need},
    code_epoch,
    config::{CONFIG, frozen},
    copy_ring,
    frame_slots::{StackTop, fingerprint_slots, scratch_for_kind},
    kernel_stack_cache::{self, KernelStackCache},
    maps::{CALL_SITES, COPY_COUNTS, COPY_REQUESTS, STACK_COPIES, STACK_TOPS},
    python,
    register_cache::{self, RegisterKey},
    ring::{BPF_RB_NO_WAKEUP, count_loss, cpu, now as clock},
    stack::{self, CapturedStack, Scratch, mix},
    task::{Registers, Task, UserRegisters, peek_user},
};

/// Whether user stacks are copied; otherwise the kernel walks them.
#[inline(always)]
fn are_copied() -> bool {
    frozen(&CONFIG.user_stacks) == user_stacks::COPIED
}

/// The user half of the current task as it waits or wakes another. Without the cache of a tracked
/// thread, the stack is always copied.
#[inline(always)]
pub fn capture(
    ctx: *mut c_void,
    kind: StackKind,
    mut cache: Option<&mut KernelStackCache>,
    register_key: RegisterKey,
    now: u64,
) -> CapturedStack {
    if are_copied() {
        let mut found = NO_STACK;
        if kernel_stack_cache::is_enabled()
            && let Some(cache) = cache.as_deref_mut()
        {
            found = register_cache::find(&mut cache.registers, kind, register_key, now);
            if found != NO_STACK {
                kernel_stack_cache::count(|counters| &mut counters.cache_hits, kind as u32);
                if !kernel_stack_cache::decide_check(cache, kind as u32, now) {
                    return CapturedStack(found);
                }
            }
        }
        let cache = cache.map_or(ptr::null_mut(), ptr::from_mut);
        return CapturedStack(find_or_copy(cache, kind as u32, register_key.0, found, now));
    }
    let walk = || stack::walk_user(ctx, scratch_for_kind(kind as u32), Task::current());
    budget::walk(Need::WithinBudget, now, walk)
}

/// The user half of the current task as the sampling clock ticks.
#[inline(always)]
pub fn capture_sample(ctx: *mut c_void, task: Task) -> CapturedStack {
    if are_copied() {
        let Some(request) = copy_request(Scratch::Sample as u32) else {
            return CapturedStack::FAILED;
        };
        begin_request(task, request, purpose::SAMPLE);
        request.python_hash = python::walk_python(task.tid(), Scratch::Sample as u32);
        return CapturedStack(copy(Scratch::Sample));
    }
    stack::walk_user(ctx, Scratch::Sample, task)
}

/// The user half of a thread that is asleep as the survey visits it: user space is asked to copy
/// it, as this runs in another process. `purpose` is what for, one of [`purpose`].
#[inline(always)]
pub fn request_sleeper(task: Task, registers: Registers, purpose: u32) -> CapturedStack {
    if !are_copied() {
        return CapturedStack(NO_STACK);
    }
    let id = next_id(Scratch::Survey);
    let UserRegisters { ip, sp, fp } = registers.user();
    let record = StackCopy {
        header: RecordHeader {
            kind: kind::STACK_COPY,
            cpu: cpu() as u16,
            len: size_of::<StackCopy>() as u32,
        },
        id,
        call_site: 0,
        cached_id: NO_STACK,
        ns: clock(),
        tgid: task.tgid(),
        tid: task.tid(),
        ip,
        sp,
        fp,
        bytes: 0,
        size: copy_size::LONG,
        purpose,
        missing_pages: 0,
        python_hash: 0,
        voluntary_switches: task.voluntary_switches(),
        code_epoch: code_epoch::current_epoch(task.tgid()),
        by_registers: 0,
        red_zone_bytes: 0,
        reserved: 0,
    };
    // SAFETY: the record has this size.
    let sent = unsafe {
        bpf_ringbuf_output(
            ptr::from_ref(&STACK_COPIES).cast_mut().cast(),
            (&raw const record).cast_mut().cast(),
            size_of::<StackCopy>() as u64,
            BPF_RB_NO_WAKEUP,
        )
    };
    if sent != 0 {
        count_loss(Loss::RingFullCopy);
        return CapturedStack::FAILED;
    }
    CapturedStack(id)
}

/// A copy that is to be made; the fields are those of [`StackCopy`]. It is in a map, as the stacks
/// of programs that call each other may take 512 bytes in all.
#[repr(C)]
pub struct CopyRequest {
    ip: u64,
    sp: u64,
    fp: u64,
    call_site: u64,
    cached_id: u64,
    python_hash: u64,
    purpose: u32,
    size: u32,
    code_epoch: u32,
    by_registers: u32,
}

/// The request of the programs with this [`Scratch`].
#[inline(always)]
fn copy_request(scratch: u32) -> Option<&'static mut CopyRequest> {
    // SAFETY: this CPU's own, and `Scratch` says why nothing else uses it now.
    COPY_REQUESTS.get_ptr_mut(scratch).map(|request| unsafe { &mut *request })
}

/// Begins a request for a copy of the current task's stack.
#[inline(always)]
fn begin_request(task: Task, request: &mut CopyRequest, purpose: u32) {
    let UserRegisters { ip, sp, fp } = task.registers().user();
    request.ip = ip;
    request.sp = sp;
    request.fp = fp;
    request.call_site = 0;
    request.cached_id = NO_STACK;
    request.python_hash = 0;
    request.purpose = purpose;
    request.size = copy_size::SHORT;
    request.code_epoch = code_epoch::current_epoch(task.tgid());
    request.by_registers = 0;
}

/// The id of the current task's user stack: of the cached one if the call site has it, else of a
/// copy. `found_by_registers` is the stack that registers alone gave, which is to be checked, or
/// [`NO_STACK`].
///
/// The verifier proves a global function once, and not at each call.
#[unsafe(no_mangle)]
extern "C" fn find_or_copy(
    cache: *mut KernelStackCache,
    kind: u32,
    register_key: u64,
    found_by_registers: u64,
    now: u64,
) -> u64 {
    let task = Task::current();
    let scratch = scratch_for_kind(kind);
    let Some(request) = copy_request(scratch as u32) else { return NO_STACK };
    begin_request(task, request, purpose::WAIT);
    // SAFETY: callers pass the cache of a `TaskLocal`, or null; the verifier checks it.
    let mut cache = unsafe { cache.as_mut() };
    if kernel_stack_cache::is_enabled()
        && let Some(cache) = &mut cache
    {
        let thread = u64::from(task.tid()) | u64::from(request.code_epoch) << 32;
        let frame = frame_distance(request.fp, request.sp);
        request.call_site =
            mix(mix(mix(request.ip, request.sp), frame), mix(thread, task.start_time()));
        let mut found = find_call_site(request.call_site);
        if let Some(call_site) = found {
            request.size = call_site.copy_size;
            if call_site.runs_python != 0 {
                request.python_hash = python::walk_python(task.tid(), scratch as u32);
                found = find_call_site(with_python(request.call_site, request.python_hash));
            }
        }
        if found_by_registers != NO_STACK {
            request.cached_id = found_by_registers;
            request.by_registers = 1;
            request.purpose = purpose::CHECK;
        } else {
            let mut learned = NO_STACK;
            if let Some(call_site) = found {
                request.cached_id = find_cached_stack(call_site, request.sp, scratch as u32);
                if call_site.by_registers != 0 {
                    learned = request.cached_id;
                }
            }
            register_cache::learn(
                &mut cache.registers,
                kind,
                RegisterKey(register_key),
                learned,
                now,
            );
            if request.cached_id != NO_STACK {
                kernel_stack_cache::count(|counters| &mut counters.cache_hits, kind);
                if !kernel_stack_cache::decide_check(cache, kind, now) {
                    return request.cached_id;
                }
                request.purpose = purpose::CHECK;
            }
        }
    }
    if request.python_hash == 0 {
        request.python_hash = python::walk_python(task.tid(), scratch as u32);
    }
    let copied = budget::walk(Need::WithinBudget, now, || CapturedStack(copy(scratch)));
    if request.cached_id == NO_STACK {
        kernel_stack_cache::count(|counters| &mut counters.cache_misses, kind);
        return copied.0;
    }
    if copied != CapturedStack::FAILED
        && let Some(cache) = cache
    {
        cache.count_check(kind);
        if request.by_registers != 0 {
            kernel_stack_cache::count(|counters| &mut counters.by_registers_checked, kind);
        }
    }
    request.cached_id
}

/// What user space has cached for a call site.
#[inline(always)]
fn find_call_site(key: u64) -> Option<&'static CallSite> {
    // SAFETY: an entry does not change while this runs: user space replaces it by another.
    CALL_SITES.get_ptr(key).map(|call_site| unsafe { &*call_site })
}

/// The id of the cached stack whose frame slots are as they were, or [`NO_STACK`]. The stack's top
/// is read to the [`StackTop`] with the index `top_index`.
#[inline(always)]
fn find_cached_stack(call_site: &CallSite, sp: u64, top_index: u32) -> u64 {
    let Some(top) = STACK_TOPS.get_ptr_mut(top_index) else { return NO_STACK };
    let bytes = call_site.near_bytes & (size_of::<StackTop>() as u32 - 1);
    // SAFETY: the helper writes as many bytes as are named, which are fewer than there are, or
    // fails.
    if unsafe { bpf_probe_read_user(top.cast(), bytes, sp as *const c_void) } != 0 {
        return NO_STACK;
    }
    let mut number = 0;
    while number < STACKS_PER_CALL_SITE {
        let id = match_stack(call_site, sp, top_index, number as u64);
        if id != NO_STACK {
            return id;
        }
        number += 1;
    }
    NO_STACK
}

/// The id of one of a call site's stacks if its frame slots are as they were, or [`NO_STACK`].
#[inline(always)]
fn match_stack(call_site: &CallSite, sp: u64, top_index: u32, number: u64) -> u64 {
    let Some(top) = STACK_TOPS.get_ptr(top_index) else { return NO_STACK };
    // SAFETY: this CPU's own; the index is below the length.
    let (top, stack) = unsafe {
        (&*top, call_site.stacks.get_unchecked(number as usize & (STACKS_PER_CALL_SITE - 1)))
    };
    let [near, further] = stack.near_slots;
    if stack.fingerprint == 0 || fingerprint_slots(top, near, further) != stack.fingerprint {
        return NO_STACK;
    }
    if stack.far_slots[0] != NO_FAR_SLOT && far_fingerprint(stack, sp) != stack.far_fingerprint {
        return NO_STACK;
    }
    stack.id
}

/// The fingerprint of a stack's far slots as they are now, each of which is a read.
#[inline(always)]
fn far_fingerprint(stack: &CachedStack, sp: u64) -> u64 {
    let mut fingerprint = FINGERPRINT_SEED;
    let mut index = 0;
    while index < FAR_SLOTS {
        let offset = stack.far_slots[index];
        if offset == NO_FAR_SLOT {
            break;
        }
        fingerprint = extend_fingerprint(fingerprint, peek_user(sp + u64::from(offset)));
        index += 1;
    }
    finish_fingerprint(fingerprint)
}

/// Makes and sends the copy that is requested. Returns its id, or [`NO_STACK`] if there was too little
/// room in the ring, which is counted.
#[inline(always)]
fn copy(scratch: Scratch) -> u64 {
    if !copy_ring::draw_copy() {
        return NO_STACK;
    }
    let Some(request) = copy_request(scratch as u32) else { return NO_STACK };
    match (request.python_hash, request.size) {
        (0, copy_size::SHORT) => copy_pages::<{ copy_size::PAGES[0] + 1 }, 0>(scratch),
        (0, copy_size::MEDIUM) => copy_pages::<{ copy_size::PAGES[1] + 1 }, 0>(scratch),
        (0, _) => copy_pages::<{ copy_size::PAGES[2] + 1 }, 0>(scratch),
        (_, copy_size::SHORT) => copy_pages::<{ copy_size::PAGES[0] + 1 }, 1>(scratch),
        (_, copy_size::MEDIUM) => copy_pages::<{ copy_size::PAGES[1] + 1 }, 1>(scratch),
        _ => copy_pages::<{ copy_size::PAGES[2] + 1 }, 1>(scratch),
    }
}

/// The record that is reserved in the ring. There is room for whole pages only, as the first may be
/// one.
#[repr(C)]
struct CopyRecord<const PAGES: usize, const PYTHON: usize> {
    head: StackCopy,
    /// One, or none: they are 3 KiB, beside the 8 KiB of a short copy.
    python: [PythonFrames; PYTHON],
    red_zone: [u8; RED_ZONE],
    pages: [[u8; PAGE]; PAGES],
}

/// Copies `PAGES` pages, what is left of the first one included.
#[inline(never)]
fn copy_pages<const PAGES: usize, const PYTHON: usize>(scratch: Scratch) -> u64 {
    let Some(request) = copy_request(scratch as u32) else { return NO_STACK };
    let len = size_of::<CopyRecord<PAGES, PYTHON>>();
    // SAFETY: the size is a constant.
    let record = unsafe {
        bpf_ringbuf_reserve(ptr::from_ref(&STACK_COPIES).cast_mut().cast(), len as u64, 0)
    }
    .cast::<CopyRecord<PAGES, PYTHON>>();
    if record.is_null() {
        count_loss(Loss::RingFullCopy);
        return NO_STACK;
    }
    let task = Task::current();
    let id = next_id(scratch);
    let sp = request.sp;
    let page = PAGE as u64;
    let rest_of_page = page - (sp & (page - 1));
    // SAFETY: the record is this program's until it is submitted, and has this size.
    let bytes = unsafe { (&raw mut (*record).pages).cast::<u8>() };
    // Pages that can't be read are zeroed:
    // https://github.com/torvalds/linux/blob/v6.1/kernel/trace/bpf_trace.c#L160
    // SAFETY: as above.
    let missing = unsafe { &raw mut (*record).head.missing_pages };
    set_missing(missing, read_page(bytes, rest_of_page, sp), 0);
    let mut copied = rest_of_page;
    let mut number = 1;
    while number < PAGES {
        // SAFETY: there is room for `PAGES` pages, of which `copied` has taken `number - 1` and a
        // part.
        let failed = read_page(unsafe { bytes.add(copied as usize) }, page, sp + copied);
        set_missing(missing, failed, number);
        copied += page;
        number += 1;
    }
    // SAFETY: as above.
    let red_zone = unsafe { (&raw mut (*record).red_zone).cast::<u8>() };
    let failed = read_page(red_zone, RED_ZONE as u64, sp.wrapping_sub(RED_ZONE as u64));
    // SAFETY: as above. Field by field, since a whole `StackCopy` would take too much of the
    // program's stack.
    let head = unsafe { &mut (*record).head };
    head.header = RecordHeader { kind: kind::STACK_COPY, cpu: cpu() as u16, len: len as u32 };
    head.id = id;
    head.call_site = request.call_site;
    head.cached_id = request.cached_id;
    head.ns = clock();
    head.tgid = task.tgid();
    head.tid = task.tid();
    head.ip = request.ip;
    head.sp = sp;
    head.fp = request.fp;
    head.bytes = copied as u32;
    head.size = request.size;
    head.purpose = request.purpose;
    head.python_hash = request.python_hash;
    head.voluntary_switches = 0;
    head.code_epoch = request.code_epoch;
    head.by_registers = request.by_registers;
    head.red_zone_bytes = RED_ZONE as u32 * (1 - failed);
    head.reserved = 0;
    if PYTHON == 1
        && let Some(frames) = python::last_walked(scratch)
    {
        // SAFETY: both have this size.
        unsafe {
            bpf_probe_read_kernel(
                (&raw mut (*record).python).cast(),
                size_of::<PythonFrames>() as u32,
                frames.cast(),
            );
        }
    }
    // SAFETY: as above; the record is not touched after it was submitted.
    unsafe { bpf_ringbuf_submit(record.cast(), BPF_RB_NO_WAKEUP) };
    id
}

/// Sets the bit of a page that is missing, in the record itself: in variables, the compiler would
/// keep each page's bit apart until all are read, and older kernels give programs too little stack
/// for that.
#[inline(always)]
fn set_missing(missing: *mut u32, failed: u32, number: usize) {
    // SAFETY: the caller's record is this program's.
    unsafe {
        let before = if number == 0 { 0 } else { missing.read_volatile() };
        missing.write_volatile(before | failed << number);
    }
}

/// Reads user memory; returns 1 if any of it is not there, else 0. There is no branch: 6.1 would
/// follow both ways of each of sixteen pages to the end.
#[inline(always)]
fn read_page(into: *mut u8, len: u64, address: u64) -> u32 {
    // SAFETY: the caller's buffer has `len` bytes; the verifier checks it.
    let failed = unsafe { bpf_probe_read_user(into.cast(), len as u32, address as *const c_void) };
    // An error is negative.
    (core::hint::black_box(failed as u64 >> 32) >> 31) as u32
}

/// An id that no other stack has. Each [`Scratch`] has a count of its own, as the sampling clock
/// may tick in between.
#[inline(always)]
fn next_id(scratch: Scratch) -> u64 {
    let Some(counts) = COPY_COUNTS.get_ptr_mut(0) else { return NO_STACK };
    // SAFETY: this CPU's own, and `Scratch` says why nothing else counts here now.
    let count = unsafe {
        (*counts)[scratch as usize] += 1;
        (*counts)[scratch as usize]
    };
    let number = u64::from(cpu()) << 48 | (scratch as u64) << 46 | count;
    // The hash is one to one, so that no two numbers have one id; the seed makes it unlikely that
    // the id is that of a walked stack, which is a hash of its frames.
    match mix(frozen(&CONFIG.stack_seed), number) {
        NO_STACK | u64::MAX => 1,
        id => id,
    }
}
