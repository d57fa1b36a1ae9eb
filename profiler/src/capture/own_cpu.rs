//! What the profiler itself costs.

use std::time::Duration;

use crate::{parser, units::Nanos};

/// CPU time that this process has used, user and system, and those that parse for it.
pub(super) fn used() -> Nanos {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call fills `usage`; it can't fail with these arguments, and zeroes are valid.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let time = |time: libc::timeval| {
        Duration::new(
            u64::try_from(time.tv_sec).unwrap_or(0),
            u32::try_from(time.tv_usec).unwrap_or(0).saturating_mul(1000),
        )
    };
    let total = time(usage.ru_utime) + time(usage.ru_stime) + parser::cpu_used();
    Nanos(u64::try_from(total.as_nanos()).unwrap_or(u64::MAX))
}
