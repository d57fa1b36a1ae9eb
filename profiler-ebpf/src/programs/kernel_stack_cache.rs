//! Each thread's cache of its kernel stacks, by which a stack that the thread has had before is
//! found without a walk; and the checks of what was found, of user stacks too.
//!
//! A walk costs a microsecond, and a thread blocks and wakes others at few call sites, over and
//! over. An entry has the id of the stack that the last walk gave, which words in the top of the
//! stack held its return addresses (its frame slots), and their fingerprint. If the frame slots
//! still have that fingerprint, the stack is the same.
//!
//! A return address above the top that is read has no frame slot, so a share of the cache hits is
//! walked all the same. A kind of stacks of a thread with too many mismatches is distrusted: from
//! then on it is walked every time.

use core::{ffi::c_void, ptr};

use profiler_ebpf::{
    config::stacks,
    record::NO_STACK,
    stack_counts::{STACK_KINDS, StackCounters, StackKind},
};

use super::{
    budget::{self, Need},
    config::{CONFIG, frozen},
    copy_ring, detail,
    frame_slots::{
        self, FrameSlots, TopIndex, read_below_softirq, read_kernel_top, scratch_for_kind,
    },
    interrupt_context,
    maps::STACK_COUNTS,
    register_cache::{self, RegisterCache, RegisterKey},
    stack::{self, CapturedStack, Scratch, mix},
    task::{Registers, Task},
};

/// The cache has a bank for waits and one for wakes; wakes in a softirq have other keys than those
/// in a task's own code.
const BANKS: usize = 2;
/// Entries of a bank, in sets that the keys select. This and [`WAYS`] are powers of two.
const ENTRIES_PER_BANK: usize = 8;
/// Entries of a set. Stacks of several callers can have one key, and each has an entry of the set.
const WAYS: usize = 4;
/// The first cache hits of each kind of a thread's stacks are checked, whatever the share is.
const FIRST_CHECKS: u32 = 8;
/// What lies between two checks of one kind of a thread's stacks, in units of 2²⁰ ns: at most some
/// 200 a second are made. Two threads that pass a byte to and fro would make 2,000 a second of each
/// kind, which take one or two percent of their time; a thread that waits a thousand times a second
/// is checked about as often as the share says.
const CHECK_PAUSE: u32 = 5;
/// The shift from nanoseconds to the units of [`CHECK_PAUSE`].
const CHECK_PAUSE_SHIFT: u32 = 20;
/// Mismatches that are tolerated whatever the number of checks.
const TOLERATED_MISMATCHES: u32 = 2;
/// One mismatch in so many checks is tolerated: 99.9 % must match.
const TOLERATED_ONE_IN: u32 = 1000;

/// A stack that a thread has had.
#[repr(C)]
struct CacheEntry {
    /// What is known without reading the stack.
    key: u64,
    /// Which words of the stack's top are its frame slots.
    slots: FrameSlots,
    /// The fingerprint of the frame slots; 0 if only the key has been met.
    fingerprint: u64,
    /// The stack's id.
    id: u64,
}

/// The kernel stacks that a thread has had, and how the checks of its stacks came out.
#[repr(C)]
pub struct KernelStackCache {
    /// Both halves of stacks, found by registers alone.
    pub registers: RegisterCache,
    banks: [[CacheEntry; ENTRIES_PER_BANK]; BANKS],
    /// How many cache hits were checked, by [`StackKind`].
    checked: [u32; STACK_KINDS],
    /// How many of those were mismatches.
    mismatched: [u32; STACK_KINDS],
    /// When a cache hit was last to be checked, in the units of [`CHECK_PAUSE`].
    checked_at: [u32; STACK_KINDS],
    /// A bit for each [`StackKind`] with too many mismatches: stacks of it are not looked up any
    /// more.
    distrusted: u32,
    /// Not 0 if a kind is distrusted since the last report.
    has_unreported_distrust: u32,
    /// The way that the next new entry takes, modulo [`WAYS`].
    next_way: u32,
    /// Not 0 if the last cache hit is to be checked.
    is_check_due: u32,
}

