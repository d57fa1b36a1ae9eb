//! Each thread's register cache: stacks that are found by what registers say alone, without a look
//! at the stack's memory.
//!
//! It stands in front of the caches that compare frame slots, and learns from them. A read of the
//! top of a user stack costs some 300 ns when it is warm and 900 ns on a busy database.
//!
//! ```text
//!  the cache behind says:   A A A A A A A A   ·   ·   A   ·   ·   ·   · A   …   B
//!                           agreements 1 … 8  │   found here, by registers      │ never again
//! ```
//!
//! What may be found here:
//!
//! - After eight agreements in a row, and until the cache behind says anything else, or nothing.
//! - Within 8 ms of the last agreement, so that a thread that seldom waits has each of its stacks
//!   compared. What costs it nothing is not worth a mistake.
//! - Where one stack alone is known, whose code is in files: code that is made at run time, and
//!   Python, have many functions' frames in one place.
//! - Kernel halves of who wakes somebody from an interruptible wait: those in filesystems are not, and
//!   differ.
//!
//! The kernel half of a thread that waits is never found here: a thread that is frozen in a syscall
//! has the registers of that syscall, and its stack alone says that it is stopped.
//!
//! One of 16 answers is left to the cache behind all the same, and of the rest as many are checked
//! by a walk or a copy as of any cache. Without these rules up to 0.6 % of the stacks that registers
//! gave were others (Node, git).

use profiler_ebpf::{record::NO_STACK, stack_counts::StackKind, user_stack::frame_distance};

use super::{
    detail,
    kernel_stack_cache::count,
    maps::CACHE_GENERATION,
    stack::mix,
    task::{Registers, UserRegisters},
};

/// Room for [`StackKind::WaitUser`] to [`StackKind::WakeKernel`]; that of `WaitKernel` stays empty.
const KINDS: usize = 4;
/// Entries of each kind; a power of two. A thread waits in few places most of the time.
const ENTRIES: usize = 4;
/// The bits of an entry's first word that hold its number of agreements.
const AGREEMENTS: u64 = 0xf;
/// After so many agreements in a row an entry is trusted.
const TRUSTED: u64 = 8;
/// What an entry has in place of agreements after a disagreement.
const REFUTED: u64 = AGREEMENTS;
/// The bits that hold when the last agreement was, in units of 2²⁰ ns: they begin anew after 18
/// minutes.
const TIME: u64 = 0xfffff << TIME_SHIFT;
const TIME_SHIFT: u32 = 4;
const UNIT_SHIFT: u32 = 20;
/// The rest is the key's.
const KEY: u64 = !(AGREEMENTS | TIME);
/// For how long after an agreement an entry is trusted.
const TRUSTED_FOR: u64 = 8 << TIME_SHIFT;
/// One in so many answers is left to the cache behind; a power of two.
const CONFIRMED_ONE_IN: u32 = 16;

/// A key of [`RegisterCache`], or [`RegisterKey::NONE`].
#[derive(Clone, Copy)]
pub struct RegisterKey(pub u64);

/// A stack that a thread has had.
#[repr(C)]
struct RegisterEntry {
    /// The key, the time of the last agreement, and the number of agreements.
    word: u64,
    /// The stack's id.
    id: u64,
}

/// The stacks of a thread that are found by registers.
#[repr(C)]
pub struct RegisterCache {
    entries: [[RegisterEntry; ENTRIES]; KINDS],
}

impl RegisterKey {
    /// Stands for no key: nothing is looked up or learned.
    pub const NONE: Self = Self(0);

    /// The key of the user half of a task that is in a syscall, which is where registers say most.
    #[inline(always)]
    pub fn for_user(registers: Registers, code_epoch: u32, syscall: i32) -> Self {
        if syscall < 0 {
            return Self::NONE;
        }
        let UserRegisters { ip, sp, fp } = registers.user();
        let key = mix(mix(generation(), ip), sp);
        let key = mix(key, frame_distance(fp, sp));
        Self(mix(key, u64::from(code_epoch) << 32 | u64::from(syscall as u32)))
    }

