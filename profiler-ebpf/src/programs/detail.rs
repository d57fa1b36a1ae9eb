//! How much detail is recorded just now: what the user half has written to [`DETAIL`].

use profiler_ebpf::detail::Detail;

use super::{
    config::{CONFIG, frozen},
    maps::DETAIL,
    stack,
};

#[inline(always)]
fn current() -> Option<&'static Detail> {
    if is_adjustable() { DETAIL.get(0) } else { None }
}

/// Whether detail may be given up at all: if not, the kernel leaves out what would look.
#[inline(always)]
pub fn is_adjustable() -> bool {
    frozen(&CONFIG.is_adjustable) != 0
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

/// Times off the CPU that are shorter than this are summed up; 0 if none are.
#[inline(always)]
pub fn summed_below_ns() -> u64 {
    current().map_or(0, |detail| detail.summed_below_ns)
}

/// Whether what a thread waits for is read only when its wait has turned out to be long.
#[inline(always)]
pub fn is_late() -> bool {
    current().is_some_and(|detail| detail.is_late != 0)
}