/// Where a wake is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum WakesFrom {
    /// The current task's own code.
    Task,
    /// A softirq on top of the current task.
    Softirq,
}

/// The current task, as it wakes another.
#[derive(Clone, Copy)]
pub struct Waker {
    /// The current task.
    pub task: Task,
    /// The task's registers.
    pub registers: Registers,
    /// Where the wake is made.
    pub from: WakesFrom,
}

/// What a look-up in the cache gives: the id of the stack that was found, or one of [`NEW_KEY`] and
/// [`NO_MATCH`].
///
/// It is a plain number because global functions return it: the verifier forgets at their end which
/// way it came, and would otherwise follow each way to the program's end.
type Lookup = u64;
/// No entry has the key.
const NEW_KEY: Lookup = 0;
/// An entry has the key, and none has the stack's fingerprint.
const NO_MATCH: Lookup = u64::MAX;

impl KernelStackCache {
    /// Counts a cache hit that was walked or copied all the same.
    #[inline(always)]
    pub fn count_check(&mut self, kind: u32) {
        count(|counters| &mut counters.checked, kind);
        self.checked[index(kind)] += 1;
    }

    /// Counts a check that gave another stack than the cache.
    #[inline(always)]
    fn count_mismatch(&mut self, kind: u32) {
        let index = index(kind);
        count(|counters| &mut counters.mismatched, kind);
        self.mismatched[index] += 1;
        if self.mismatched[index] > TOLERATED_MISMATCHES + self.checked[index] / TOLERATED_ONE_IN {
            distrust(self, kind);
        }
    }

    /// Whether a kind has come to be distrusted since the last call.
    #[inline(always)]
    pub fn take_unreported_distrust(&mut self) -> bool {
        // SAFETY: a reference can be read from. By the volatile read the verifier forgets which way
        // the value was set.
        let is_unreported =
            unsafe { ptr::read_volatile(&raw const self.has_unreported_distrust) } != 0;
        if is_unreported {
            self.has_unreported_distrust = 0;
        }
        is_unreported
    }
}

/// Whether stacks are looked up in caches at all.
#[inline(always)]
pub fn is_enabled() -> bool {
    frozen(&CONFIG.stacks) == stacks::CACHED
}

/// Whether stacks of this kind and thread are looked up.
#[inline(always)]
fn is_trusted(cache: &KernelStackCache, kind: StackKind) -> bool {
    cache.distrusted & (1 << kind as u32) == 0
}

/// The kernel half of a thread that leaves the CPU. [`CapturedStack::FAILED`], without a count, if
/// it is to be walked as the thread is woken: that is cheaper, and will do where no entry of the
/// cache is filled.
#[inline(always)]
pub fn capture_sleeper(
    ctx: *mut c_void,
    cache: &mut KernelStackCache,
    wait_key: u64,
    now: u64,
) -> CapturedStack {
    const KIND: StackKind = StackKind::WaitKernel;
    const SCRATCH: Scratch = Scratch::Switch;
    if !is_enabled() || !is_trusted(cache, KIND) || !read_kernel_top(ctx, TopIndex::Switch) {
        return CapturedStack::FAILED;
    }
    let key = mix(KERNEL_KEY, wait_key);
    find_or_walk(cache, KIND, key, now, |lookup| {
        if lookup == NEW_KEY {
            return NO_STACK;
        }
        walk_kernel(ctx, SCRATCH, Need::WithinBudget, now)
    })
}

