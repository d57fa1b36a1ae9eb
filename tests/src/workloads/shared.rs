//! Memory that a workload's threads and forked processes share.

use std::{
    io,
    ptr::NonNull,
    sync::atomic::{AtomicU32, AtomicU64},
};

use anyhow::{Context, Result};

/// Types for which all bytes zero are a value, and that are shared by atomics alone.
///
/// # Safety
///
/// Both must be true of the type.
pub(super) unsafe trait Zeroed: Sync {}

// SAFETY: an atomic of value 0.
unsafe impl Zeroed for AtomicU32 {}
// SAFETY: an atomic of value 0.
unsafe impl Zeroed for AtomicU64 {}

/// Maps a zeroed `T` that stays in place for the process's life, and that processes forked later
/// share. Pages that are never touched cost nothing.
pub(super) fn map<T: Zeroed>() -> Result<&'static T> {
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing else.
    let place = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<T>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if place == libc::MAP_FAILED {
        return Err(io::Error::last_os_error()).context("cannot map shared memory");
    }
    let place = NonNull::new(place.cast::<T>()).context("shared memory was mapped at 0")?;
    // SAFETY: the mapping is page-aligned, as large as `T`, zeroed, and never unmapped; `Zeroed`
    // promises that this is a value and that it is shared by atomics.
    Ok(unsafe { place.as_ref() })
}