    /// The same key, with more that tells stacks apart.
    #[inline(always)]
    pub fn with(self, value: u64) -> Self {
        if self.0 == 0 { self } else { Self(mix(self.0, value)) }
    }

    #[inline(always)]
    pub fn is_some(self) -> bool {
        self.0 & KEY != 0
    }
}

/// A number that changes whenever user space removes stacks from its cache, so that none of them is
/// found here any more.
#[inline(always)]
fn generation() -> u64 {
    CACHE_GENERATION.get(0).copied().unwrap_or(0)
}

impl RegisterCache {
    /// The entry that a key selects. All indices are masked, for the verifier.
    #[inline(always)]
    fn entry(&mut self, kind: u32, key: u64) -> &mut RegisterEntry {
        let kind = kind as usize & (KINDS - 1);
        let index = (key >> 32) as usize & (ENTRIES - 1);
        // SAFETY: both indices are masked to what is below the lengths.
        unsafe { self.entries.get_unchecked_mut(kind).get_unchecked_mut(index) }
    }
}

/// The id of the stack with this key, or [`NO_STACK`] if the cache behind is to be asked.
///
/// The verifier proves a global function once, and not at each call.
#[unsafe(no_mangle)]
extern "C" fn find_by_registers(cache: *mut RegisterCache, kind: u32, key: u64, now: u64) -> u64 {
    // SAFETY: callers pass the cache of a `TaskLocal`; the verifier checks it.
    let Some(cache) = (unsafe { cache.as_mut() }) else { return NO_STACK };
    let entry = cache.entry(kind, key);
    let shift = detail::trust_shift();
    let passed = time(now).wrapping_sub(entry.word & TIME) & TIME;
    if (entry.word ^ key) & KEY != 0
        || entry.word & AGREEMENTS != TRUSTED
        || passed > TRUSTED_FOR << shift
    {
        return NO_STACK;
    }
    // The time's last digits are as good as random. Those that decide on a check are mixed in
    // another way: which answers are checked must not depend on which are confirmed.
    let random = (now as u32).wrapping_mul(0x85eb_ca6b) >> 16;
    if random & ((CONFIRMED_ONE_IN << shift) - 1) == 0 {
        return NO_STACK;
    }
    count(|counters| &mut counters.by_registers, kind);
    entry.id
}

/// Learns what the cache behind says of a key: the id of a stack, or [`NO_STACK`]. Always returns 0,
/// as a global function must return a number.
#[unsafe(no_mangle)]
extern "C" fn learn_by_registers(
    cache: *mut RegisterCache,
    kind: u32,
    key: u64,
    id: u64,
    now: u64,
) -> u64 {
    // SAFETY: as above.
    let Some(cache) = (unsafe { cache.as_mut() }) else { return 0 };
    let entry = cache.entry(kind, key);
    let mut agreements = entry.word & AGREEMENTS;
    if (entry.word ^ key) & KEY != 0 {
        if id == NO_STACK {
            return 0;
        }
        entry.id = id;
        agreements = 0;
    }
    if entry.id != id {
        agreements = REFUTED;
    } else if agreements < TRUSTED {
        agreements += 1;
    }
    entry.word = key & KEY | time(now) | agreements;
    0
}

/// A time as entries hold it.
#[inline(always)]
fn time(now: u64) -> u64 {
    (now >> UNIT_SHIFT << TIME_SHIFT) & TIME
}

/// The id of the stack of a kind with this key, or [`NO_STACK`] if the cache behind is to be asked.
#[inline(always)]
pub fn find(cache: &mut RegisterCache, kind: StackKind, key: RegisterKey, now: u64) -> u64 {
    if key.is_some() { find_by_registers(cache, kind as u32, key.0, now) } else { NO_STACK }
}

/// Learns what the cache behind says of a key: the id of a stack, or [`NO_STACK`].
#[inline(always)]
pub fn learn(cache: &mut RegisterCache, kind: u32, key: RegisterKey, id: u64, now: u64) {
    if key.is_some() {
        learn_by_registers(cache, kind, key.0, id, now);
    }
}