/// The kernel half of the current task, whose cache this is, as it wakes another. In a softirq on
/// top of the task, only this stack tells a packet that the task sends from one that came from
/// outside: then it is captured whatever it costs, and even where no stacks are recorded.
#[inline(always)]
pub fn capture_waker(
    ctx: *mut c_void,
    cache: &mut KernelStackCache,
    waker: Waker,
    syscall: i32,
    register_key: RegisterKey,
    now: u64,
) -> CapturedStack {
    const KIND: StackKind = StackKind::WakeKernel;
    if waker.from == WakesFrom::Softirq {
        return capture_sender(ctx, cache, waker, syscall, now);
    }
    let mut key = 0;
    if is_enabled() && is_trusted(cache, KIND) {
        let found = register_cache::find(&mut cache.registers, KIND, register_key, now);
        if found != NO_STACK {
            return check_if_due(ctx, cache, KIND, register_key, found, now);
        }
        if read_kernel_top(ctx, TopIndex::Waking) {
            key = mix(KERNEL_KEY, u64::from(syscall as u32));
        }
    }
    let stack = find_or_walk(cache, KIND, key, now, |_| {
        walk_kernel(ctx, Scratch::Waking, Need::WithinBudget, now)
    });
    if key != 0 {
        register_cache::learn(&mut cache.registers, KIND as u32, register_key, stack.0, now);
    }
    stack
}

/// The stack that registers alone gave; it is walked all the same if a check is due.
#[inline(always)]
fn check_if_due(
    ctx: *mut c_void,
    cache: &mut KernelStackCache,
    kind: StackKind,
    register_key: RegisterKey,
    found: u64,
    now: u64,
) -> CapturedStack {
    count(|counters| &mut counters.cache_hits, kind as u32);
    if !decide_check(cache, kind as u32, now) {
        return CapturedStack(found);
    }
    let scratch = scratch_for_kind(kind as u32);
    let walked = walk_kernel(ctx, scratch, Need::WithinBudget, now);
    if walked != NO_STACK {
        compare_by_registers(cache, kind as u32, found, walked);
        register_cache::learn(&mut cache.registers, kind as u32, register_key, walked, now);
    }
    CapturedStack(walked)
}

/// Counts the check of a stack that registers alone gave. Always returns 0, as a global function must
/// return a number.
#[unsafe(no_mangle)]
extern "C" fn compare_by_registers(
    cache: *mut KernelStackCache,
    kind: u32,
    found: u64,
    walked: u64,
) -> u64 {
    // SAFETY: as in `find_stack`.
    let Some(cache) = (unsafe { cache.as_mut() }) else { return 0 };
    cache.count_check(kind);
    count(|counters| &mut counters.by_registers_checked, kind);
    if found != walked {
        count(|counters| &mut counters.by_registers_mismatched, kind);
        cache.count_mismatch(kind);
    }
    0
}

/// The kernel half of the current task in a softirq on top of it. What tells one from another is on
/// the task's own stack: the code that sends, or that was interrupted.
#[inline(always)]
fn capture_sender(
    ctx: *mut c_void,
    cache: &mut KernelStackCache,
    waker: Waker,
    syscall: i32,
    now: u64,
) -> CapturedStack {
    const KIND: StackKind = StackKind::WakeInSoftirq;
    let mut key = 0;
    if frozen(&CONFIG.stacks) != stacks::EXACT
        && is_trusted(cache, KIND)
        && let Some(call) = interrupt_context::find_softirq_call(ctx, waker.task, waker.registers)
        && read_below_softirq(&call)
    {
        key = mix(KERNEL_KEY, call.return_address);
        key = mix(mix(key, call.depth), u64::from(syscall as u32));
    }
    find_or_walk(cache, KIND, key, now, |_| walk_kernel(ctx, Scratch::Waking, Need::Always, now))
}

/// The stack with this key from the cache, or what `walk` returns if the cache does not have it, or
/// if it is to be checked. `walk` gets the look-up's result. A key of 0 stands for none.
#[inline(always)]
fn find_or_walk(
    cache: &mut KernelStackCache,
    kind: StackKind,
    key: u64,
    now: u64,
    walk: impl Fn(Lookup) -> u64,
) -> CapturedStack {
    let lookup = if key == 0 { NEW_KEY } else { find_stack(cache, kind as u32, key, now) };
    // SAFETY: a reference can be read from. By the volatile read the verifier forgets which way the
    // value was set.
    if is_hit(lookup) && unsafe { ptr::read_volatile(&raw const cache.is_check_due) } == 0 {
        return CapturedStack(lookup);
    }
    let walked = walk(lookup);
    if key != 0 {
        update(cache, kind as u32, key, lookup, walked);
    }
    CapturedStack(walked)
}

