//! How stacks were come by, counted.

/// Whose stack, and which half of it; the index into the counters of [`StackCounters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Side {
    /// The user half of a thread that leaves the CPU to wait.
    WaitUser = 0,
    /// Its kernel half.
    WaitKernel = 1,
    /// The user half of a thread that wakes another.
    WakeUser = 2,
    /// Its kernel half.
    WakeKernel = 3,
    /// The same where the wake is made in a softirq on top of the thread.
    WakeInSoftirq = 7,
}

/// Room for every side; a power of two, for the verifier's sake.
pub const SIDES: usize = 8;

/// One CPU's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct StackCounters {
    /// Stacks that were recognised, those that were checked included, by [`Side`].
    pub recognised: [u64; SIDES],
    /// Stacks that had to be walked, those that were checked not included.
    pub walked: [u64; SIDES],
    /// Recognised stacks that were walked all the same.
    pub checked: [u64; SIDES],
    /// Those of them that turned out to be others.
    pub disagreed: [u64; SIDES],
    /// Stacks that were not walked since the time for it was used up.
    pub over_budget: u64,
    /// Sides of threads whose stacks are walked every time, since too many were recognised wrongly.
    pub distrusted: u64,
}

const _: () = {
    assert!(size_of::<StackCounters>() == (4 * SIDES + 2) * 8);
    assert!(Side::WakeInSoftirq as usize + 1 == SIDES);
};
