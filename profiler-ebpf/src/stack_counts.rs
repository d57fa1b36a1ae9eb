//! Counters of how the stacks that records refer to were obtained.

/// Which half of which thread's stack it is; the index into the counters of [`StackCounters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum StackKind {
    /// The user half of a thread that leaves the CPU to wait.
    WaitUser = 0,
    /// The kernel half of a thread that leaves the CPU to wait.
    WaitKernel = 1,
    /// The user half of a thread that wakes another.
    WakeUser = 2,
    /// The kernel half of a thread that wakes another.
    WakeKernel = 3,
    /// The kernel half of a thread, where a softirq on top of it makes the wake.
    WakeInSoftirq = 7,
}

/// Room for every kind of stack; a power of two, for the verifier's sake.
pub const STACK_KINDS: usize = 8;

/// One CPU's counters. Arrays are indexed by [`StackKind`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct StackCounters {
    /// Stacks that were found in a cache, those that were checked included.
    pub cache_hits: [u64; STACK_KINDS],
    /// Stacks that were in no cache, and had to be walked or copied.
    pub cache_misses: [u64; STACK_KINDS],
    /// Cache hits that were walked or copied all the same, to verify them.
    pub checked: [u64; STACK_KINDS],
    /// Checked cache hits whose stack turned out to be another.
    pub mismatched: [u64; STACK_KINDS],
    /// Stacks that were neither walked nor copied, since the time for that was used up.
    pub over_budget: u64,
    /// Kinds of stacks of threads that are walked every time, since too many cache hits mismatched.
    pub distrusted: u64,
    /// Cache hits that were found by registers alone.
    pub by_registers: [u64; STACK_KINDS],
    /// Those of them that were checked.
    pub by_registers_checked: [u64; STACK_KINDS],
    /// Those of them whose stack turned out to be another. Of user stacks only user space knows.
    pub by_registers_mismatched: [u64; STACK_KINDS],
    /// User stacks that were not copied, by chance, as the ring of copies was more than half full.
    pub thinned_out: u64,
}

const _: () = {
    assert!(size_of::<StackCounters>() == (7 * STACK_KINDS + 3) * 8);
    assert!(StackKind::WakeInSoftirq as usize + 1 == STACK_KINDS);
};