/// Whether a look-up found a stack.
#[inline(always)]
fn is_hit(lookup: Lookup) -> bool {
    lookup != NEW_KEY && lookup != NO_MATCH
}

/// Walks the kernel half of the current task.
#[inline(never)]
fn walk_kernel(ctx: *mut c_void, scratch: Scratch, need: Need, now: u64) -> u64 {
    budget::walk(need, now, || stack::walk_kernel(ctx, scratch)).0
}

/// What keys of kernel stacks begin with, so that none is 0.
const KERNEL_KEY: u64 = 0x6f66_6677_616b_6531;

/// The index of a [`StackKind`], masked for the verifier.
#[inline(always)]
fn index(kind: u32) -> usize {
    kind as usize & (STACK_KINDS - 1)
}

/// The bank of a [`StackKind`]: waits are the kinds 0 and 1, wakes the others.
#[inline(always)]
fn bank(kind: u32) -> usize {
    (kind as usize >> 1) & (BANKS - 1)
}

/// One entry of the set that a key selects.
#[inline(always)]
fn entry(cache: &mut KernelStackCache, kind: u32, key: u64, way: u32) -> &mut CacheEntry {
    let set = key as usize & (ENTRIES_PER_BANK - WAYS);
    // SAFETY: both indices are masked to what is below the lengths.
    unsafe {
        cache
            .banks
            .get_unchecked_mut(bank(kind))
            .get_unchecked_mut(set | (way as usize & (WAYS - 1)))
    }
}

/// Looks up the stack whose top was read last, and decides whether a hit is to be checked.
///
/// The verifier proves a global function once, and not at each call, and forgets at its end which
/// way it came. That keeps the programs small enough to be proven.
#[unsafe(no_mangle)]
extern "C" fn find_stack(cache: *mut KernelStackCache, kind: u32, key: u64, now: u64) -> Lookup {
    // SAFETY: callers pass the cache of a `TaskLocal`; the verifier checks it.
    let Some(cache) = (unsafe { cache.as_mut() }) else { return NEW_KEY };
    let Some(top) = frame_slots::last_top(kind) else { return NEW_KEY };
    let mut lookup = NEW_KEY;
    let mut way = 0;
    while way < WAYS as u32 {
        let entry = entry(cache, kind, key, way);
        if entry.key == key {
            lookup = NO_MATCH;
            if entry.fingerprint != 0 && entry.slots.fingerprint(top) == entry.fingerprint {
                lookup = entry.id;
                break;
            }
        }
        way += 1;
    }
    if is_hit(lookup) {
        count(|counters| &mut counters.cache_hits, kind);
        cache.is_check_due = u32::from(decide_check(cache, kind, now));
    }
    lookup
}

/// Decides whether a cache hit is checked; if so, the next one is not for a while.
#[inline(always)]
pub fn decide_check(cache: &mut KernelStackCache, kind: u32, now: u64) -> bool {
    let index = index(kind);
    // Where detail is given up, the first one has to do: beside thousands of new threads a second, most copies of
    // stacks were for these checks.
    let first_checks = if detail::check_shift() == 0 { FIRST_CHECKS } else { 1 };
    if cache.checked[index] >= first_checks && !is_drawn(cache.checked_at[index], now) {
        return false;
    }
    // To check a user stack takes a copy.
    if is_user(kind) && !copy_ring::has_room_for_check() {
        return false;
    }
    cache.checked_at[index] = (now >> CHECK_PAUSE_SHIFT) as u32;
    budget::has_budget(now)
}

/// Whether a kind of stacks, one of [`StackKind`], is of user halves.
#[inline(always)]
fn is_user(kind: u32) -> bool {
    kind == StackKind::WaitUser as u32 || kind == StackKind::WakeUser as u32
}

