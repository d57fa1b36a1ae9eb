//! How much detail is recorded just now: what the user half has written to [`DETAIL`].

use profiler_ebpf::detail::Detail;

use super::{maps::DETAIL, stack};

#[inline(always)]
fn current() -> Option<&'static Detail> {
    DETAIL.get(0)
}

/// How many times less often cache hits are checked, as a power of two.
#[inline(always)]
pub fn check_shift() -> u32 {
    current().map_or(0, |detail| detail.check_shift) & 31
}

/// How many times longer registers alone are trusted, as a power of two.
#[inline(always)]
pub fn trust_shift() -> u32 {
    current().map_or(0, |detail| detail.trust_shift) & 7
}

/// Whether stacks of threads that wait are taken.
#[inline(always)]
pub fn takes_stacks() -> bool {
    stack::are_recorded() && current().is_none_or(|detail| detail.is_without_stacks == 0)
}

/// Whether the stacks of whoever ends a wait are taken, that has lasted for `waited_ns`.
#[inline(always)]
pub fn takes_waker_stacks(waited_ns: u64) -> bool {
    takes_stacks() && current().is_none_or(|detail| waited_ns >= detail.waker_stacks_from_ns)
}
