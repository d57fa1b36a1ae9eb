//! How much detail the kernel half records: the user half gives some of it up, step by step, where the
//! profiler would cost more than it may.

/// What is given up, in the one entry of the map that every program reads. All zeroes: nothing is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Detail {
    /// Cache hits are checked 2 to the power of this times less often than
    /// [`Config::check_threshold`](crate::config::Config) says.
    pub check_shift: u32,
    /// What registers alone say is trusted 2 to the power of this times longer, and confirmed as much
    /// less often.
    pub trust_shift: u32,
    /// The stacks of whoever ends a wait are taken if it has lasted this long.
    pub waker_stacks_from_ns: u64,
    /// Not 0 if no stacks are taken but those that tell who sent a packet.
    pub is_without_stacks: u32,
    /// Not 0 if what a thread waits for is read only when its wait has turned out to be long.
    pub is_late: u32,
    /// Waits and preemptions that are shorter than this are summed up instead of being sent; 0 for none.
    pub summed_below_ns: u64,
}

const _: () = assert!(size_of::<Detail>() == 32);
