//! What loading leaves behind.

/// Has the allocator give back to the system what is free.
///
/// The kernel's types are some 70 MB of small pieces, and nothing of that size comes again. Left to
/// itself, glibc keeps them where anything that was allocated later lies behind them.
/// <https://man7.org/linux/man-pages/man3/malloc_trim.3.html>
#[cfg(target_env = "gnu")]
pub(crate) fn give_back() {
    // SAFETY: it takes no pointers, and may be called at any time by any thread.
    unsafe { libc::malloc_trim(0) };
}

/// Other C libraries have no such call.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn give_back() {}