/// Whether a cache hit is drawn at random, and the last check is long enough ago. With a share of
/// one, every hit is.
#[inline(always)]
fn is_drawn(checked_at: u32, now: u64) -> bool {
    let threshold = frozen(&CONFIG.check_threshold);
    // The time's last digits are as good as random, and follow no rhythm of the program.
    let random = (now as u32).wrapping_mul(0x9e37_79b1);
    let passed = ((now >> CHECK_PAUSE_SHIFT) as u32).wrapping_sub(checked_at);
    let shift = detail::check_shift();
    (threshold == u32::MAX && shift == 0) || (random < threshold >> shift && passed >= CHECK_PAUSE)
}

/// Updates the cache with a stack that was walked: compares it with the stack that was found, or
/// adds it. A key that is met for the first time is only entered, and the stack is cached the
/// second time, since most of what comes once never comes again. Always returns 0, as a global
/// function must return a number.
#[unsafe(no_mangle)]
extern "C" fn update(
    cache: *mut KernelStackCache,
    kind: u32,
    key: u64,
    lookup: Lookup,
    walked: u64,
) -> u64 {
    // SAFETY: as in `find_stack`.
    let Some(cache) = (unsafe { cache.as_mut() }) else { return 0 };
    if lookup != NEW_KEY && walked == NO_STACK {
        return 0;
    }
    if lookup == NEW_KEY || lookup == NO_MATCH {
        count(|counters| &mut counters.cache_misses, kind);
        let entry = choose_entry(cache, kind, key);
        entry.key = key;
        entry.fingerprint = 0;
        if lookup == NO_MATCH {
            fill(entry, kind, walked);
        }
        return 0;
    }
    cache.count_check(kind);
    if lookup != walked {
        cache.count_mismatch(kind);
        invalidate(cache, kind, key, lookup);
    }
    0
}

/// The entry that a stack with this key goes to: one where the key was entered without a stack, or
/// else the next in turn.
#[inline(always)]
fn choose_entry(cache: &mut KernelStackCache, kind: u32, key: u64) -> &mut CacheEntry {
    let mut chosen = cache.next_way;
    let mut way = 0;
    while way < WAYS as u32 {
        let entry = entry(cache, kind, key, way);
        if entry.key == key && entry.fingerprint == 0 {
            chosen = way;
        }
        way += 1;
    }
    cache.next_way = cache.next_way.wrapping_add(1);
    entry(cache, kind, key, chosen)
}

/// Empties the entries of a stack that was mismatched, so that they are filled again.
#[inline(always)]
fn invalidate(cache: &mut KernelStackCache, kind: u32, key: u64, id: u64) {
    let mut way = 0;
    while way < WAYS as u32 {
        let entry = entry(cache, kind, key, way);
        if entry.key == key && entry.id == id {
            entry.fingerprint = 0;
        }
        way += 1;
    }
}

/// Stops looking up a kind of stacks.
#[inline(always)]
fn distrust(cache: &mut KernelStackCache, kind: u32) {
    cache.distrusted |= 1 << index(kind);
    cache.has_unreported_distrust = 1;
    if let Some(counters) = STACK_COUNTS.get_ptr_mut(0) {
        // SAFETY: this CPU's own entry.
        unsafe { (*counters).distrusted += 1 };
    }
}

/// Fills an entry with the stack that was walked last.
#[inline(always)]
fn fill(entry: &mut CacheEntry, kind: u32, id: u64) {
    if let Some((slots, fingerprint)) = frame_slots::find_in_last_walk(kind) {
        entry.slots = slots;
        entry.fingerprint = fingerprint;
        entry.id = id;
    }
}

/// Adds one to a counter of a [`StackKind`].
#[inline(always)]
pub fn count(counter: impl Fn(&mut StackCounters) -> &mut [u64; STACK_KINDS], kind: u32) {
    if let Some(counters) = STACK_COUNTS.get_ptr_mut(0) {
        // SAFETY: this CPU's own entry; the index is masked to what is below the length.
        unsafe { *counter(&mut *counters).get_unchecked_mut(index(kind)) += 1 };
    }
}
